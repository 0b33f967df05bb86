"""The memory of producers: packed slots, found by producer id, kept in order of their last append.

Owns the layout: a slot is 152 bytes (head and five cached batches, the newest first); slots lie in chunks;
`previous` and `next` link the live slots from the longest idle to the latest appended. What a check needs
lies together at the beginning of a slot: with a million producers, each further place that it read would be a
cache miss.

Invariants:
- slot 0 is no producer: it is the ends of the circular order (`next[0]` the longest idle, `previous[0]` the
  latest). A free slot has producer id -1 and is chained through `next`.
- a frozen chunk is never written: writes go to a copy. So a snapshot of a million producers takes the loop
  only the copying of two int arrays and a list.

Pure: no I/O and no clock.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain
from struct import Struct
from typing import NamedTuple

from tidelog.broker.storage.producer_index import SPREAD, SlotIndex
from tidelog.protocol.steps import Steps
from tidelog.protocol.types import NO_OFFSET, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP

CACHED_BATCHES = 5
_SORTED_AT_ONCE = 8192
_SKIPPED_AT_ONCE = 8192
FOREIGN_IDS_FROM = 1 << 62
"""No broker issues such ids: clients chose them, where `producer.id.unknown.sequence` allows it."""
_CHUNK_BITS = 6
SLOTS_PER_CHUNK = 1 << _CHUNK_BITS
_IN_CHUNK = SLOTS_PER_CHUNK - 1

_HEAD = Struct("<qqqihBx")
_BATCH = Struct("<iiqq")
_ID = Struct("<q")
_STATE = Struct("<16xq4xhBxi")
_KEPT_BYTES = (CACHED_BATCHES - 1) * _BATCH.size
_BEFORE_PUSH = Struct(f"<16xqihBx{_KEPT_BYTES}s")
_PUSHED = Struct(f"<qqihBxiiqq{_KEPT_BYTES}s")
_BATCHES_AT = _HEAD.size
_TXN_AT = 16
_APPEND_AT = 8
SLOT_SIZE = _HEAD.size + CACHED_BATCHES * _BATCH.size
_SLOT_TXN = Struct(f"<q8xq{SLOT_SIZE - 24}x")
_SLOT_LAST = Struct(f"<q22xB{_HEAD.size - 31 + 8}xq{SLOT_SIZE - _HEAD.size - 16}x")
_SLOT_ID = Struct(f"<q{SLOT_SIZE - 8}x")
_FREE_SLOT = _HEAD.pack(NO_PRODUCER_ID, 0, NO_OFFSET, -1, -1, 0) + bytes(CACHED_BATCHES * _BATCH.size)
_FREE_CHUNK = _FREE_SLOT * SLOTS_PER_CHUNK
_WITHOUT_PRODUCERS = bytearray(_FREE_CHUNK)
"""The chunk of all tables that never had a producer. It is never written."""


class CachedBatch(NamedTuple):
    """A producer's batch that is remembered, so that a duplicate is recognised. `timestamp` is the batch's
    largest record timestamp, milliseconds."""

    last_sequence: int
    offset_delta: int
    last_offset: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry(NamedTuple):
    """Everything known of one producer on one partition; `batches` oldest first."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    current_txn_start_offset: int
    last_append_ms: int
    batches: tuple[CachedBatch, ...]

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_timestamp(self) -> int:
        """Largest record timestamp of the last batch, milliseconds; -1 without one."""
        return self.batches[-1].timestamp if self.batches else NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class FrozenTable:
    """A table as it was at one moment; its buffers are never written again while it is in use."""

    count: int
    first_free: int
    previous: array[int]
    next: array[int]
    chunks: list[bytearray]
    clock_ms: int = 0
    """The producers' own time when the table was taken, in the milliseconds of `last_append_ms`."""
    evicted: Mapping[int, int] = field(default_factory=dict)
    """Producer id -> epoch of the producers that the limit evicted, the longest ago first."""
    aborted: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Base offset of a segment -> how many aborted transactions its index then had, and their CRC-32C; no
    segment that has any is left out."""


def entries_of(frozen: FrozenTable) -> Iterator[ProducerEntry]:
    """Every producer of a frozen table, the longest idle first; in any thread."""
    slot = frozen.next[0]
    while slot:
        yield _entry(frozen.chunks, slot)
        slot = frozen.next[slot]


def latest_of(frozen: FrozenTable, skipped: int, count: int) -> Steps[list[ProducerEntry]]:
    """At most `count` producers of a frozen table after the first `skipped`, the latest appended first."""
    slot = frozen.previous[0]
    for number in range(min(skipped, frozen.count)):
        slot = frozen.previous[slot]
        if number % _SKIPPED_AT_ONCE == _SKIPPED_AT_ONCE - 1:
            yield
    found: list[ProducerEntry] = []
    while slot and len(found) < count:
        found.append(_entry(frozen.chunks, slot))
        slot = frozen.previous[slot]
    return found


def last_offsets_of(frozen: FrozenTable) -> array[int]:
    """Last offset of the last batch of each producer of a frozen table, ascending; in any thread."""
    slots = chain.from_iterable(map(_SLOT_LAST.iter_unpack, frozen.chunks))
    return _ascending(offset for producer_id, count, offset in slots if producer_id >= 0 and count)


def producer_ids_of(frozen: FrozenTable) -> array[int]:
    """The id of each producer of a frozen table, ascending; in any thread."""
    return _ascending(producer_id for (producer_id,) in _ids(frozen.chunks) if producer_id >= 0)


def _ascending(numbers: Iterable[int]) -> array[int]:
    found = array("q", numbers)
    # One sort of a million would keep all other threads waiting.
    runs = [sorted(found[at : at + _SORTED_AT_ONCE]) for at in range(0, len(found), _SORTED_AT_ONCE)]
    return array("q", merge(*runs))


def _entry(chunks: list[bytearray], slot: int) -> ProducerEntry:
    number, index = divmod(slot, SLOTS_PER_CHUNK)
    chunk, at = chunks[number], index * SLOT_SIZE
    producer_id, last_append_ms, txn, coordinator_epoch, epoch, count = _HEAD.unpack_from(chunk, at)
    batches = tuple(
        CachedBatch._make(_BATCH.unpack_from(chunk, at + _BATCHES_AT + number * _BATCH.size))
        for number in reversed(range(count))
    )
    return ProducerEntry(producer_id, epoch, coordinator_epoch, txn, last_append_ms, batches)


def _highest_in(chunks: list[bytearray]) -> int:
    """The highest producer id below `FOREIGN_IDS_FROM`; free slots have -1."""
    highest: int = max(_ids(chunks))[0]  # Nothing but C runs for each of a million.
    if highest >= FOREIGN_IDS_FROM:
        highest = max(producer_id for (producer_id,) in _ids(chunks) if producer_id < FOREIGN_IDS_FROM)
    return highest


def _ids(chunks: list[bytearray]) -> Iterator[tuple[int]]:
    return chain.from_iterable(map(_SLOT_ID.iter_unpack, chunks))


class ProducerTable:
    """Producer id -> slot, and the order of the slots by last append."""

    def __init__(self) -> None:
        self.highest_producer_id = -1
        """The highest id that was ever in the table, below `FOREIGN_IDS_FROM`."""
        self._index = SlotIndex(self.producer_id)
        self._recent: tuple[int, int] = (NO_PRODUCER_ID, 0)
        """Producer id and slot of the last one found: it is asked for again at once."""
        self._chunks: list[bytearray] = [_WITHOUT_PRODUCERS]
        self._frozen: list[bytearray] | None = None
        self._freezes = 0
        self._previous = array("i", [0])
        self._next = array("i", [0])
        self._first_free = 0

    @classmethod
    def from_frozen(cls, frozen: FrozenTable) -> ProducerTable:
        """The table that `frozen` describes, on its buffers. Raises ValueError when they disagree."""
        size = len(frozen.next)
        if len(frozen.previous) != size or not size or len(frozen.chunks) * SLOTS_PER_CHUNK < size:
            raise ValueError(f"{size} slots, {len(frozen.previous)} links and {len(frozen.chunks)} chunks")
        table = cls()
        table._chunks = frozen.chunks
        table._index = index = SlotIndex(table.producer_id, size)
        ids = enumerate(_ids(frozen.chunks))
        index.fill((slot, producer_id) for slot, (producer_id,) in ids if producer_id >= 0)
        table.highest_producer_id = _highest_in(frozen.chunks)
        if len(index) != frozen.count:
            raise ValueError(f"{len(index)} producers where {frozen.count} were announced")
        if not frozen.count:
            return cls()
        table._previous = frozen.previous
        table._next = frozen.next
        table._first_free = frozen.first_free
        return table

    def __len__(self) -> int:
        return len(self._index)

    def find(self, producer_id: int) -> int:
        """The slot of a producer, or 0."""
        recent_id, slot = self._recent
        if recent_id == producer_id:
            return slot
        cells = self._index.cells
        size = len(cells)
        at = producer_id * SPREAD % size
        while slot := cells[at]:
            if (
                _ID.unpack_from(self._chunks[slot >> _CHUNK_BITS], (slot & _IN_CHUNK) * SLOT_SIZE)[0]
                == producer_id
            ):
                self._recent = (producer_id, slot)
                return slot
            at = (at + 1) % size
        return 0

    def state(self, slot: int) -> tuple[int, int, int, int]:
        """Start offset of the open transaction or -1, epoch, number of cached batches, and the last sequence
        of the newest (of no meaning without one)."""
        return _STATE.unpack_from(self._chunks[slot >> _CHUNK_BITS], (slot & _IN_CHUNK) * SLOT_SIZE)

    def batches(self, slot: int, count: int) -> Iterator[CachedBatch]:
        """The cached batches, newest first."""
        chunk, index = divmod(slot, SLOTS_PER_CHUNK)
        at = index * SLOT_SIZE + _BATCHES_AT
        for _ in range(count):
            yield CachedBatch._make(_BATCH.unpack_from(self._chunks[chunk], at))
            at += _BATCH.size

    def entry(self, slot: int) -> ProducerEntry:
        return _entry(self._chunks, slot)

    def current_txn_start_offset(self, slot: int) -> int:
        chunk, index = divmod(slot, SLOTS_PER_CHUNK)
        offset: int = _ID.unpack_from(self._chunks[chunk], index * SLOT_SIZE + _TXN_AT)[0]
        return offset

    def set_current_txn_start_offset(self, slot: int, offset: int) -> None:
        chunk, index = divmod(slot, SLOTS_PER_CHUNK)
        _ID.pack_into(self._writable(chunk), index * SLOT_SIZE + _TXN_AT, offset)

    def open_transactions(self) -> list[tuple[int, int]]:
        """(first offset, producer id) of each that is open, in any order."""
        if not self._index:
            return []
        slots = chain.from_iterable(map(_SLOT_TXN.iter_unpack, self._chunks))
        return [(offset, producer_id) for producer_id, offset in slots if offset >= 0 <= producer_id]

    def last_append_ms(self, slot: int) -> int:
        chunk, index = divmod(slot, SLOTS_PER_CHUNK)
        last_append_ms: int = _ID.unpack_from(self._chunks[chunk], index * SLOT_SIZE + _APPEND_AT)[0]
        return last_append_ms

    def add(self, producer_id: int, epoch: int) -> int:
        """A slot for a producer that has none, without batches, latest in the order."""
        slot = self._first_free
        if slot:
            self._first_free = self._next[slot]
        else:
            slot = len(self._next)
            self._next.append(0)
            self._previous.append(0)
            if slot == len(self._chunks) * SLOTS_PER_CHUNK:
                self._chunks.append(bytearray(_FREE_CHUNK))
        chunk, index = divmod(slot, SLOTS_PER_CHUNK)
        _HEAD.pack_into(self._writable(chunk), index * SLOT_SIZE, producer_id, 0, NO_OFFSET, -1, epoch, 0)
        self._index.add(producer_id, slot, len(self._next) - 1)
        if self.highest_producer_id < producer_id < FOREIGN_IDS_FROM:
            self.highest_producer_id = producer_id
        self._link_latest(slot)
        return slot

    def push(self, slot: int, epoch: int, batch: tuple[int, int, int, int], last_append_ms: int) -> None:
        """Remember `batch` (a CachedBatch's fields) as the newest; another epoch forgets the older ones."""
        number = slot >> _CHUNK_BITS
        chunk = self._chunks[number] if self._frozen is None else self._writable(number)
        at = (slot & _IN_CHUNK) * SLOT_SIZE
        txn, coordinator_epoch, stored_epoch, count, older = _BEFORE_PUSH.unpack_from(chunk, at)
        count = min(count + 1, CACHED_BATCHES) if stored_epoch == epoch else 1
        _PUSHED.pack_into(
            chunk, at + _APPEND_AT, last_append_ms, txn, coordinator_epoch, epoch, count, *batch, older
        )
        if self._previous[0] != slot:
            self._unlink(slot)
            self._link_latest(slot)

    def mark(
        self, slot: int, epoch: int, coordinator_epoch: int, txn_start_offset: int, last_append_ms: int
    ) -> None:
        """A coordinator wrote for the producer, whose open transaction now begins there (-1 for none).

        Another epoch of the producer forgets its batches.
        """
        number, at = slot >> _CHUNK_BITS, (slot & _IN_CHUNK) * SLOT_SIZE
        _, stored_epoch, count, _ = self.state(slot)
        _HEAD.pack_into(
            self._writable(number),
            at,
            self.producer_id(slot),
            last_append_ms,
            txn_start_offset,
            coordinator_epoch,
            epoch,
            count if stored_epoch == epoch else 0,
        )
        self._unlink(slot)
        self._link_latest(slot)

    def remove(self, producer_id: int) -> None:
        slot = self.find(producer_id)
        self._recent = (NO_PRODUCER_ID, 0)
        self._index.remove(producer_id, slot)
        chunk, index = divmod(slot, SLOTS_PER_CHUNK)
        _ID.pack_into(self._writable(chunk), index * SLOT_SIZE, NO_PRODUCER_ID)
        self._unlink(slot)
        self._next[slot] = self._first_free
        self._first_free = slot

    def in_idle_order(self) -> Iterator[int]:
        """Live slots, the longest idle first. The slot just given may be removed; nothing else may change."""
        slot = self._next[0]
        while slot:
            following = self._next[slot]
            yield slot
            slot = following

    def in_latest_order(self) -> Iterator[int]:
        """Live slots, the latest appended first. Nothing may change meanwhile."""
        slot = self._previous[0]
        while slot:
            yield slot
            slot = self._previous[slot]

    def latest_append_ms(self) -> int:
        """Time of the last append by anyone, or 0."""
        slot = self._previous[0]
        return self.last_append_ms(slot) if slot else 0

    def producer_id(self, slot: int) -> int:
        chunk, index = divmod(slot, SLOTS_PER_CHUNK)
        producer_id: int = _ID.unpack_from(self._chunks[chunk], index * SLOT_SIZE)[0]
        return producer_id

    def freeze(self) -> FrozenTable:
        """The table as it is now; until `thaw`, changes go to copies of the chunks they touch.

        Several may be held at once, each with a `thaw` of its own.
        """
        frozen = self.view()
        self._frozen = frozen.chunks
        self._freezes += 1
        return frozen

    def view(self) -> FrozenTable:
        """The table as it is until the next change, for use within one step of the loop."""
        return FrozenTable(
            len(self._index), self._first_free, self._previous[:], self._next[:], list(self._chunks)
        )

    def thaw(self) -> None:
        """End one use that began with `freeze`."""
        self._freezes -= 1
        if not self._freezes:
            self._frozen = None

    def _writable(self, number: int) -> bytearray:
        chunk = self._chunks[number]
        frozen = self._frozen
        is_frozen = frozen is not None and number < len(frozen) and frozen[number] is chunk
        if is_frozen or chunk is _WITHOUT_PRODUCERS:
            chunk = bytearray(chunk)
            self._chunks[number] = chunk
        return chunk

    def _unlink(self, slot: int) -> None:
        previous, following = self._previous[slot], self._next[slot]
        self._next[previous] = following
        self._previous[following] = previous

    def _link_latest(self, slot: int) -> None:
        latest = self._previous[0]
        self._next[latest] = slot
        self._previous[slot] = latest
        self._next[slot] = 0
        self._previous[0] = slot
