"""Incremental fetch sessions as KIP-227 has them: epochs, what is named in a response, who is evicted."""

from collections.abc import Iterator
from itertools import count

import pytest

from tidelog.broker.handlers.fetch_sessions import (
    EVICTION_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MAX_EPOCH,
    MAX_PARTITIONS,
    FetchContext,
    FetchSessions,
    next_epoch,
)
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.hot import FetchPartition, FetchPartitionResult


@pytest.fixture
def sessions() -> FetchSessions:
    return make(10)


def make(slots: int, cached_partitions: int = 1_000_000) -> FetchSessions:
    ids: Iterator[int] = count(1)
    return FetchSessions(slots, cached_partitions, lambda: next(ids))


def wanted(*partitions: int, offset: int = 0) -> list[tuple[str, FetchPartition]]:
    return [("t", FetchPartition(index, -1, offset, -1, -1, 1000)) for index in partitions]


def result(
    index: int, *, high_watermark: int = 5, log_start: int = 0, error: int = 0, records: bool = False
) -> tuple[str, FetchPartitionResult, bool]:
    return (
        "t",
        FetchPartitionResult(index, error, high_watermark=high_watermark, log_start_offset=log_start),
        records,
    )


def named(
    sessions: FetchSessions, context: FetchContext, *results: tuple[str, FetchPartitionResult, bool]
) -> list[int]:
    return [chosen.partition_index for _, chosen in sessions.select(context, list(results))]


def opened(sessions: FetchSessions, *partitions: int, now_ms: int = 0) -> FetchContext:
    return sessions.open_context(0, INITIAL_EPOCH, wanted(*partitions), (), now_ms, by_id=False)


def session_id(context: FetchContext) -> int:
    assert context.session is not None
    return context.session.session_id


def code_of(sessions: FetchSessions, held_id: int, epoch: int) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        sessions.open_context(held_id, epoch, [], (), 0, by_id=False)
    return caught.value.code


def test_a_full_fetch_opens_a_session_and_names_every_partition(sessions: FetchSessions) -> None:
    context = opened(sessions, 0, 1)
    assert session_id(context) == 1
    assert named(sessions, context, result(0), result(1)) == [0, 1]


def test_a_fetch_with_the_final_epoch_has_no_session(sessions: FetchSessions) -> None:
    context = sessions.open_context(0, FINAL_EPOCH, wanted(0), (), 0, by_id=False)
    assert context.session is None
    assert named(sessions, context, result(0)) == [0]
    assert len(sessions) == 0


def test_the_final_epoch_closes_the_session_it_names(sessions: FetchSessions) -> None:
    held = session_id(opened(sessions, 0))
    sessions.open_context(held, FINAL_EPOCH, wanted(0), (), 0, by_id=False)
    assert code_of(sessions, held, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_fetch_that_names_a_session_replaces_it(sessions: FetchSessions) -> None:
    held = session_id(opened(sessions, 0))
    replacement = sessions.open_context(held, INITIAL_EPOCH, wanted(0, 1), (), 0, by_id=False)
    assert session_id(replacement) != held
    assert len(sessions) == 1


def test_an_incremental_response_names_only_what_changed(sessions: FetchSessions) -> None:
    first = opened(sessions, 0, 1, 2)
    named(sessions, first, result(0), result(1), result(2))
    second = sessions.open_context(session_id(first), 1, [], (), 0, by_id=False)
    assert [partition.partition for _, partition in second.partitions] == [0, 1, 2]
    assert named(sessions, second, result(0), result(1, high_watermark=6), result(2, log_start=1)) == [1, 2]
    third = sessions.open_context(session_id(first), 2, [], (), 0, by_id=False)
    assert named(sessions, third, result(0), result(1, high_watermark=6), result(2, log_start=1)) == []


def test_partitions_with_records_are_named_and_go_to_the_end_of_the_line(sessions: FetchSessions) -> None:
    first = opened(sessions, 0, 1, 2)
    named(sessions, first, result(0, records=True), result(1), result(2))
    second = sessions.open_context(session_id(first), 1, [], (), 0, by_id=False)
    assert [partition.partition for _, partition in second.partitions] == [1, 2, 0]
    assert named(sessions, second, result(1), result(2), result(0, records=True)) == [0]


def test_an_error_is_returned_every_time_and_its_end_too(sessions: FetchSessions) -> None:
    first = opened(sessions, 0)
    named(sessions, first, result(0))
    held = session_id(first)
    for epoch in (1, 2):
        context = sessions.open_context(held, epoch, [], (), 0, by_id=False)
        assert named(sessions, context, result(0, error=3)) == [0]
    context = sessions.open_context(held, 3, [], (), 0, by_id=False)
    assert named(sessions, context, result(0)) == [0]


def test_what_a_diverging_follower_did_not_take_is_returned_once_it_has_truncated(
    sessions: FetchSessions,
) -> None:
    held = session_id(context := opened(sessions, 0))
    _, diverging, _ = result(0)
    assert named(sessions, context, ("t", diverging._replace(diverging_epoch=(0, 3)), False)) == [0]
    truncated = sessions.open_context(held, 1, wanted(0, offset=3), (), 0, by_id=False)
    assert named(sessions, truncated, result(0)) == [0]
    assert named(sessions, sessions.open_context(held, 2, [], (), 0, by_id=False), result(0)) == []


def test_what_an_earlier_epoch_of_the_client_got_is_returned_again(sessions: FetchSessions) -> None:
    held = session_id(context := opened(sessions, 0))
    assert named(sessions, context, result(0)) == [0]
    further = sessions.open_context(held, 1, wanted(0, offset=3), (), 0, by_id=False)
    assert named(sessions, further, result(0)) == []
    in_epoch_2 = [("t", FetchPartition(0, 2, 3, -1, -1, 1000))]
    assert named(sessions, sessions.open_context(held, 2, in_epoch_2, (), 0, by_id=False), result(0)) == [0]


def test_partitions_are_added_changed_and_forgotten(sessions: FetchSessions) -> None:
    held = session_id(opened(sessions, 0, 1))
    context = sessions.open_context(held, 1, wanted(1, 2, offset=9), [("t", 0)], 0, by_id=False)
    assert [(partition.partition, partition.fetch_offset) for _, partition in context.partitions] == [
        (1, 9),
        (2, 9),
    ]


def test_a_session_that_forgets_everything_is_closed(sessions: FetchSessions) -> None:
    held = session_id(opened(sessions, 0))
    context = sessions.open_context(held, 1, [], [("t", 0)], 0, by_id=False)
    assert (context.session, context.partitions) == (None, [])
    assert code_of(sessions, held, 2) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_wrong_epoch_is_refused_and_changes_nothing(sessions: FetchSessions) -> None:
    held = session_id(opened(sessions, 0))
    assert code_of(sessions, held, 2) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    sessions.open_context(held, 1, [], (), 0, by_id=False)
    assert code_of(sessions, held, 1) == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_response_that_was_overtaken_is_refused(sessions: FetchSessions) -> None:
    first = opened(sessions, 0)
    sessions.open_context(session_id(first), 1, [], (), 0, by_id=False)
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH):
        sessions.select(first, [result(0)])


def test_epochs_wrap_to_one() -> None:
    assert next_epoch(INITIAL_EPOCH) == 1
    assert next_epoch(MAX_EPOCH) == 1
    assert next_epoch(FINAL_EPOCH) == FINAL_EPOCH


def test_without_a_free_slot_a_full_fetch_is_served_without_a_session() -> None:
    sessions = make(1)
    opened(sessions, 0)
    context = opened(sessions, 0, 1, now_ms=EVICTION_MS)
    assert context.session is None
    assert named(sessions, context, result(0)) == [0]


def test_the_longest_unused_session_is_evicted_once_it_is_stale() -> None:
    sessions = make(2)
    first, second = session_id(opened(sessions, 0)), session_id(opened(sessions, 0))
    sessions.open_context(first, 1, [], (), 100, by_id=False)
    assert opened(sessions, 0, now_ms=EVICTION_MS + 1).session is not None
    assert code_of(sessions, second, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions.open_context(first, 2, [], (), 100, by_id=False)


def test_an_old_smaller_session_gives_way_to_a_larger_one() -> None:
    sessions = make(1)
    small = session_id(opened(sessions, 0))
    sessions.open_context(small, 1, [], (), EVICTION_MS, by_id=False)
    assert opened(sessions, 1, now_ms=EVICTION_MS + 1).session is None
    assert opened(sessions, 1, 2, now_ms=EVICTION_MS + 1).session is not None
    assert code_of(sessions, small, 2) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_never_holds_more_partitions_than_the_limit(sessions: FetchSessions) -> None:
    assert opened(sessions, *range(MAX_PARTITIONS + 1)).session is None
    held = session_id(opened(sessions, *range(MAX_PARTITIONS)))
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND):
        sessions.open_context(held, 1, wanted(MAX_PARTITIONS), (), 0, by_id=False)
    assert len(sessions) == 0


def test_zero_slots_mean_no_sessions() -> None:
    assert opened(make(0), 0).session is None


def test_all_sessions_together_hold_no_more_partitions_than_the_bound() -> None:
    sessions = make(10, cached_partitions=5)
    first = session_id(opened(sessions, 0, 1))
    second = session_id(opened(sessions, 0, 1, 2))
    assert sessions.partition_count == 5
    assert opened(sessions, 0).session is None
    sessions.open_context(second, 1, wanted(3), [("t", 0)], 0, by_id=False)
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND):
        sessions.open_context(second, 2, wanted(4), (), 0, by_id=False)
    assert (len(sessions), sessions.partition_count, sessions.evictions) == (1, 2, 0)
    opened(sessions, 5, 6, 7)
    sessions.open_context(first, FINAL_EPOCH, [], (), 0, by_id=False)
    assert sessions.partition_count == 3


def test_unused_sessions_are_evicted_for_the_partitions_of_another() -> None:
    sessions = make(10, cached_partitions=4)
    for _ in range(4):
        opened(sessions, 0)
    assert opened(sessions, 0, 1, 2, now_ms=EVICTION_MS).session is None
    used = session_id(opened(sessions, 0, 1, 2, now_ms=EVICTION_MS + 1))
    assert (len(sessions), sessions.partition_count, sessions.evictions) == (2, 4, 3)
    sessions.open_context(used, 1, wanted(3), (), EVICTION_MS + 1, by_id=False)
    assert (len(sessions), sessions.partition_count, sessions.evictions) == (1, 4, 4)
