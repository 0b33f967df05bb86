"""The share session with one broker: the requests that keep it."""

from uuid import UUID

from tidelog.client.share.session import Batch, SharePartition, ShareSession
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey, decode_request, encode_request

TOPIC = UUID(int=7)
P0, P1 = SharePartition(TOPIC, 0), SharePartition(TOPIC, 1)
BATCH = Batch(5, 9, [1])


def named(values: object) -> dict[int, list[tuple[int, int, list[int]]]]:
    """The partitions of a request, with what they acknowledge, by way of its bytes."""
    key = ApiKey.SHARE_FETCH
    request = decode_request(key, 2, encode_request(key, 2, {**values, "member_id": "m"}))  # type: ignore[dict-item]
    return {
        each.partition_index: [
            (batch.first_offset, batch.last_offset, batch.acknowledge_types)
            for batch in each.acknowledgement_batches
        ]
        for topic in request.topics
        for each in topic.partitions
    }


def opened(*partitions: SharePartition) -> ShareSession:
    session = ShareSession()
    session.fetch(set(partitions), {})
    session.answered(ErrorCode.NONE)
    return session


def test_the_first_request_names_all_partitions_and_acknowledges_nothing() -> None:
    session = ShareSession()
    assert not session.is_open
    values = session.fetch({P0, P1}, {P0: [BATCH]})
    assert values["share_session_epoch"] == 0
    assert named(values) == {0: [], 1: []}


def test_later_requests_name_changes_and_acknowledgements_with_epochs_in_a_row() -> None:
    session = opened(P0)
    values = session.fetch({P0, P1}, {P0: [BATCH]})
    assert (values["share_session_epoch"], named(values)) == (1, {0: [(5, 9, [1])], 1: []})
    session.answered(ErrorCode.NONE)
    values = session.fetch({P0, P1}, {})
    assert (values["share_session_epoch"], named(values)) == (2, {})


def test_a_partition_that_is_not_wanted_is_forgotten_once() -> None:
    session = opened(P0, P1)
    values = session.fetch({P1}, {})
    assert values["forgotten_topics_data"] == [{"topic_id": TOPIC, "partitions": [0]}]
    session.answered(ErrorCode.NONE)
    assert session.fetch({P1}, {})["forgotten_topics_data"] == []


def test_acknowledging_alone_keeps_the_partitions_and_can_end_the_session() -> None:
    session = opened(P0)
    values = session.acknowledge({P0: [BATCH]}, is_final=False)
    assert (values["share_session_epoch"], named(values)) == (1, {0: [(5, 9, [1])]})
    session.answered(ErrorCode.NONE)
    assert named(session.fetch({P0}, {})) == {}
    assert session.acknowledge({}, is_final=True)["share_session_epoch"] == -1


def test_an_error_of_the_session_or_a_lost_answer_opens_a_new_one() -> None:
    for code in (
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    ):
        session = opened(P0)
        session.fetch({P0}, {})
        session.answered(code)
        values = session.fetch({P0}, {P0: [BATCH]})
        assert (values["share_session_epoch"], named(values)) == (0, {0: []})
    session = opened(P0)
    session.failed()
    assert not session.is_open


def test_another_error_continues_the_session() -> None:
    session = opened(P0)
    session.fetch({P0}, {})
    session.answered(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert session.fetch({P0}, {})["share_session_epoch"] == 2


def test_the_epoch_begins_again_behind_the_highest() -> None:
    session = opened(P0)
    session.epoch = 2**31 - 1
    session.fetch({P0}, {})
    session.answered(ErrorCode.NONE)
    assert session.epoch == 1
