"""What a broker that remembers is asked, and what becomes of a session when anything goes wrong."""

from uuid import UUID

import pytest

from tidelog.client import TopicPartition
from tidelog.client.consumer.fetch_session import FetchSession
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import FetchPartition, FetchPartitionResult, FetchResponse

VERSION = 12


def wanted(**offsets: int) -> dict[TopicPartition, FetchPartition]:
    """Partitions of topic "t" by number: p0=5 is partition 0 from offset 5."""
    return {
        TopicPartition("t", int(name[1:])): FetchPartition(int(name[1:]), -1, offset, -1, -1, 1000)
        for name, offset in offsets.items()
    }


def answer(*partitions: int, session_id: int = 7, error_code: int = 0) -> FetchResponse:
    topics = [("t", [FetchPartitionResult(index, 0) for index in partitions])] if partitions else []
    return FetchResponse(0, error_code, session_id, topics)


def opened(**offsets: int) -> FetchSession:
    session = FetchSession()
    first = wanted(**offsets)
    session.ask(first, VERSION, {})
    assert session.answered(answer(*(key.partition for key in first)))
    return session


def named(topics: list[tuple[str, list[FetchPartition]]]) -> list[tuple[int, int]]:
    return [(each.partition, each.fetch_offset) for _, some in topics for each in some]


def test_the_first_request_is_full_and_the_next_names_only_what_changed() -> None:
    session = FetchSession()
    ask = session.ask(wanted(p0=0, p1=0, p2=0), VERSION, {})
    assert (ask.session_id, ask.epoch, named(ask.topics)) == (0, 0, [(0, 0), (1, 0), (2, 0)])
    session.answered(answer(0, 1, 2))
    ask = session.ask(wanted(p0=0, p1=5, p3=9), VERSION, {})
    assert (ask.session_id, ask.epoch, named(ask.topics)) == (7, 1, [(1, 5), (3, 9)])
    assert ask.forgotten == [("t", [2])]
    session.answered(answer(1))
    ask = session.ask(wanted(p0=0, p1=5, p3=9), VERSION, {})
    assert (ask.epoch, ask.topics, ask.forgotten) == (2, [], [])


@pytest.mark.parametrize(
    ("code", "closes"),
    [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7)],
)
def test_a_session_that_the_broker_lost_is_opened_anew_by_a_full_request(
    code: ErrorCode, closes: int
) -> None:
    session = opened(p0=0, p1=0)
    session.ask(wanted(p0=1, p1=0), VERSION, {})
    assert not session.answered(answer(session_id=0, error_code=code))
    ask = session.ask(wanted(p0=1, p1=0), VERSION, {})
    assert (ask.session_id, ask.epoch, named(ask.topics)) == (closes, 0, [(0, 1), (1, 0)])


def test_after_a_lost_answer_the_old_session_is_closed_by_the_full_request() -> None:
    session = opened(p0=0)
    session.ask(wanted(p0=1), VERSION, {})
    session.failed()
    ask = session.ask(wanted(p0=1), VERSION, {})
    assert (ask.session_id, ask.epoch, named(ask.topics)) == (7, 0, [(0, 1)])


def test_a_broker_that_gives_no_session_is_asked_in_full_each_time() -> None:
    session = FetchSession()
    for offset in range(3):
        ask = session.ask(wanted(p0=offset, p1=0), VERSION, {})
        assert (ask.session_id, ask.epoch, named(ask.topics)) == (0, 0, [(0, offset), (1, 0)])
        assert session.answered(answer(0, session_id=0))


def test_before_version_7_there_is_no_session_to_ask_for() -> None:
    session = opened(p0=0)
    ask = session.ask(wanted(p0=1), 6, {})
    assert (ask.session_id, ask.epoch, named(ask.topics), ask.forgotten) == (0, -1, [(0, 1)], [])


def test_what_an_opening_answer_left_out_is_named_again() -> None:
    session = FetchSession()
    session.ask(wanted(p0=0, p1=0), VERSION, {})
    session.answered(answer(0))
    assert named(session.ask(wanted(p0=0, p1=0), VERSION, {}).topics) == [(1, 0)]


def test_topics_are_named_by_id_and_a_topic_that_was_created_again_opens_a_new_session() -> None:
    session, old, new = FetchSession(), UUID(int=1), UUID(int=2)

    def by_id(topic_id: UUID) -> FetchResponse:
        return answer(0, 1)._replace(topics=[(topic_id, answer(0, 1).topics[0][1])])

    ask = session.ask(wanted(p0=0, p1=0), 16, {"t": old})
    assert [topic for topic, _ in ask.topics] == [old]
    named_again = session.by_name(by_id(old))
    assert [topic for topic, _ in named_again.topics] == ["t"]
    session.answered(named_again)
    ask = session.ask(wanted(p0=0), 16, {"t": old})
    assert (ask.epoch, ask.topics, ask.forgotten) == (1, [], [(old, [1])])
    session.answered(session.by_name(by_id(old)))
    ask = session.ask(wanted(p0=0), 16, {"t": new})
    assert (ask.session_id, ask.epoch, [topic for topic, _ in ask.topics]) == (7, 0, [new])
    assert not session.by_name(by_id(old)).topics
    assert session.ask(wanted(p0=0), 12, {}).epoch == 0


def test_an_evicted_session_and_a_strange_id_lead_back_to_a_full_request() -> None:
    for session_id in (0, 8):
        session = opened(p0=0)
        session.ask(wanted(p0=1), VERSION, {})
        assert session.answered(answer(0, session_id=session_id))
        ask = session.ask(wanted(p0=2), VERSION, {})
        assert (ask.epoch, named(ask.topics)) == (0, [(0, 2)])


def test_the_epoch_after_the_largest_is_1() -> None:
    session = opened(p0=0)
    session.epoch = 2**31 - 1
    session.ask(wanted(p0=1), VERSION, {})
    session.answered(answer(0))
    assert session.epoch == 1
