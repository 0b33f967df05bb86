"""A share partition gives each record to one member at a time, as a model of single records does.

The model is a dictionary from offset to state, delivery count, member, deadline, unsettled update, and
whether it was rejected and waits for its dead letter."""

from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidelog.broker.coordinator.share_states.state import StateBatch
from tidelog.broker.share.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    Limits,
    RecordState,
    SharePartition,
    Update,
)
from tidelog.protocol.errors import ApiError

MEMBERS = ("first", "second")
LOCK_MS = 100
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState
DONE = (ACKNOWLEDGED, ARCHIVED)
AFTER = (ARCHIVED, ACKNOWLEDGED, AVAILABLE, ARCHIVING)


class _Model:
    """Offset -> [state, delivery count, member, deadline, unsettled update, is rejected], from the start to
    the end."""

    def __init__(self, start: int, limits: Limits) -> None:
        self.start = self.end = start
        self.limits = limits
        self.records: dict[int, list[Any]] = {}

    def advance(self) -> None:
        while self.start in self.records and self.is_settled(self.start, DONE):
            del self.records[self.start]
            self.start += 1

    def is_settled(self, offset: int, states: tuple[RecordState, ...]) -> bool:
        state, *_, update, _ = self.records[offset]
        return state in states and not update

    def free(self, offset: int) -> bool:
        return offset >= self.end or (offset >= self.start and self.is_settled(offset, (AVAILABLE,)))

    def give(self, offset: int, member: str, deadline: int) -> None:
        count = self.records[offset][1] if offset in self.records else 0
        self.records[offset] = [ACQUIRED, count + 1, member, deadline, 0, False]

    def holds(self, member: str, offset: int) -> bool:
        return offset < self.start or (
            offset < self.end and self.is_settled(offset, (ACQUIRED,)) and self.records[offset][2] == member
        )

    def release(self, offset: int, state: RecordState, update: int) -> None:
        record = self.records[offset]
        is_rejected = state is ARCHIVING and self.limits.has_dead_letters
        if state is AVAILABLE and record[1] >= self.limits.max_delivery_count:
            state = ARCHIVING
        if state is ARCHIVING and not self.limits.has_dead_letters:
            state = ARCHIVED
        record[:] = [state, record[1], "", 0, update, is_rejected]

    def dead_letters(self) -> dict[int, tuple[int, bool]]:
        """Offset -> delivery count, and whether it was rejected."""
        due = [offset for offset in self.records if self.is_settled(offset, (ARCHIVING,))]
        return {offset: (self.records[offset][1], self.records[offset][5]) for offset in due}


class SharePartitionMachine(RuleBasedStateMachine):
    @initialize(
        start=st.integers(0, 3),
        limits=st.builds(
            Limits, st.integers(1, 3), st.integers(1, 12), st.just(LOCK_MS), st.just(True), st.booleans()
        ),
    )
    def begin(self, start: int, limits: Limits) -> None:
        self.limits = limits
        self.partition = SharePartition(start, (), limits)
        self.model = _Model(start, limits)
        self.now = 0
        self.unsettled: list[tuple[Update, dict[int, list[Any]]]] = []
        self.stored: dict[int, tuple[int, int]] = {}
        self.stored_start = start

    @rule(
        member=st.sampled_from(MEMBERS),
        pieces=st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=4),
        most=st.integers(1, 6),
        is_strict=st.booleans(),
    )
    def acquire(self, member: str, pieces: list[tuple[int, bool]], most: int, is_strict: bool) -> None:
        """`pieces` of the log: how many offsets, and whether they are a batch or a gap."""
        first = read_from = self.partition.next_fetch_offset
        batches = []
        for count, is_batch in pieces:
            if is_batch:
                batches.append((first, first + count - 1))
            first += count
        has_room = self.partition.in_flight_count < self.limits.max_record_locks
        free = {offset for offset in range(read_from, first) if self.model.free(offset)}
        taken = self.partition.acquire(
            member, read_from, first, batches, most, is_strict=is_strict, batch_size=2, now_ms=self.now
        )
        got = [offset for each in taken for offset in range(each.first, each.last + 1)]
        in_batches = [offset for low, high in batches for offset in range(low, high + 1)]
        assert got == [offset for offset in in_batches if offset in free][: len(got)]
        assert not is_strict or len(got) <= most
        assert got or not has_room or not free.intersection(in_batches)
        for offset in got:
            self.model.give(offset, member, self.now + LOCK_MS)
        for offset in free.difference(got, in_batches):
            if offset < self.partition.end_offset and self._is_archived(offset):
                self.model.records[offset] = [ARCHIVED, 0, "", 0, 0, False]
        for each in taken:
            for offset in range(each.first, each.last + 1):
                assert self.model.records[offset][1] == each.delivery_count
        self.model.end = max(self.model.end, self.partition.end_offset)
        self.model.advance()

    def _is_archived(self, offset: int) -> bool:
        if offset < self.partition.start_offset:
            return True
        return any(
            first <= offset < end and run.state is ARCHIVED for first, end, run in self.partition.runs()
        )

    @rule(
        member=st.sampled_from(MEMBERS),
        first=st.integers(-1, 20),
        types=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    )
    def acknowledge(self, member: str, first: int, types: list[int]) -> None:
        self._acknowledge(member, first + self.model.start, types)

    @rule(member=st.sampled_from(MEMBERS), data=st.data())
    def acknowledge_what_is_held(self, member: str, data: st.DataObject) -> None:
        held = [offset for offset in self.model.records if self.model.holds(member, offset)]
        if held:
            first = data.draw(st.sampled_from(held))
            most = next(count for count in range(1, 6) if first + count not in held or count == 5)
            types = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=most))
            self._acknowledge(member, first, types)

    def _acknowledge(self, member: str, first: int, types: list[int]) -> None:
        offsets = range(first, first + len(types))
        is_allowed = first >= 0 and all(self.model.holds(member, offset) for offset in offsets)
        try:
            update = self.partition.acknowledge(
                member, [Acknowledgement(first, first + len(types) - 1, types)], self.now
            )
        except ApiError:
            assert not is_allowed
            return
        assert is_allowed
        before = {}
        for offset, kind in zip(offsets, types, strict=True):
            if offset < self.model.start:
                continue
            if kind == AcknowledgeType.RENEW:
                self.model.records[offset][3] = self.now + LOCK_MS
            else:
                before[offset] = list(self.model.records[offset])
                self.model.release(offset, AFTER[kind], update.number)
        self._check_update(update, before)
        self.unsettled.append((update, before))

    @rule(member=st.sampled_from(MEMBERS))
    def release(self, member: str) -> None:
        update = self.partition.release(member)
        before = {}
        for offset, record in self.model.records.items():
            if record[0] is ACQUIRED and record[2] == member and not record[4]:
                before[offset] = list(record)
                self.model.release(offset, AVAILABLE, update.number)
        self._check_update(update, before)
        self.unsettled.append((update, before))

    def _check_update(self, update: Update, before: dict[int, list[Any]]) -> None:
        told = {
            offset: (each.state, each.delivery_count)
            for each in update.batches
            for offset in range(each.first, each.last + 1)
        }
        assert told == {offset: tuple(self.model.records[offset][:2]) for offset in before}

    @rule(is_stored=st.booleans(), data=st.data())
    def settle(self, is_stored: bool, data: st.DataObject) -> None:
        if not self.unsettled:
            return
        update, before = self.unsettled.pop(data.draw(st.integers(0, len(self.unsettled) - 1)))
        if is_stored:
            self._store(update)
            self.partition.settle(update)
        else:
            self.partition.undo(update)
        for offset, old in before.items():
            if offset in self.model.records:
                if is_stored:
                    self.model.records[offset][4] = 0
                else:
                    self.model.records[offset] = old
        if is_stored:
            self.model.advance()

    def _is_done(self, offset: int, update: Update) -> bool:
        state, *_, number, _ = self.model.records[offset]
        return state in DONE and number in (0, update.number)

    def _store(self, update: Update) -> None:
        start, done_count = self.partition.after([update])
        undone = [each for each in range(self.model.start, self.model.end) if not self._is_done(each, update)]
        assert start == min(undone, default=self.model.end)
        if {0, update.number}.issuperset(record[4] for record in self.model.records.values()):
            assert done_count == self.model.end - start - len(undone)
        self.stored_start = max(self.stored_start, start)
        for each in update.batches:
            for offset in range(each.first, each.last + 1):
                self.stored[offset] = (each.state, each.delivery_count)

    @rule(elapsed=st.integers(1, LOCK_MS))
    def pass_time(self, elapsed: int) -> None:
        self.now += elapsed
        update = self.partition.expire(self.now)
        for offset, record in self.model.records.items():
            if record[0] is ACQUIRED and not record[4] and record[3] <= self.now:
                self.model.release(offset, AVAILABLE, 0)
        self._store(update)
        self.model.advance()

    @rule(first=st.integers(0, 20), count=st.integers(1, 5))
    def write_dead_letters(self, first: int, count: int) -> None:
        first += self.model.start
        letters = list(self.partition.dead_letters(first, first + count - 1))
        told = {
            offset: (each.delivery_count, each.is_rejected)
            for each in letters
            for offset in range(each.first, each.last + 1)
        }
        due = self.model.dead_letters()
        assert told == {offset: due[offset] for offset in due if first <= offset < first + count}
        update = self.partition.archive(letters)
        for offset in told:
            self.model.records[offset][0] = ARCHIVED
            self.model.records[offset][5] = False
        self._store(update)
        self.model.advance()

    @rule(moved=st.integers(-3, 6))
    def delete_records(self, moved: int) -> None:
        offset = self.model.start + moved
        self.partition.log_begins_at(offset)
        for gone in [each for each in self.model.records if each < offset]:
            del self.model.records[gone]
        self.model.start = max(self.model.start, offset)
        self.model.end = max(self.model.end, offset)
        self.model.advance()

    @rule()
    def load_again(self) -> None:
        """Whatever was stored as done stays done after another broker leads, and dead letters stay due."""
        batches = [StateBatch(offset, offset, *each) for offset, each in self.stored.items()]
        loaded = SharePartition(self.stored_start, batches, self.limits)
        done = {offset for offset, (state, _) in self.stored.items() if state in DONE}
        due = {offset for offset, (state, _) in self.stored.items() if state is ARCHIVING}
        for first, end, run in loaded.runs():
            offsets = range(first, end)
            assert run.is_available or (due if run.state is ARCHIVING else done).issuperset(offsets)
            assert not run.is_available or (due | done).isdisjoint(offsets)
        letters = loaded.dead_letters(loaded.start_offset, loaded.end_offset)
        found = {offset for each in letters for offset in range(each.first, each.last + 1)}
        assert found == {offset for offset in due if offset >= loaded.start_offset}
        assert all(
            offset < loaded.start_offset or any(first <= offset < end for first, end, _ in loaded.runs())
            for offset in done
        )

    @invariant()
    def agrees(self) -> None:
        partition, model = self.partition, self.model
        assert (partition.start_offset, partition.end_offset) == (model.start, model.end)
        seen = {
            offset: [
                run.state,
                run.delivery_count,
                run.member_id,
                run.deadline_ms,
                run.update,
                run.is_rejected,
            ]
            for first, end, run in partition.runs()
            for offset in range(first, end)
        }
        assert seen == model.records
        free = [offset for offset in model.records if model.free(offset)]
        assert partition.next_fetch_offset == min(free, default=model.end)
        in_flight = sum(each[0] not in DONE for each in model.records.values())
        assert partition.in_flight_count == in_flight
        assert partition.can_acquire == (bool(free) or in_flight < model.limits.max_record_locks)
        neighbours = [run for _, _, run in partition.runs()]
        assert all(one != next_one for one, next_one in pairwise(neighbours))


TestSharePartition = SharePartitionMachine.TestCase
TestSharePartition.settings = settings(stateful_step_count=60)
