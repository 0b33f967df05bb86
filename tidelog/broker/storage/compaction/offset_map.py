"""The last offset of each key in the part of a log that is cleaned, in bounded memory.

Owns a table of fixed size: a cell is 24 bytes, two hashes of a key and an offset, in one flat array, so that
no Python object stays per key. Keys themselves are not stored.

Two keys with the same 128 bits of hash would be taken for one. The hashes are those of the interpreter
(SipHash, keyed by a secret of the process), so no client can choose such keys.

Invariants: an offset that is put is not smaller than any before it; `latest_offset` is the last one for which
the map has the answer: it has no records after it. A map that is full takes no further keys, and still takes
newer offsets of those that it has.

Pure. Source: Kafka's SkimpyOffsetMap.
"""

from array import array
from collections.abc import Sequence

CELL_BYTES = 24
_MOST_FILLED = 0.7
"""Part of the cells that is used. Above it, look-ups take long."""
_SALT = b"\x9e"
_NUMBERS = CELL_BYTES // 8


class OffsetMap:
    """Maps the hash of each key to its last offset. Empty at first."""

    def __init__(self, size_bytes: int, most_keys: int) -> None:
        """`size_bytes` bounds its memory; it takes less where there are at most `most_keys` keys."""
        most_cells = max(size_bytes // CELL_BYTES, 2)
        self.cells = min(most_cells, int(most_keys / _MOST_FILLED) + 2)
        self.capacity = max(int(self.cells * _MOST_FILLED), 1)
        """The most keys that it takes."""
        self.latest_offset = -1
        self._numbers = array("q", bytes(8)) * (self.cells * _NUMBERS)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def utilization(self) -> float:
        """The part of the capacity that is used."""
        return self._count / self.capacity

    def put_all(self, keys: Sequence[bytes | None], offsets: Sequence[int]) -> bool:
        """Take the offsets of these keys, in order; records without a key are passed over.

        False when the map is full: then it has taken those up to `latest_offset`.
        """
        numbers, cells, end = self._numbers, self.cells, len(self._numbers)
        free = self.capacity - self._count
        offset = self.latest_offset
        for key, following in zip(keys, offsets, strict=True):
            if key is not None:
                first, second = hash(key) or 1, hash(key + _SALT)
                at = first % cells * _NUMBERS
                while (found := numbers[at]) and (found != first or numbers[at + 1] != second):
                    at += _NUMBERS
                    if at == end:
                        at = 0
                if not found:
                    if not free:
                        break
                    free -= 1
                    numbers[at], numbers[at + 1] = first, second
                numbers[at + 2] = following
            offset = following
        else:
            self.latest_offset = max(self.latest_offset, offset)
            self._count = self.capacity - free
            return True
        self.latest_offset = max(self.latest_offset, offset)
        self._count = self.capacity - free
        return False

    def pass_over(self, last_offset: int) -> None:
        """The records up to `last_offset` take no other's place: the map has the answer up to there."""
        self.latest_offset = max(self.latest_offset, last_offset)

    def newest(self, keys: Sequence[bytes | None], offsets: Sequence[int]) -> list[bool]:
        """For each record whether no later one up to `latest_offset` has its key. False without a key."""
        numbers, cells, end = self._numbers, self.cells, len(self._numbers)
        answers: list[bool] = []
        add = answers.append
        for key, offset in zip(keys, offsets, strict=True):
            if key is None:
                add(False)
                continue
            first, second = hash(key) or 1, hash(key + _SALT)
            at = first % cells * _NUMBERS
            while (found := numbers[at]) and (found != first or numbers[at + 1] != second):
                at += _NUMBERS
                if at == end:
                    at = 0
            add(not found or numbers[at + 2] <= offset)
        return answers
