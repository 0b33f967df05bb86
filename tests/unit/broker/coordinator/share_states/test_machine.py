"""States of share partitions: who may write them, and what a replay of their records gives."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tidelog.broker.coordinator.share_states.machine import ShareStates, StateWrite
from tidelog.broker.coordinator.share_states.records import (
    SHARE_STATE_FORMATS,
    ShareSnapshotRecord,
    ShareUpdateRecord,
)
from tidelog.broker.coordinator.share_states.state import (
    UNINITIALIZED,
    SharePartitionKey,
    StateBatch,
    combined,
    coordinator_key,
    is_coordinator_key,
)
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError

KEY = SharePartitionKey("pool", UUID(int=7), 3)


class Site:
    """A machine whose records are encoded, and replayed if wished."""

    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.machine = ShareStates(updates_per_snapshot, lambda: 1_000)
        self.log: list[tuple[bytes, bytes | None]] = []

    def run(self, operation: Any) -> Any:
        decision = operation(0)
        for record in decision.records:
            self.log.append(SHARE_STATE_FORMATS.encode(record))
            self.machine.write(record)
        return decision.response

    def write(self, *batches: tuple[int, int, int, int], start: int = -1, **more: int) -> None:
        epochs = {"state_epoch": 1, "leader_epoch": 0, "complete_count": 0, **more}
        asked = StateWrite(start_offset=start, batches=[StateBatch(*each) for each in batches], **epochs)
        self.run(partial(self.machine.update, KEY, asked))

    def code(self, operation: Any) -> ErrorCode:
        with pytest.raises(ApiError) as refused:
            self.run(operation)
        return refused.value.code


def begun(updates_per_snapshot: int = 500) -> Site:
    site = Site(updates_per_snapshot)
    site.run(partial(site.machine.initialize, KEY, 1, UNINITIALIZED))
    return site


def test_an_earlier_leader_may_neither_read_nor_write() -> None:
    site = begun()
    state = site.run(partial(site.machine.read, KEY, 5))
    assert (state.start_offset, state.leader_epoch) == (-1, -1)  # As Kafka's clients know them.
    stored = len(site.log)
    assert site.run(partial(site.machine.read, KEY, 5)).leader_epoch == 5
    assert len(site.log) == stored
    assert site.code(partial(site.machine.read, KEY, 4)) == ErrorCode.FENCED_LEADER_EPOCH
    earlier = StateWrite(1, 4, 0, 0, ())
    assert site.code(partial(site.machine.update, KEY, earlier)) == ErrorCode.FENCED_LEADER_EPOCH
    site.write(start=3, leader_epoch=5)
    assert site.machine.states[KEY].start_offset == 3


def test_altered_offsets_fence_who_has_the_state_from_before() -> None:
    site = begun()
    site.write((4, 4, 2, 1), start=2)
    site.run(partial(site.machine.initialize, KEY, 1, 9))
    assert site.machine.states[KEY].start_offset == 2
    site.run(partial(site.machine.initialize, KEY, 2, 9))
    state = site.machine.states[KEY]
    assert (state.start_offset, state.batches, state.complete_count, state.snapshot_epoch) == (9, (), 0, 1)
    write = StateWrite(1, 0, 3, 0, ())
    assert site.code(partial(site.machine.update, KEY, write)) == ErrorCode.FENCED_STATE_EPOCH
    assert site.code(partial(site.machine.initialize, KEY, 1, 0)) == ErrorCode.FENCED_STATE_EPOCH


def test_a_state_that_does_not_exist_is_refused() -> None:
    site = Site()
    assert site.code(partial(site.machine.read, KEY, 0)) == ErrorCode.INVALID_REQUEST
    assert site.code(partial(site.machine.summary, KEY)) == ErrorCode.INVALID_REQUEST
    assert site.run(partial(site.machine.delete, KEY)) is None
    assert not site.log


def kinds(site: Site) -> str:
    decoded = (SHARE_STATE_FORMATS.decode(*each) for each in site.log)
    return "".join("S" if isinstance(each, ShareSnapshotRecord) else "u" for each in decoded)


@pytest.mark.parametrize(("updates", "stored"), [(0, "SSSSSSS"), (1, "SuSuSuS"), (2, "SuuSuuS")])
def test_a_snapshot_follows_so_many_updates(updates: int, stored: str) -> None:
    site = begun(updates_per_snapshot=updates)
    for offset in range(6):
        site.write(start=offset)
    assert kinds(site) == stored
    assert site.machine.states[KEY].snapshot_epoch == stored.count("S") - 1


def test_states_are_stored_whole_so_that_earlier_records_may_go_and_those_of_gone_topics_end() -> None:
    site = begun()
    site.write((4, 6, 2, 1), start=2)
    before = site.machine.states[KEY]
    site.run(partial(site.machine.snapshots, [KEY], lambda _: True))
    after = ShareStates(500, lambda: 0)
    after.apply(SHARE_STATE_FORMATS.decode(*site.log[-1]))
    assert after.states[KEY]._replace(snapshot_epoch=0) == before
    site.run(partial(site.machine.snapshots, [KEY], lambda _: False))
    assert not site.machine.states
    after.apply(SHARE_STATE_FORMATS.decode(*site.log[-1]))
    assert not after.states


def test_a_record_of_a_later_version_is_refused() -> None:
    site = begun()
    site.write((4, 6, 2, 1), start=2)
    for key, value in site.log:
        assert value is not None
        for version in (-1, 1):
            with pytest.raises(ProtocolError):
                SHARE_STATE_FORMATS.decode(key, version.to_bytes(2, "big", signed=True) + value[2:])


def test_an_update_of_an_earlier_snapshot_changes_nothing() -> None:
    site = begun()
    present = site.machine.states[KEY]
    site.machine.apply(ShareUpdateRecord(KEY, present.snapshot_epoch + 1, 0, 9, 0, ()))
    assert site.machine.states[KEY] == present


def test_keys_are_named_as_kafka_names_them() -> None:
    assert coordinator_key(KEY) == "pool:AAAAAAAAAAAAAAAAAAAABw:3"
    assert is_coordinator_key("a:b:AAAAAAAAAAAAAAAAAAAABw:3")
    assert not any(map(is_coordinator_key, ("", "pool", "pool:x:3", ":AAAAAAAAAAAAAAAAAAAABw:3", "a:b:-1")))


BATCHES = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 4), st.sampled_from((0, 2, 4)), st.integers(1, 3)).map(
        lambda each: StateBatch(each[0], each[0] + each[1], each[2], each[3])
    ),
    max_size=6,
)


def single(batches: Sequence[StateBatch]) -> dict[int, tuple[int, int]]:
    return {
        offset: (each.state, each.delivery_count)
        for each in batches
        for offset in range(each.first, each.last + 1)
    }


@given(BATCHES, BATCHES, st.integers(0, 12))
def test_a_later_update_of_a_record_holds(
    first: list[StateBatch], later: list[StateBatch], start_offset: int
) -> None:
    present = combined((), first, 0)
    found = combined(present, later, start_offset)
    expected = {**single(first), **single(later)}
    assert single(found) == {offset: each for offset, each in expected.items() if offset >= start_offset}
    assert all(each.first <= each.last for each in found)
    for before, after in pairwise(found):
        assert before.last < after.first
        assert before.last + 1 < after.first or before[2:] != after[2:]


@given(st.lists(BATCHES, max_size=8), st.integers(0, 3))
def test_a_replay_gives_the_same_states(writes: list[list[StateBatch]], updates_per_snapshot: int) -> None:
    site = begun(updates_per_snapshot)
    for start, batches in enumerate(writes):
        site.write(*batches, start=start)
    replayed = ShareStates(updates_per_snapshot, lambda: 0)
    for key, value in site.log:
        replayed.apply(SHARE_STATE_FORMATS.decode(key, value))
    assert replayed.states == site.machine.states
