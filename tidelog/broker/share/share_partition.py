"""One partition as one share group consumes it: the state of each record between two offsets, pure.

Owns `SharePartition`: which records are available, acquired by whom and until when, acknowledged or archived,
and how often each was delivered. Neighbours of one state are one run, so memory follows the number of runs.

Invariants:
- the runs cover [start_offset, end_offset) without gaps. Before it, all is done; from its end on, nothing was
  acquired;
- an acquired record belongs to one member until it acknowledges it, or its lock ends;
- an acknowledgement holds as a whole or not at all. Until its `Update` is settled, its records have their new
  state but are neither acquired nor acknowledged by anyone; an update that is undone gives them back;
- a record that was delivered as often as the limit says is archived instead of made available;
- in a group with dead letters, what is rejected, and what reached that limit, is archived in two steps, both
  stored: a leader that begins between them finds which dead letters are to be written;
- offsets without a record to deliver (compaction, markers, aborted transactions) are archived when they are
  read.

Pure. Source: KIP-932, KIP-1191, KIP-1222, Kafka's SharePartition and InFlightState.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from tidelog.broker.coordinator.share_states.state import StateBatch
from tidelog.protocol.errors import ApiError, ErrorCode


class RecordState(IntEnum):
    """The value is the one in the records of the state's topic. ARCHIVING: its dead letter is not written."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class AcknowledgeType(IntEnum):
    """What a member says about a record. GAP: there is none at this offset."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


_ACKNOWLEDGE_TYPES = frozenset(map(int, AcknowledgeType))
_DONE = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
_STATE_AFTER: Mapping[int, RecordState] = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVING,
}


class Acquired(NamedTuple):
    """Records that a member got; `last` is inclusive."""

    first: int
    last: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """Of [first, last]: one type for all of them, or one for each."""

    first: int
    last: int
    types: Sequence[int]


class DeadLetters(NamedTuple):
    """Records of which dead letters are to be written; `last` is inclusive. Not rejected: delivered as often
    as the limit says."""

    first: int
    last: int
    delivery_count: int
    is_rejected: bool


class Limits(NamedTuple):
    """What the settings of the group and the broker say."""

    max_delivery_count: int
    max_record_locks: int
    lock_duration_ms: int
    may_renew: bool = True
    has_dead_letters: bool = False


class _Run(NamedTuple):
    """The state of neighbours. `update`: the update that is not settled; 0 for none."""

    state: RecordState
    delivery_count: int
    member_id: str = ""
    deadline_ms: int = 0
    update: int = 0
    is_rejected: bool = False

    @property
    def is_available(self) -> bool:
        return self.state is RecordState.AVAILABLE and not self.update

    @property
    def is_locked(self) -> bool:
        """Whether a member holds it, and may acknowledge it."""
        return self.state is RecordState.ACQUIRED and not self.update


class Update(NamedTuple):
    """What is to be stored, also of records before the start offset."""

    number: int
    batches: Sequence[StateBatch]
    before: Sequence[tuple[int, int, _Run]] = ()
    """[first, end) -> what it was."""


_Change = tuple[int, int, _Run, _Run]
"""[first, end) -> what it was, and what it is."""
_GAP = _Run(RecordState.ARCHIVED, 0)
_NEW = _Run(RecordState.AVAILABLE, 0)


class SharePartition:
    """Operations take `now_ms` last, of a clock that is never set. Change `limits` at any time."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch], limits: Limits) -> None:
        """As it was stored. Offsets between the batches were acquired by someone who is gone."""
        self.limits = limits
        self.start_offset = start_offset
        self.end_offset = start_offset
        self._firsts: list[int] = []
        self._runs: list[_Run] = []
        self._available_count = 0
        self._done_count = 0
        self._last_update = 0
        for batch in sorted(batches):
            self._extend(batch.first, _NEW)
            state = RecordState(batch.state) if batch.state in _STORED_STATES else RecordState.ARCHIVED
            # As Kafka guesses: the reason is not stored.
            is_rejected = state is RecordState.ARCHIVING and batch.delivery_count < limits.max_delivery_count
            self._extend(batch.last + 1, _Run(state, batch.delivery_count, is_rejected=is_rejected))
        self._advance()

    # Queries

    @property
    def in_flight_count(self) -> int:
        """The records between start and end that are not done."""
        return self.end_offset - self.start_offset - self._done_count

    @property
    def run_count(self) -> int:
        return len(self._runs)

    @property
    def can_acquire(self) -> bool:
        """Whether there is something to read for members."""
        return bool(self._available_count) or self.in_flight_count < self.limits.max_record_locks

    @property
    def next_fetch_offset(self) -> int:
        """Where to read from: the first available record, or the end."""
        if self._available_count:
            for first, _, run in self.runs():
                if run.is_available:
                    return first
        return self.end_offset

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first lock ends."""
        return min((run.deadline_ms for run in self._runs if run.is_locked), default=None)

    def runs(self) -> Iterator[tuple[int, int, _Run]]:
        """(first, end, run) from the start on."""
        for index, run in enumerate(self._runs):
            yield self._firsts[index], self._end_of(index), run

    # Acquiring

    def acquire(
        self,
        member_id: str,
        read_from: int,
        read_to: int,
        batches: Iterable[tuple[int, ...]],
        max_records: int,
        *,
        is_strict: bool,
        batch_size: int,
        now_ms: int,
    ) -> list[Acquired]:
        """Let a member have what was read, [read_from, read_to), as long as it is available.

        `batches`: the first and last offset of each batch with records to deliver, ascending; other offsets
        of what was read are archived. `max_records` may be exceeded up to the end of a batch, unless
        `is_strict`. `batch_size`: into how many records the answer is divided, at the ends of batches.
        """
        if read_from > self.end_offset:  # What lies between was not read.
            return []
        deadline_ms = now_ms + self.limits.lock_duration_ms
        left = max_records
        taken: list[Acquired] = []
        position = max(read_from, self.start_offset)
        for first, last in batches:
            if left <= 0:
                break
            if position < first:
                self._take(position, first, _GAP)
                position = first
            if position >= self.end_offset and self.in_flight_count >= self.limits.max_record_locks:
                break
            end = last + 1
            for found_first, found_end, run in self._available(position, end):
                if is_strict:
                    found_end = min(found_end, found_first + max(left, 0))
                    if found_first == found_end:
                        break
                held = _Run(RecordState.ACQUIRED, run.delivery_count + 1, member_id, deadline_ms)
                self._give(found_first, found_end, held)
                left -= found_end - found_first
                _append(taken, Acquired(found_first, found_end - 1, held.delivery_count), batch_size)
            if is_strict and left <= 0:
                break
            position = max(position, end)
        else:
            self._take(position, read_to, _GAP)
        self._advance()
        return taken

    def _available(self, first: int, end: int) -> list[tuple[int, int, _Run]]:
        """The parts of [first, end) that may be acquired, also those that are new."""
        first = max(first, self.start_offset)
        found = []
        for run_first, run_end, run in self._between(first, min(end, self.end_offset)):
            if run.is_available:
                found.append((max(run_first, first), min(run_end, end), run))
        if end > self.end_offset:
            found.append((max(first, self.end_offset), end, _NEW))
        return found

    def _take(self, first: int, end: int, run: _Run) -> None:
        """Give what is available of [first, end) this state."""
        for found_first, found_end, _ in self._available(first, end):
            self._give(found_first, found_end, run)

    def _give(self, first: int, end: int, run: _Run) -> None:
        """Give [first, end), which is in flight or new as a whole, this state."""
        if first == self.end_offset:
            self._extend(end, run)
        else:
            self._set(first, end, run)

    # Acknowledging

    def acknowledge(self, member_id: str, acknowledgements: Iterable[Acknowledgement], now_ms: int) -> Update:
        """What to store; then `settle` it, or `undo` it.

        Raises ApiError: INVALID_REQUEST, and INVALID_RECORD_STATE for a record that the member does not hold.
        Then nothing changed.
        """
        number = self._last_update + 1
        changes: list[_Change] = []
        seen_end = 0
        for first, end, kind in list(_stretches(acknowledgements)):
            if first < seen_end:
                raise ApiError(ErrorCode.INVALID_RECORD_STATE, f"offset {first} is acknowledged twice")
            seen_end = end
            changes += self._acknowledged(member_id, max(first, self.start_offset), end, kind, now_ms, number)
        return self._changed(number, changes)

    def _acknowledged(
        self, member_id: str, first: int, end: int, kind: int, now_ms: int, number: int
    ) -> Iterator[_Change]:
        if kind == AcknowledgeType.RENEW and not self.limits.may_renew:
            raise ApiError(
                ErrorCode.INVALID_RECORD_STATE, "Renewing acquisition locks is not enabled for the group."
            )
        if end > self.end_offset:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"offset {end - 1} was not delivered: the last one that was is {self.end_offset - 1}",
            )
        for run_first, run_end, run in self._between(first, end):
            run_first, run_end = max(run_first, first), min(run_end, end)
            if not run.is_locked or run.member_id != member_id:
                raise ApiError(
                    ErrorCode.INVALID_RECORD_STATE,
                    f"the member does not hold offset {run_first}: it is {run.state.name.lower()}"
                    + (" by another member" if run.is_locked else ""),
                )
            if kind == AcknowledgeType.RENEW:
                after = run._replace(deadline_ms=now_ms + self.limits.lock_duration_ms)
            else:
                after = self._released(run, _STATE_AFTER[kind], number)
            yield run_first, run_end, run, after

    def _released(self, run: _Run, state: RecordState, number: int) -> _Run:
        is_rejected = state is RecordState.ARCHIVING
        if state is RecordState.AVAILABLE and run.delivery_count >= self.limits.max_delivery_count:
            state = RecordState.ARCHIVING
        if state is RecordState.ARCHIVING and not self.limits.has_dead_letters:
            state, is_rejected = RecordState.ARCHIVED, False
        return _Run(state, run.delivery_count, update=number, is_rejected=is_rejected)

    def release(self, member_id: str) -> Update:
        """The member's session ended: what it holds becomes available; then as `acknowledge`."""
        return self._freed(lambda run: run.member_id == member_id)

    def expire(self, now_ms: int) -> Update:
        """What locks ended on becomes available at once; what is to be stored needs no `settle`."""
        update = self._freed(lambda run: run.deadline_ms <= now_ms)
        self.settle(update)
        return update

    def _freed(self, is_freed: Callable[[_Run], bool]) -> Update:
        """Make available what members hold in these runs."""
        number = self._last_update + 1
        held = [each for each in self.runs() if each[2].is_locked and is_freed(each[2])]
        return self._changed(
            number,
            [(*each, self._released(each[2], RecordState.AVAILABLE, number)) for each in held],
        )

    # Dead letters

    def dead_letters(self, first: int, last: int) -> Iterator[DeadLetters]:
        """Those that are to be written of these records; of an update, once it is stored."""
        for run_first, run_end, run in self._between(first, last + 1):
            if run.state is RecordState.ARCHIVING and not run.update:
                low, high = max(run_first, first), min(run_end - 1, last)
                yield DeadLetters(low, high, run.delivery_count, run.is_rejected)

    def archive(self, written: Iterable[DeadLetters]) -> Update:
        """Their dead letters are written, or cannot be; then as `expire`."""
        number = self._last_update + 1
        changes: list[_Change] = []
        for letters in written:
            for first, last, delivery_count, _ in self.dead_letters(letters.first, letters.last):
                run = _Run(RecordState.ARCHIVED, delivery_count, update=number)
                changes.append((first, last + 1, run, run))
        update = self._changed(number, changes)
        self.settle(update)
        return update

    def _changed(self, number: int, changes: Iterable[_Change]) -> Update:
        """Make these changes, which do not overlap; the update has those that are to be stored."""
        self._last_update = number
        batches: list[StateBatch] = []
        before: list[tuple[int, int, _Run]] = []
        for first, end, old, new in changes:
            self._set(first, end, new)
            if new.update:
                before.append((first, end, old))
                _append_state(batches, StateBatch(first, end - 1, new.state, new.delivery_count))
        return Update(number, batches, before)

    def after(self, updates: Iterable[Update]) -> tuple[int, int]:
        """The start offset, and how many records are done after it, once these are settled: all that are not
        settled yet."""
        numbers = {0, *(update.number for update in updates)}
        start_offset, done_count = self.start_offset, self._done_count
        for first, end, run in self.runs():
            if run.state not in _DONE or run.update not in numbers:
                break
            start_offset = end
            done_count -= end - first
        return start_offset, done_count

    def settle(self, update: Update) -> None:
        """The update is stored."""
        self._end(update, is_undone=False)
        self._advance()

    def undo(self, update: Update) -> None:
        """The update was refused: its records are as they were. Locks that ended meanwhile end with the next
        `expire`."""
        self._end(update, is_undone=True)

    def _end(self, update: Update, *, is_undone: bool) -> None:
        for first, end, old in update.before:
            first = max(first, self.start_offset)
            parts = [
                (max(run_first, first), min(run_end, end), run)
                for run_first, run_end, run in self._between(first, end)
                if run.update == update.number
            ]
            for part_first, part_end, run in parts:
                self._set(part_first, part_end, old if is_undone else run._replace(update=0))

    # The log

    def log_begins_at(self, log_start_offset: int) -> None:
        """Records before it are deleted."""
        if log_start_offset > self.start_offset:
            self._drop_before(log_start_offset)
            self._advance()

    # Runs

    def _between(self, first: int, end: int) -> list[tuple[int, int, _Run]]:
        """The runs that overlap [first, end), whole."""
        if first >= end or not self._runs:
            return []
        low = max(0, bisect_right(self._firsts, first) - 1)
        found = []
        while low < len(self._runs) and self._firsts[low] < end:
            found.append((self._firsts[low], self._end_of(low), self._runs[low]))
            low += 1
        return found

    def _end_of(self, index: int) -> int:
        return self._firsts[index + 1] if index + 1 < len(self._firsts) else self.end_offset

    def _count(self, run: _Run, count: int) -> None:
        if run.is_available:
            self._available_count += count
        elif run.state in _DONE:
            self._done_count += count

    def _extend(self, end: int, run: _Run) -> None:
        """Add [end_offset, end) with this state."""
        if end <= self.end_offset:
            return
        self._count(run, end - self.end_offset)
        if not self._runs or self._runs[-1] != run:
            self._firsts.append(self.end_offset)
            self._runs.append(run)
        self.end_offset = end

    def _set(self, first: int, end: int, run: _Run) -> None:
        """Give [first, end), which lies within one run, this state."""
        low = bisect_right(self._firsts, first) - 1
        high = low + 1
        old, old_first, old_end = self._runs[low], self._firsts[low], self._end_of(low)
        if old == run:
            return
        self._count(old, first - end)
        self._count(run, end - first)
        parts = [(first, run)]
        if old_first < first:
            parts.insert(0, (old_first, old))
        elif low and self._runs[low - 1] == run:
            low -= 1
            parts = [(self._firsts[low], run)]
        if end < old_end:
            parts.append((end, old))
        elif high < len(self._runs) and self._runs[high] == run:
            high += 1
        self._firsts[low:high], self._runs[low:high] = [list(each) for each in zip(*parts, strict=True)]

    def _drop_before(self, offset: int) -> None:
        kept = 0
        while kept < len(self._runs) and self._end_of(kept) <= offset:
            self._count(self._runs[kept], self._firsts[kept] - self._end_of(kept))
            kept += 1
        if kept < len(self._runs) and self._firsts[kept] < offset:
            self._count(self._runs[kept], self._firsts[kept] - offset)
            self._firsts[kept] = offset
        del self._firsts[:kept], self._runs[:kept]
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset)

    def _advance(self) -> None:
        """Move the start past what is done."""
        start_offset = self.start_offset
        for _, end, run in self.runs():
            if run.state not in _DONE or run.update:
                break
            start_offset = end
        if start_offset > self.start_offset:
            self._drop_before(start_offset)


_STORED_STATES = frozenset(RecordState) - {RecordState.ACQUIRED}


def _append(taken: list[Acquired], found: Acquired, batch_size: int) -> None:
    """Join it with the one before it, unless that has `batch_size` records."""
    if taken:
        last = taken[-1]
        is_next = last.last + 1 == found.first and last.delivery_count == found.delivery_count
        if is_next and last.last - last.first + 1 < batch_size:
            taken[-1] = Acquired(last.first, found.last, last.delivery_count)
            return
    taken.append(found)


def _append_state(batches: list[StateBatch], found: StateBatch) -> None:
    if batches and batches[-1].last + 1 == found.first and batches[-1][2:] == found[2:]:
        batches[-1] = batches[-1]._replace(last=found.last)
    else:
        batches.append(found)


def _stretches(acknowledgements: Iterable[Acknowledgement]) -> Iterator[tuple[int, int, int]]:
    """(first, end, type) of neighbours of one type. Raises ApiError(INVALID_REQUEST); as in Kafka not if an
    acknowledgement begins at the last offset of the one before."""
    last = -1
    for asked in acknowledgements:
        if asked.first < last:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"offset {asked.first} is acknowledged after a later one, {last}"
            )
        last = asked.last
        yield from _stretches_of(asked)


def _stretches_of(asked: Acknowledgement) -> Iterator[tuple[int, int, int]]:
    count = asked.last - asked.first + 1
    if asked.first < 0 or count < 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"expected a first offset up to the last, got {asked.first}, {asked.last}",
        )
    if len(asked.types) not in (1, count):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"expected one type, or one for each of {count} offsets, got {len(asked.types)}",
        )
    if not _ACKNOWLEDGE_TYPES.issuperset(asked.types):
        unknown = next(each for each in asked.types if each not in _ACKNOWLEDGE_TYPES)
        raise ApiError(ErrorCode.INVALID_REQUEST, f"expected an acknowledge type from 0 to 4, got {unknown}")
    if len(asked.types) == 1:
        yield asked.first, asked.last + 1, asked.types[0]
        return
    first = asked.first
    for index in range(1, count + 1):
        if index == count or asked.types[index] != asked.types[index - 1]:
            yield first, asked.first + index, asked.types[index - 1]
            first = asked.first + index
