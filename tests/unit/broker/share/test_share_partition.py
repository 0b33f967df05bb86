"""What a share partition costs, and what it does with what was stored. Its rules: `tests/property`."""

import pytest

from tidelog.broker.coordinator.share_states.state import StateBatch
from tidelog.broker.share.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    Limits,
    RecordState,
    SharePartition,
    Update,
)
from tidelog.protocol.errors import ApiError, ErrorCode

MILLION = 1_000_000
LIMITS = Limits(max_delivery_count=5, max_record_locks=2 * MILLION, lock_duration_ms=100)


def acquired(count: int) -> SharePartition:
    partition = SharePartition(0, (), LIMITS)
    batches = [(first, min(first + 999, count - 1)) for first in range(0, count, 1_000)]
    taken = partition.acquire("m", 0, count, batches, count, is_strict=False, batch_size=count, now_ms=0)
    assert taken[0].last == count - 1
    return partition


def test_a_million_records_in_flight_are_one_run() -> None:
    partition = acquired(MILLION)
    assert (partition.run_count, partition.in_flight_count) == (1, MILLION)
    partition.settle(partition.acknowledge("m", [Acknowledgement(0, MILLION - 2, [1])], 0))
    assert (partition.start_offset, partition.run_count) == (MILLION - 1, 1)


def test_an_acknowledgement_of_every_second_record_is_a_run_for_each_until_the_others_follow() -> None:
    partition = acquired(10_000)
    types = [AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE] * 5_000
    update = partition.acknowledge("m", [Acknowledgement(0, 9_999, types)], 0)
    assert partition.after([update]) == (1, 4_999)
    assert len(update.batches) == 10_000
    partition.settle(update)
    assert partition.run_count == 9_999
    partition.acquire("m", 1, 10_000, [(1, 9_999)], 10_000, is_strict=False, batch_size=1, now_ms=0)
    odd = [Acknowledgement(offset, offset, [1]) for offset in range(1, 10_000, 2)]
    partition.settle(partition.acknowledge("m", odd, 0))
    assert (partition.start_offset, partition.run_count) == (10_000, 0)


def test_what_lies_between_stored_batches_is_available_again() -> None:
    stored = [StateBatch(4, 4, RecordState.AVAILABLE, 2), StateBatch(7, 9, RecordState.ACKNOWLEDGED, 1)]
    partition = SharePartition(2, stored, LIMITS)
    assert partition.next_fetch_offset == 2
    taken = partition.acquire("m", 2, 12, [(2, 11)], 20, is_strict=False, batch_size=20, now_ms=0)
    assert [tuple(each) for each in taken] == [(2, 3, 1), (4, 4, 3), (5, 6, 1), (10, 11, 1)]


def test_states_are_stored_with_kafkas_numbers() -> None:
    partition = acquired(4)
    partition.limits = LIMITS._replace(has_dead_letters=True)
    kinds = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.GAP)
    update = partition.acknowledge("m", [Acknowledgement(0, 3, list(kinds))], 0)
    assert [each.state for each in update.batches] == [2, 0, 3, 4]


def test_a_state_that_this_version_does_not_know_is_not_delivered() -> None:
    partition = SharePartition(0, [StateBatch(0, 3, 5, 1), StateBatch(4, 4, 0, 1)], LIMITS)
    assert partition.start_offset == 4


def test_the_answer_is_divided_at_ends_of_batches() -> None:
    partition = SharePartition(0, (), LIMITS)
    batches = [(0, 1), (2, 3), (4, 5), (6, 7)]
    taken = partition.acquire("m", 0, 8, batches, 100, is_strict=False, batch_size=3, now_ms=0)
    assert [(each.first, each.last) for each in taken] == [(0, 3), (4, 7)]


def test_renewals_are_refused_where_the_group_does_not_allow_them() -> None:
    partition = acquired(1_000)
    partition.limits = LIMITS._replace(may_renew=False)
    with pytest.raises(ApiError) as refused:
        partition.acknowledge("m", [Acknowledgement(0, 0, [AcknowledgeType.RENEW])], 0)
    assert refused.value.code == ErrorCode.INVALID_RECORD_STATE


def test_a_read_behind_the_end_gives_nothing() -> None:
    partition = acquired(1_000)
    taken = partition.acquire(
        "m", 2_000, 3_000, [(2_000, 2_999)], 10, is_strict=False, batch_size=10, now_ms=0
    )
    assert (taken, partition.end_offset) == ([], 1_000)


def acknowledge(partition: SharePartition, first: int, last: int, kind: AcknowledgeType) -> Update:
    return partition.acknowledge("m", [Acknowledgement(first, last, [kind])], 0)


def states_of(partition: SharePartition) -> list[tuple[int, int, str]]:
    return [(first, end, run.state.name) for first, end, run in partition.runs()]


def test_only_the_member_that_holds_a_record_acknowledges_it() -> None:
    partition = acquired(10)
    partition.settle(acknowledge(partition, 5, 5, AcknowledgeType.RELEASE))
    for member_id, offset in (("other", 0), ("m", 5)):
        with pytest.raises(ApiError) as refused:
            partition.acknowledge(member_id, [Acknowledgement(offset, offset, [1])], 0)
        assert refused.value.code == ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize("kind", [AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT])
def test_the_records_of_a_refused_update_are_as_they_were(kind: AcknowledgeType) -> None:
    partition = acquired(10)
    before = list(partition.runs())
    partition.undo(acknowledge(partition, 2, 5, kind))
    assert list(partition.runs()) == before
    assert partition.in_flight_count == 10


def test_a_renewal_moves_the_end_of_the_lock_and_is_not_stored() -> None:
    partition = acquired(10)
    update = partition.acknowledge("m", [Acknowledgement(0, 4, [AcknowledgeType.RENEW])], 50)
    assert (update.batches, update.before) == ([], [])
    assert [each[:2] for each in partition.expire(LIMITS.lock_duration_ms).before] == [(5, 10)]


def test_neighbours_that_become_alike_are_one_run() -> None:
    partition = acquired(10)
    for offset in (3, 5, 4):
        partition.settle(acknowledge(partition, offset, offset, AcknowledgeType.RELEASE))
    assert states_of(partition) == [(0, 3, "ACQUIRED"), (3, 6, "AVAILABLE"), (6, 10, "ACQUIRED")]


def test_what_is_deleted_from_the_log_is_no_part_of_a_run() -> None:
    partition = acquired(10)
    partition.settle(acknowledge(partition, 4, 7, AcknowledgeType.RELEASE))
    partition.log_begins_at(6)
    assert states_of(partition) == [(6, 8, "AVAILABLE"), (8, 10, "ACQUIRED")]
    assert partition.next_fetch_offset == 6
    assert acknowledge(partition, 0, 3, AcknowledgeType.ACCEPT).batches == []


def test_what_is_delivered_again_is_what_became_available() -> None:
    partition = acquired(10)
    partition.settle(acknowledge(partition, 8, 9, AcknowledgeType.RELEASE))
    taken = partition.acquire("n", 8, 10, [(0, 9)], 100, is_strict=False, batch_size=100, now_ms=0)
    assert [tuple(each) for each in taken] == [(8, 9, 2)]


def test_offsets_without_records_are_done() -> None:
    partition = SharePartition(0, (), LIMITS)
    partition.acquire("m", 0, 6, [(1, 2)], 100, is_strict=False, batch_size=100, now_ms=0)
    assert states_of(partition) == [(1, 3, "ACQUIRED"), (3, 6, "ARCHIVED")]
    partition.settle(acknowledge(partition, 1, 2, AcknowledgeType.ACCEPT))
    assert (partition.start_offset, partition.next_fetch_offset) == (6, 6)


def test_the_reason_of_a_stored_dead_letter_follows_from_its_deliveries() -> None:
    stored = [StateBatch(0, 0, RecordState.ARCHIVING, 1), StateBatch(1, 1, RecordState.ARCHIVING, 5)]
    partition = SharePartition(0, stored, LIMITS)
    assert [each.is_rejected for each in partition.dead_letters(0, 1)] == [True, False]


def test_updates_that_are_stored_together_move_the_start_over_the_records_of_all() -> None:
    partition = acquired(1_000)
    updates = [partition.acknowledge("m", [Acknowledgement(each, each, [1])], 0) for each in (0, 2, 1)]
    assert partition.after(updates) == (3, 0)
    assert partition.after(updates[:1])[0] == 1


def test_neighbours_of_one_state_are_stored_as_one_batch() -> None:
    partition = acquired(10)
    asked = [Acknowledgement(0, 1, [1]), Acknowledgement(2, 3, [1, 1]), Acknowledgement(5, 6, [1, 3])]
    update = partition.acknowledge("m", asked, 0)
    assert [tuple(each) for each in update.batches] == [(0, 3, 2, 1), (5, 5, 2, 1), (6, 6, 4, 1)]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ([(-1, 0, [1])], ErrorCode.INVALID_REQUEST),
        ([(3, 2, [1])], ErrorCode.INVALID_REQUEST),
        ([(0, 2, [1, 1])], ErrorCode.INVALID_REQUEST),
        ([(0, 2, [1, 1, 1, 1])], ErrorCode.INVALID_REQUEST),
        ([(0, 2, [])], ErrorCode.INVALID_REQUEST),
        ([(0, 0, [5])], ErrorCode.INVALID_REQUEST),
        ([(0, 0, [1]), (5, 6, [1, -1])], ErrorCode.INVALID_REQUEST),
        ([(4, 4, [1]), (3, 3, [1])], ErrorCode.INVALID_REQUEST),
        ([(0, 3, [1]), (3, 4, [1])], ErrorCode.INVALID_RECORD_STATE),
        ([(0, 0, [1]), (9, 10, [1])], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_bad_acknowledgement_is_refused_as_a_whole(
    asked: list[tuple[int, int, list[int]]], code: ErrorCode
) -> None:
    partition = acquired(10)
    before = list(partition.runs())
    with pytest.raises(ApiError) as refused:
        partition.acknowledge("m", [Acknowledgement(*each) for each in asked], 0)
    assert (refused.value.code, list(partition.runs())) == (code, before)


def test_an_answer_is_joined_up_to_the_size_of_a_batch_and_only_of_neighbours_alike() -> None:
    stored = [StateBatch(2, 2, RecordState.AVAILABLE, 1), StateBatch(4, 4, RecordState.ACKNOWLEDGED, 1)]
    partition = SharePartition(0, stored, LIMITS)
    batches = [(each, each) for each in range(8)]
    taken = partition.acquire("m", 0, 8, batches, 100, is_strict=False, batch_size=2, now_ms=0)
    assert [tuple(each) for each in taken] == [(0, 1, 1), (2, 2, 2), (3, 3, 1), (5, 6, 1), (7, 7, 1)]


@pytest.mark.parametrize(
    ("max_records", "is_strict", "locks", "last"),
    [
        (2, False, 100, 1),
        (3, False, 100, 3),
        (3, True, 100, 2),
        (6, True, 100, 5),
        (100, False, 2, 1),
        (100, False, 3, 3),
        (100, False, 100, 7),
    ],
)
def test_a_member_gets_whole_batches_up_to_the_limits(
    max_records: int, is_strict: bool, locks: int, last: int
) -> None:
    partition = SharePartition(0, (), LIMITS._replace(max_record_locks=locks))
    batches = [(0, 1), (2, 3), (4, 5), (6, 7)]
    taken = partition.acquire("m", 0, 8, batches, max_records, is_strict=is_strict, batch_size=100, now_ms=0)
    assert [tuple(each) for each in taken] == [(0, last, 1)]
    assert partition.end_offset == last + 1
