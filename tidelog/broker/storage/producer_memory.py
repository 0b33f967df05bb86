"""The producers that wrote to one partition and their last batches, for the rules in `producer_state`.

Owns what is remembered of each producer (epoch, the last five batches, the time of its last append by the
broker's clock), and which producers are forgotten.

Invariants:
- `check` changes nothing; `apply` is called only for what the log holds, so state is never ahead of the log;
- replaying the headers of the log through `apply` gives the same state as the appends;
- producers that wrote lately are in `_recent` until the table is read. Then their batches are packed into the
  table, of each producer only the last five;
- a producer is forgotten only by expiry, by the limit (longest idle first, never with an open transaction) or
  by `forget`; never because its records were deleted;
- a producer that the limit evicted may send a stored batch again: its id and epoch are kept for a while, over
  restarts too.

Pure: takes facts and now_ms. Source: Kafka's ProducerStateManager.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from tidelog.broker.storage.open_transactions import EndedTransaction, OpenTransactions
from tidelog.broker.storage.producer_state import (
    APPEND,
    Append,
    ProducerRules,
    Refusal,
    Verdict,
    check,
    check_marker,
    check_own,
    check_unknown,
)
from tidelog.broker.storage.producer_table import (
    CACHED_BATCHES,
    FOREIGN_IDS_FROM,
    FrozenTable,
    ProducerEntry,
    ProducerTable,
)
from tidelog.protocol.records import BatchHeader, EndTransactionMarker
from tidelog.protocol.records.header import CONTROL_BIT, TRANSACTIONAL_BIT
from tidelog.protocol.sequences import decrement_sequence, increment_sequence
from tidelog.protocol.types import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP

_EXPIRED_AT_ONCE: Final = 1_000
_EVICTED_AT_ONCE: Final = 100
_NOT_PLAIN: Final = CONTROL_BIT | TRANSACTIONAL_BIT
_MOST_RECENT: Final = 1_024
"""Packing this many takes a few milliseconds."""
_EVICTED_KEPT_SHARE: Final = 8
"""One evicted producer is remembered per this many places for producers."""
_EVICTED_KEPT_AT_LEAST: Final = 1_000


class _Recent:
    """A producer that wrote since the table was last looked at, and its batches since then: five at most."""

    __slots__ = ("batches", "epoch", "last_append_ms", "mode", "next_sequence")

    def __init__(self, epoch: int, mode: int = 0) -> None:
        self.epoch = epoch
        self.mode = mode
        """TRANSACTIONAL_BIT while it has a transaction open, and so sends only batches with that bit."""
        self.batches: deque[tuple[int, int, int, int]] = deque(maxlen=CACHED_BATCHES)
        """Next sequence, and a CachedBatch's other fields."""
        self.next_sequence = 0
        self.last_append_ms = 0


_NOBODY: Final = (int(NO_PRODUCER_ID), _Recent(NO_PRODUCER_EPOCH))


class ProducerStates:
    """Every producer known to one partition.

    `next_producer_id` gives the first id that was never issued: a batch under that or a later id can only be
    a mistake or an attack.
    """

    def __init__(
        self,
        rules: ProducerRules,
        next_producer_id: Callable[[], int],
        restored: FrozenTable | None = None,
        now_ms: int = 0,
    ) -> None:
        """The producers of `restored` are as old at `now_ms` as when it was taken. Time without a broker
        makes no producer idle, because it looks the same as a changed clock. Raises ValueError when
        `restored` contradicts itself."""
        self.rules = rules
        self.evicted = 0
        """How many producers the limit evicted since the start."""
        self.changes = 0
        """How many changes came without a batch, so that the end of the log does not show them."""
        self._evicted_epochs: OrderedDict[int, int] = OrderedDict(restored.evicted if restored else {})
        self._highest_evicted = max(filter(FOREIGN_IDS_FROM.__gt__, self._evicted_epochs), default=-1)
        self._next_producer_id = next_producer_id
        self._table = ProducerTable() if restored is None else ProducerTable.from_frozen(restored)
        self.transactions = OpenTransactions(self._table.open_transactions())
        self._recent: dict[int, _Recent] = {}
        """By producer id, in the order of the last append; all others appended before all of these."""
        self._latest = _NOBODY
        """The last of `_recent`, which mostly appends the next batch too; `_NOBODY` while that is empty."""
        self._clock_ms = max(restored.clock_ms, self._table.latest_append_ms()) if restored else 0
        self._ahead_ms = self._clock_ms - now_ms if self._clock_ms else 0

    def __len__(self) -> int:
        return len(self._table)

    @property
    def clock_ms(self) -> int:
        """The time by which they grow old, as of the last append or expiry."""
        return self._clock_ms

    @property
    def highest_producer_id(self) -> int:
        """The highest that was ever seen here, as far as it is known, or -1."""
        return max(self._table.highest_producer_id, self._highest_evicted)

    def check(self, header: BatchHeader) -> Verdict:
        """What to do with a batch that carries a producer id and passed every check that needs no state."""
        _, _, _, _, _, attributes, _, _, _, producer_id, epoch, base_sequence, _ = header
        recent = self._recent.get(producer_id)
        if recent is not None:
            is_next = recent.next_sequence == base_sequence and recent.epoch == epoch
            if is_next and attributes & TRANSACTIONAL_BIT == recent.mode:
                return APPEND
            self._settle()
        slot = self._table.find(producer_id)
        if not slot:
            evicted_epoch = self._evicted_epochs.get(producer_id, -1)
            return check_unknown(header, self._next_producer_id(), evicted_epoch, self.rules)
        return check(header, self._table, slot, self.rules)

    def next_sequence(self, sent: BatchHeader) -> int | None:
        """The sequence with which the next batch of this producer has to begin, if its epoch is not an old
        one; None if no batch of it is stored."""
        producer_id, epoch = sent.producer_id, sent.producer_epoch
        self._settle()
        slot = self._table.find(producer_id)
        if not slot:
            is_issued = producer_id < self._next_producer_id()
            return 0 if is_issued and epoch > self._evicted_epochs.get(producer_id, -1) else None
        _, known_epoch, count, last_sequence = self._table.state(slot)
        return increment_sequence(last_sequence, 1) if epoch == known_epoch and count else 0

    def apply(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Remember a batch that the log holds from `base_offset` on; one without a producer id does nothing,
        and neither does a control batch: see `apply_marker`.

        `now_ms` is the broker's clock at the append; for replayed batches, the time of the replay.
        """
        # One unpacking costs less than six look-ups.
        _, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, base_sequence, _ = header
        if producer_id < 0:
            return
        if attributes & _NOT_PLAIN:
            if attributes & CONTROL_BIT:
                return
            if base_sequence < 0:
                self._apply_own(producer_id, epoch, base_offset, now_ms)
                return
            self._begin(producer_id, epoch, base_offset)
        latest_id, recent = self._latest
        if latest_id != producer_id:
            recent = self._make_latest(producer_id, epoch)
        if recent.epoch != epoch:
            recent.epoch = epoch
            recent.batches.clear()
        recent.next_sequence = next_sequence = increment_sequence(base_sequence, delta + 1)
        recent.batches.append((next_sequence, delta, base_offset + delta, timestamp))
        # As `_advance`, without its call.
        moment = now_ms + self._ahead_ms
        if moment > self._clock_ms:
            self._clock_ms = moment
        recent.last_append_ms = self._clock_ms

    def apply_run(self, headers: Sequence[BatchHeader], base_offset: int, now_ms: int) -> None:
        """`apply` for plain batches of one record each, which one producer sent one after the other."""
        _, _, _, _, _, _, _, _, _, producer_id, epoch, sequence, _ = headers[0]
        latest_id, recent = self._latest
        if latest_id != producer_id:
            recent = self._make_latest(producer_id, epoch)
        if recent.epoch != epoch:
            recent.epoch = epoch
            recent.batches.clear()
        offset = base_offset
        for header in headers:
            sequence = increment_sequence(sequence, 1)
            recent.batches.append((sequence, 0, offset, header.max_timestamp))
            offset += 1
        recent.next_sequence = sequence
        recent.last_append_ms = self._advance(now_ms)

    def _begin(self, producer_id: int, epoch: int, base_offset: int) -> None:
        """Remember that a transactional batch begins there."""
        latest_id, recent = self._latest
        if latest_id != producer_id:
            recent = self._make_latest(producer_id, epoch)
        if not recent.mode:
            recent.mode = TRANSACTIONAL_BIT
            self.transactions.begin(producer_id, base_offset)
            self._table.set_current_txn_start_offset(self._table.find(producer_id), base_offset)

    def check_own(self, header: BatchHeader) -> Append | Refusal:
        """What to do with records that a coordinator writes in a producer's transaction."""
        return check_own(header, self.entry(header.producer_id))

    def _apply_own(self, producer_id: int, epoch: int, base_offset: int, now_ms: int) -> None:
        """Remember records that a coordinator wrote in a producer's transaction: no sequence changes."""
        slot = self._settled_slot(producer_id, epoch)
        self.transactions.begin(producer_id, base_offset)
        known = self._table.entry(slot)
        began_at = base_offset if known.current_txn_start_offset < 0 else known.current_txn_start_offset
        self._table.mark(slot, epoch, known.coordinator_epoch, began_at, self._advance(now_ms))

    def check_marker(self, header: BatchHeader, marker: EndTransactionMarker) -> Append | Refusal:
        """What to do with the control batch by which a coordinator ends a producer's transaction."""
        return check_marker(header, marker, self.entry(header.producer_id))

    def apply_marker(
        self, header: BatchHeader, marker: EndTransactionMarker, marker_offset: int, now_ms: int
    ) -> EndedTransaction | None:
        """Remember that the log holds this control batch there; `now_ms` as in `apply`.

        Returns the transaction that it aborted, if any.
        """
        slot = self._settled_slot(header.producer_id, header.producer_epoch)
        ms = self._advance(now_ms)
        self._table.mark(slot, header.producer_epoch, marker.coordinator_epoch, NO_OFFSET, ms)
        ended = self.transactions.end(header.producer_id, marker_offset)
        return None if marker.is_commit else ended

    def _settled_slot(self, producer_id: int, epoch: int) -> int:
        """The slot of a producer in the table; a new one begins with `epoch`."""
        self._settle()
        slot = self._table.find(producer_id)
        if not slot:
            self._make_room()
            slot = self._table.add(producer_id, epoch)
        return slot

    def _make_latest(self, producer_id: int, epoch: int) -> _Recent:
        """What `_recent` holds of a producer, from now on as the last one; a new one begins with `epoch`."""
        recent = self._recent.pop(producer_id, None)
        if recent is None:
            if len(self._recent) >= _MOST_RECENT:
                self._settle()
            if not self._table.find(producer_id):
                self._make_room()
                self._table.add(producer_id, epoch)
            mode = TRANSACTIONAL_BIT if producer_id in self.transactions else 0
            recent = _Recent(epoch, mode)
        self._recent[producer_id] = recent
        self._latest = (producer_id, recent)
        return recent

    def _settle(self) -> None:
        """Pack what `_recent` holds into the table, in the order of the appends."""
        table = self._table
        for producer_id, recent in self._recent.items():
            slot = table.find(producer_id)
            for next_sequence, delta, last_offset, timestamp in recent.batches:
                batch = (decrement_sequence(next_sequence, 1), delta, last_offset, timestamp)
                table.push(slot, recent.epoch, batch, recent.last_append_ms)
        self._recent.clear()
        self._latest = _NOBODY

    def _advance(self, now_ms: int) -> int:
        """The producers' own time: it advances with the caller's clock, and never goes back."""
        moment = now_ms + self._ahead_ms
        if moment > self._clock_ms:
            self._clock_ms = moment
        return self._clock_ms

    def _make_room(self) -> None:
        # Bounded, because after a much lower limit one append must not take seconds.
        excess = min(len(self._table) + 1 - self.rules.max_producers, _EVICTED_AT_ONCE)
        if excess <= 0:
            return
        self._settle()
        for slot in self._table.in_idle_order():
            if self._table.current_txn_start_offset(slot) < 0:
                self._evict(slot)
                excess -= 1
                if excess <= 0:
                    return

    def _evict(self, slot: int) -> None:
        _, epoch, _, _ = self._table.state(slot)
        producer_id = self._table.producer_id(slot)
        self._table.remove(producer_id)
        self.evicted += 1
        self._evicted_epochs[producer_id] = epoch
        self._evicted_epochs.move_to_end(producer_id)
        kept = max(self.rules.max_producers // _EVICTED_KEPT_SHARE, _EVICTED_KEPT_AT_LEAST)
        while len(self._evicted_epochs) > kept:
            self._evicted_epochs.popitem(last=False)

    def expire(self, now_ms: int, at_most: int = _EXPIRED_AT_ONCE) -> int:
        """Forget producers idle for `expiration_ms` without an open transaction; returns how many.

        When it returns `at_most`, more may wait: call again after a step of the loop.
        """
        self._settle()
        oldest_to_keep = self._advance(now_ms) - self.rules.expiration_ms
        expired = 0
        for slot in self._table.in_idle_order():
            if expired == at_most or self._table.last_append_ms(slot) > oldest_to_keep:
                break
            if self._table.current_txn_start_offset(slot) < 0:
                self._table.remove(self._table.producer_id(slot))
                expired += 1
        self.changes += expired
        return expired

    def forget(self, producer_id: int) -> bool:
        """Drop one producer, as if it had expired; False when it is not known."""
        self._settle()
        if not self._table.find(producer_id):
            return False
        self._table.remove(producer_id)
        self.transactions.forget(producer_id)
        self.changes += 1
        return True

    def set_next_sequence(
        self, producer_id: int, producer_epoch: int, next_sequence: int, now_ms: int
    ) -> None:
        """Expect `next_sequence` of a producer, known or not, as if all before it had been written elsewhere.

        For tests of clients (`tidelog fault sequence`): its window then is one batch without a place in the
        log, at offset -1. It must not have a transaction open.
        """
        known = self.entry(producer_id)
        self.forget(producer_id)
        self._make_room()
        slot = self._table.add(producer_id, producer_epoch)
        timestamp = NO_TIMESTAMP if known is None else known.last_timestamp
        batch = (decrement_sequence(next_sequence, 1), 0, NO_OFFSET, timestamp)
        self._table.push(slot, producer_epoch, batch, self._advance(now_ms))
        self.changes += 1

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether this producer has a transaction open in this epoch, so that its next batch begins none."""
        if producer_id not in self.transactions:
            return False
        known = self.entry(producer_id)
        return known is not None and known.producer_epoch == epoch

    def entry(self, producer_id: int) -> ProducerEntry | None:
        self._settle()
        slot = self._table.find(producer_id)
        return self._table.entry(slot) if slot else None

    def entries(self) -> Iterator[ProducerEntry]:
        """Every producer, the longest idle first. Do not change the states while reading it."""
        self._settle()
        return map(self._table.entry, self._table.in_idle_order())

    def latest(self) -> Iterator[ProducerEntry]:
        """Every producer, the latest appended first. Do not change the states while reading it."""
        self._settle()
        return map(self._table.entry, self._table.in_latest_order())

    def idle_ms(self, entry: ProducerEntry, now_ms: int) -> int:
        """How long ago a producer wrote; `now_ms` as in `apply`."""
        return max(now_ms + self._ahead_ms - entry.last_append_ms, 0)

    def freeze(self) -> FrozenTable:
        """The state as it is now, safe to read in another thread until `thaw`."""
        self._settle()
        return replace(self._table.freeze(), clock_ms=self._clock_ms, evicted=dict(self._evicted_epochs))

    def view(self) -> FrozenTable:
        """The state as it is until the next change."""
        self._settle()
        return replace(self._table.view(), clock_ms=self._clock_ms, evicted=dict(self._evicted_epochs))

    def thaw(self) -> None:
        self._table.thaw()
