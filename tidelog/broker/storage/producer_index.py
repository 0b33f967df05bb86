"""Producer id -> slot: one flat table of slot numbers, made for very many producers.

Owns the position of a slot number. A cell holds a slot number or 0; the slot itself holds the producer id.

Invariants:
- at most half of the cells are taken, and only slightly more while a larger table is filled;
- no step takes long: each `add` puts `_MOVED_AT_ONCE` slots into a larger table, which is used when full;
- a removal leaves no mark: the cells after it move up.

Pure: no I/O and no clock.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable

SPREAD = 663_608_941
"""What an id is multiplied by: about 2**30 over the golden ratio, which puts adjacent ids far apart."""
_SMALLEST = 11
_MOVED_AT_ONCE = 16


class SlotIndex:
    """The slots of a table's producers. `id_of` gives the producer id of a slot, negative for a free one."""

    def __init__(self, id_of: Callable[[int], int], producers: int = 0) -> None:
        """Empty; it grows only for more than `producers`."""
        self.cells = _empty(2 * producers)
        """From cell `producer_id * SPREAD % len(cells)` on, up to the first 0."""
        self._id_of = id_of
        self._count = 0
        self._larger: array[int] | None = None
        self._moving = range(0)

    def __len__(self) -> int:
        return self._count

    def add(self, producer_id: int, slot: int, slots: int) -> None:
        """Find `slot` by an id that is not there yet. `slots`: how many there are, free ones included."""
        _place(self.cells, producer_id, slot)
        self._count += 1
        if self._larger is not None:
            _place(self._larger, producer_id, slot)
            self._move_some(self._larger)
        elif 2 * self._count > len(self.cells):
            self._larger = _empty(4 * self._count)
            self._moving = range(1, slots + 1)

    def _move_some(self, larger: array[int]) -> None:
        for slot in self._moving[:_MOVED_AT_ONCE]:
            producer_id = self._id_of(slot)
            if producer_id >= 0:
                _place(larger, producer_id, slot)
        self._moving = self._moving[_MOVED_AT_ONCE:]
        if not self._moving:
            self.cells, self._larger = larger, None

    def fill(self, slots: Iterable[tuple[int, int]]) -> None:
        """Find (slot, producer id) each, without growing. Raises ValueError when two have the same id."""
        cells = self.cells
        size = len(cells)
        for slot, producer_id in slots:
            at = producer_id * SPREAD % size
            while other := cells[at]:
                if self._id_of(other) == producer_id:
                    raise ValueError(f"producer {producer_id} is in slots {other} and {slot}")
                at = (at + 1) % size
            cells[at] = slot
            self._count += 1

    def remove(self, producer_id: int, slot: int) -> None:
        """`slot` is found no more; `id_of` still gives its producer id."""
        self._count -= 1
        self._erase(self.cells, producer_id, slot)
        if self._larger is not None:
            self._erase(self._larger, producer_id, slot)

    def _erase(self, cells: array[int], producer_id: int, slot: int) -> None:
        size = len(cells)
        hole = producer_id * SPREAD % size
        while cells[hole] != slot:
            if not cells[hole]:
                return
            hole = (hole + 1) % size
        at = hole
        while following := cells[at := (at + 1) % size]:
            home = self._id_of(following) * SPREAD % size
            # It moves up unless it lies between its home and here without passing the hole.
            if (at - home) % size >= (at - hole) % size:
                cells[hole] = following
                hole = at
        cells[hole] = 0


def _place(cells: array[int], producer_id: int, slot: int) -> None:
    """Put `slot` into the first free cell, unless a cell already holds it."""
    size = len(cells)
    at = producer_id * SPREAD % size
    while (other := cells[at]) and other != slot:
        at = (at + 1) % size
    cells[at] = slot


def _empty(cells: int) -> array[int]:
    return array("i", [0]) * _prime_from(max(cells, _SMALLEST))


def _prime_from(number: int) -> int:
    """The first odd prime from `number` on."""
    number |= 1
    while any(number % divisor == 0 for divisor in range(3, int(number**0.5) + 1, 2)):
        number += 2
    return number
