"""Share sessions: epochs, the limit, and what a member fetches."""

from uuid import UUID

import pytest

from tidelog.broker.coordinator.share_states.state import SharePartitionKey
from tidelog.broker.share.sessions import FINAL_EPOCH, ShareSessions
from tidelog.protocol.errors import ApiError, ErrorCode

TOPIC = UUID(int=1)


def test_each_request_raises_the_epoch_and_another_epoch_is_refused() -> None:
    sessions = ShareSessions()
    session = sessions.begin("g", "m", 1, limit=1)
    assert sessions.of("g", "m", 1) is session
    with pytest.raises(ApiError) as refused:
        sessions.of("g", "m", 1)
    assert refused.value.code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.of("g", "m", 2) is session
    assert sessions.of("g", "m", FINAL_EPOCH) is session


def test_the_epoch_after_the_largest_is_1() -> None:
    sessions = ShareSessions()
    session = sessions.begin("g", "m", 1, limit=1)
    session.epoch = 2**31 - 1
    sessions.of("g", "m", 2**31 - 1)
    assert session.epoch == 1


def test_each_partition_is_the_first_once() -> None:
    sessions = ShareSessions()
    session = sessions.begin("g", "m", 1, limit=1)
    session.rotate()
    sessions.update(session, [(TOPIC, 0), (TOPIC, 1), (TOPIC, 2)], ())
    firsts = []
    for _ in range(4):
        firsts.append(next(iter(session.partitions)).partition)
        session.rotate()
    assert firsts == [0, 1, 2, 0]


def test_who_has_no_session_is_told() -> None:
    with pytest.raises(ApiError) as refused:
        ShareSessions().of("g", "m", 1)
    assert refused.value.code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_member_that_begins_again_replaces_its_session_also_at_the_limit() -> None:
    sessions = ShareSessions()
    first = sessions.begin("g", "m", 1, limit=1)
    second = sessions.begin("g", "m", 2, limit=1)
    with pytest.raises(ApiError) as refused:
        sessions.begin("g", "other", 3, limit=1)
    assert refused.value.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert not sessions.end(first)
    assert sessions.of_connection(2) == [second]
    assert not sessions.of_connection(1)
    assert sessions.end(second)
    assert not len(sessions)


def test_all_sessions_together_have_no_more_partitions_than_the_limit() -> None:
    sessions = ShareSessions(most_partitions=3)
    first, second = (sessions.begin("g", member, 1, limit=2) for member in ("m", "n"))
    sessions.update(first, [(TOPIC, 0), (TOPIC, 1)], [])
    with pytest.raises(ApiError) as refused:
        sessions.update(second, [(TOPIC, 0), (TOPIC, 1)], [])
    assert refused.value.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert len(second.partitions) == 1
    sessions.update(first, [], [(TOPIC, 0)])
    sessions.update(second, [(TOPIC, 1)], [])
    sessions.begin("g", "m", 1, limit=2)
    sessions.update(second, [(TOPIC, 2)], [])


def test_a_request_adds_and_forgets_partitions_and_the_next_one_begins_with_another() -> None:
    sessions = ShareSessions()
    session = sessions.begin("g", "m", 1, limit=1)
    sessions.update(session, [(TOPIC, 0), (TOPIC, 1), (TOPIC, 2)], [(TOPIC, 1)])
    assert [each.partition for each in session.partitions] == [0, 2]
    session.rotate()
    assert list(session.partitions) == [SharePartitionKey("g", TOPIC, 2), SharePartitionKey("g", TOPIC, 0)]
