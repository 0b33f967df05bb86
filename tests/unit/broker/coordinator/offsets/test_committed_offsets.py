"""The machine of committed offsets: who may commit, what expires when, and that a sweep goes in steps."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from tidelog.broker.coordinator.groups.machine import Groups
from tidelog.broker.coordinator.offsets import committed_offsets
from tidelog.broker.coordinator.offsets.committed_offsets import (
    SWEPT_AT_ONCE,
    CommittedOffsets,
    Committer,
)
from tidelog.broker.coordinator.offsets.offset_records import CommittedOffset, OffsetRecord
from tidelog.broker.coordinator.pending_records import InTransaction
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import TransactionMarker

RETENTION_MS = 1_000
TOPIC_IDS = {"t": UUID(int=1), "u": UUID(int=2)}


def offset(
    topic: str, partition: int, committed: int = 5, at_ms: int = 0, group: str = "g", **more: Any
) -> Any:
    value = CommittedOffset(
        committed, commit_timestamp_ms=at_ms, topic_id=TOPIC_IDS.get(topic, UUID(int=0)), **more
    )
    return OffsetRecord(group, topic, partition, value)


class Members(Groups):
    """Of the group "g": its members read `topics`, and it has been idle since `idle_ms`."""

    def __init__(self, topics: tuple[str, ...] = (), idle_ms: int | None = None) -> None:
        self.topics = topics
        self.idle_ms = idle_ms

    def check_commit(self, group_id: str, committer: Committer, now_ms: int) -> Mapping[Any, Any]:
        if (committer.member_id, committer.generation) != ("m", 3):
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        return {("session", committer.member_id): None}

    def check_offset_delete(self, group_id: str) -> None:
        if not self.topics:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        return topic in self.topics

    def idle_since_ms(self, group_id: str, commit_timestamp_ms: int) -> int | None:
        return self.idle_ms


def machine(*records: OffsetRecord, members: Members | None = None) -> CommittedOffsets:
    made = CommittedOffsets(lambda group_id: members if group_id == "g" else None, RETENTION_MS)
    for record in records:
        made.apply(record)
    return made


def held(of: CommittedOffsets, group: str = "g") -> dict[tuple[str, int], int]:
    found: Any = of.fetch(group, None)
    return {
        (topic, partition): committed.offset
        for topic, partitions in found.items()
        for partition, committed in partitions.items()
    }


def swept(of: CommittedOffsets, now_ms: int) -> list[int]:
    """Sweep to the end; how many records each step wrote."""
    of.begin_sweep(now_ms)
    steps = []
    has_more: Any = True
    while has_more:
        records, has_more, *_ = of.sweep(now_ms, TOPIC_IDS.get)
        steps.append(len(records))
        for record in records:
            of.apply(record)
    return steps


def test_a_decision_changes_nothing_before_its_records_are_applied() -> None:
    of = machine()
    decision = of.commit("g", Committer(), [offset("t", 0)])(0)
    assert held(of) == {}
    for record in decision.records:
        of.apply(record)
    assert held(of) == {("t", 0): 5}


def test_what_is_fetched_does_not_change_when_more_is_committed() -> None:
    of = machine(offset("t", 0))
    found: Any = of.fetch("g", ["t"])
    of.apply(offset("t", 0, 6))
    of.apply(offset("t", 1, 7))
    assert {index: each.offset for index, each in found["t"].items()} == {0: 5}


def test_a_member_commits_and_its_sign_of_life_is_passed_on() -> None:
    of = machine(members=Members())
    decision = of.commit("g", Committer(3, "m"), [offset("t", 0)])(0)
    assert decision.timers == {("session", "m"): None}
    for committer in (Committer(), Committer(2, "m"), Committer(3, "other")):
        with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.ILLEGAL_GENERATION):
            of.commit("g", committer, [offset("t", 0)])(0)


def test_offsets_of_topics_that_members_read_are_not_deleted() -> None:
    of = machine(offset("t", 0), offset("u", 0), members=Members(("t",)))
    decision = of.delete("g", [("t", [0]), ("u", [0, 9])])(0)
    assert decision.response == {"t": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "u": ErrorCode.NONE}
    assert list(decision.records) == [OffsetRecord("g", "u", 0, None)]
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.NON_EMPTY_GROUP):
        machine(offset("t", 0), members=Members()).delete("g", [("t", [0])])(0)


@pytest.mark.parametrize(
    ("members", "kept"),
    [
        (None, {("u", 0): 5}),
        (Members(("t",), idle_ms=0), {("t", 0): 5}),
        (Members((), idle_ms=1), {("t", 0): 5, ("u", 0): 5}),
        (Members((), idle_ms=0), {}),
        (Members((), idle_ms=None), {("t", 0): 5, ("u", 0): 5}),
    ],
)
def test_offsets_expire_when_they_are_unused_for_the_retention(
    members: Members | None, kept: dict[tuple[str, int], int]
) -> None:
    of = machine(offset("t", 0, at_ms=0), offset("u", 0, at_ms=1), members=members)
    swept(of, RETENTION_MS)
    assert held(of) == kept


def test_a_time_of_expiry_of_its_own_goes_before_the_retention() -> None:
    of = machine(offset("t", 0, expire_timestamp_ms=10), offset("t", 1, expire_timestamp_ms=10**9))
    swept(of, 9)
    assert held(of) == {("t", 0): 5, ("t", 1): 5}
    swept(of, 10 * RETENTION_MS)
    assert held(of) == {("t", 1): 5}


def test_offsets_of_a_topic_that_is_gone_or_is_another_one_are_swept() -> None:
    other = OffsetRecord("g", "t", 1, CommittedOffset(5, topic_id=UUID(int=99), commit_timestamp_ms=0))
    unknown = OffsetRecord("g", "t", 2, CommittedOffset(5, commit_timestamp_ms=0))
    of = machine(offset("t", 0), other, unknown, offset("gone", 0))
    swept(of, 0)
    assert held(of) == {("t", 0): 5, ("t", 2): 5}


def test_a_sweep_goes_in_steps_over_many_groups_and_over_many_partitions_of_one() -> None:
    groups = [offset("t", 0, group=f"g{number}") for number in range(3 * SWEPT_AT_ONCE)]
    partitions = [offset("u", index) for index in range(2 * SWEPT_AT_ONCE)]
    of = machine(*groups, *partitions)
    steps = swept(of, RETENTION_MS)
    assert sum(steps) == len(groups) + len(partitions)
    assert len(steps) >= 5
    assert list(of.group_ids) == []


def test_the_records_of_a_step_fit_into_a_batch_however_long_the_names_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(committed_offsets, "REMOVED_BYTES_AT_ONCE", 10_000)
    of = machine(*(offset("t", index, group="g" * 1_000) for index in range(10)))
    steps = swept(of, RETENTION_MS)
    assert max(steps) == 3
    assert sum(steps) == 10


def test_what_is_committed_while_a_sweep_goes_on_stays() -> None:
    of = machine(*(offset("t", 0, group=f"g{number}") for number in range(2 * SWEPT_AT_ONCE)))
    of.begin_sweep(RETENTION_MS)
    records, *_ = of.sweep(RETENTION_MS, TOPIC_IDS.get)
    for record in records:
        of.apply(record)
    last = f"g{2 * SWEPT_AT_ONCE - 1}"
    of.apply(offset("t", 0, 9, at_ms=RETENTION_MS, group=last))
    while of.sweep(RETENTION_MS, TOPIC_IDS.get).response:
        pass
    assert held(of, last) == {("t", 0): 9}


class CountedName(str):
    """Counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        self.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def in_transaction(producer_id: int, group: str, partition: int, at: int) -> InTransaction:
    return InTransaction(producer_id, 0, OffsetRecord(group, "t", partition, CommittedOffset(at)))


def test_what_is_unstable_in_one_group_is_known_without_a_look_at_the_others() -> None:
    of = machine()
    for number in range(1_000):
        of.apply_pending(in_transaction(number, f"g{number % 10}", number, number))
    name = CountedName("g3")
    assert of.unstable(name) == {("t", number) for number in range(3, 1_000, 10)}
    assert name.compared <= 1
    assert not of.unstable("other")


def test_a_transaction_ends_in_all_groups_that_it_committed_for_and_leaves_nothing_behind() -> None:
    of = machine()
    for producer_id, group, at in ((7, "a", 1), (7, "b", 2), (8, "b", 3), (9, "c", 4)):
        of.apply_pending(in_transaction(producer_id, group, 0, at))
    of.apply(OffsetRecord("c", "t", 0, CommittedOffset(5)))
    for producer_id, is_commit in ((7, True), (9, True), (8, False), (7, False)):
        of.apply_end(TransactionMarker(producer_id, 0, 0, is_commit))
    assert [held(of, group) for group in "abc"] == [{("t", 0): 1}, {("t", 0): 2}, {("t", 0): 5}]
    assert not any(of.unstable(group) for group in "abc")
    assert not of._pending
    assert not of._groups_in


def test_a_sweep_leaves_what_an_open_transaction_may_replace() -> None:
    """The offset of a deleted topic, whose name another topic has now. A cleaner would take a tombstone for
    later than what the transaction wrote."""
    of = machine()
    of.apply(OffsetRecord("a", "t", 0, CommittedOffset(1, topic_id=UUID(int=99))))
    of.apply_pending(in_transaction(7, "a", 0, 5))
    of.begin_sweep(0)
    assert not of.sweep(0, TOPIC_IDS.get).records
    of.apply_end(TransactionMarker(7, 0, 0, True))
    assert held(of, "a") == {("t", 0): 5}


def test_a_deletion_takes_what_open_transactions_have_committed_so_far() -> None:
    of = machine()
    of.apply_pending(in_transaction(7, "a", 0, 5))
    of.apply_pending(in_transaction(7, "a", 1, 6))
    for record in of.delete("a", [("t", [1])])(0).records:
        of.apply(record)
    assert of.unstable("a") == {("t", 0)}
    for record in list(of.removal("a")):
        of.apply(record)
    of.apply_end(TransactionMarker(7, 0, 0, True))
    assert held(of, "a") == {}
    assert not of.knows("a")


def test_an_offset_is_shown_once_it_is_committed() -> None:
    of = machine(offset("t", 0, 1))
    first, second, new = offset("t", 0, 2), offset("t", 0, 3), offset("u", 0, 7)
    for record in (first, second, new):
        of.write(record)
    assert held(of) == {("t", 0): 1}
    of.settle(first)
    assert held(of) == {("t", 0): 2}
    of.settle(second)
    of.settle(new)
    assert held(of) == {("t", 0): 3, ("u", 0): 7}
    assert not of.uncommitted_ids()


def test_a_group_has_offsets_once_its_first_is_committed() -> None:
    of, first = machine(), offset("t", 0, 1)
    of.write(first)
    assert not of.has_committed("g")
    of.settle(first)
    assert of.has_committed("g")


def test_a_group_has_offsets_until_the_deletion_of_its_last_is_committed() -> None:
    of = machine(offset("t", 0, 1))
    (deletion,) = of.removal("g")
    of.write(deletion)
    assert of.has_committed("g")
    of.settle(deletion)
    assert not of.has_committed("g")


def test_what_a_transaction_committed_is_unstable_until_its_marker_is_committed() -> None:
    of = machine(offset("t", 0, 1))
    of.apply_pending(InTransaction(7, 0, offset("t", 0, 2)))
    marker = TransactionMarker(7, 0, 0, is_commit=True)
    of.write_end(marker)
    assert (held(of), of.unstable("g")) == ({("t", 0): 1}, {("t", 0)})
    of.settle_end(marker)
    assert (held(of), of.unstable("g")) == ({("t", 0): 2}, set())
