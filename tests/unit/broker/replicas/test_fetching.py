"""A follower's requests: sessions that name what changed, failures that wait, answers that still count."""

from uuid import UUID

from tidelog.broker.replicas.fetching import FIRST_DELAY_MS, Fetching, FetchLimits, PartitionKey
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import FetchPartition, FetchPartitionResult, FetchRequest, FetchResponse

T, U = UUID(int=1), UUID(int=2)
LIMITS = FetchLimits(max_wait_ms=500, min_bytes=1, max_bytes=1000, longest_delay_ms=100)


def fetching(*keys: PartitionKey) -> Fetching:
    made = Fetching(3, 77, LIMITS)
    for topic_id, index in keys:
        made.want((topic_id, index), asked(index))
    return made


def asked(index: int, offset: int = 0, epoch: int = 5) -> FetchPartition:
    return FetchPartition(index, epoch, offset, epoch, 0, 100)


def sent(made: Fetching, now_ms: float = 0) -> FetchRequest:
    request = made.request(now_ms)
    assert request is not None
    return request


def answer(*results: tuple[UUID, int], session_id: int = 9, error_code: int = 0) -> FetchResponse:
    topics = [(topic_id, [FetchPartitionResult(index, 0)]) for topic_id, index in results]
    return FetchResponse(0, error_code, session_id, topics)


def counted(made: Fetching, response: FetchResponse) -> list[PartitionKey]:
    return [key for key, _ in made.answered(response)]


def test_a_session_names_everything_once_and_then_what_changed() -> None:
    made = fetching((T, 0), (T, 1), (U, 0))
    first = sent(made)
    assert (first.replica_id, first.replica_epoch, first.session_id, first.session_epoch) == (3, 77, 0, 0)
    assert first.topics == [(T, [asked(0), asked(1)]), (U, [asked(0)])]
    assert counted(made, answer((T, 0), (U, 0))) == [(T, 0), (U, 0)]
    made.want((T, 1), asked(1, offset=4))
    made.drop((U, 0))
    second = sent(made)
    assert (second.session_id, second.session_epoch) == (9, 1)
    assert second.topics == [(T, [asked(1, offset=4)])]
    assert second.forgotten_topics == [(U, [0])]
    assert counted(made, answer()) == []
    assert sent(made)[5:9] == (9, 2, [], [])


def test_a_request_without_an_answer_and_an_error_of_the_session_begin_a_new_one() -> None:
    made = fetching((T, 0))
    for lose in (
        made.lost,
        lambda: counted(made, answer(session_id=0)),
        lambda: counted(made, answer(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)),
    ):
        assert sent(made).topics == [(T, [asked(0)])]
        counted(made, answer())
        assert sent(made).topics == []
        lose()
        assert sent(made)[5:8] == (0, 0, [(T, [asked(0)])])
        made.lost()


def test_an_answer_to_what_is_not_wanted_any_more_does_not_count() -> None:
    made = fetching((T, 0), (T, 1), (T, 2))
    sent(made)
    made.want((T, 0), asked(0, epoch=6))
    made.drop((T, 1))
    assert counted(made, answer((T, 0), (T, 1), (T, 2), (U, 0))) == [(T, 2)]


def test_a_partition_that_fails_is_left_out_twice_as_long_each_time_and_no_longer_than_the_limit() -> None:
    made, now_ms = fetching((T, 0), (T, 1)), 0.0
    for delay_ms in (FIRST_DELAY_MS, 2 * FIRST_DELAY_MS, 4 * FIRST_DELAY_MS, LIMITS.longest_delay_ms):
        made.failed((T, 0), now_ms)
        assert made.next_due_ms() == now_ms + delay_ms
        assert sent(made, now_ms + delay_ms - 1).topics in ([(T, [asked(1)])], [])
        now_ms += delay_ms
        counted(made, answer())
        assert (T, [asked(0)]) in sent(made, now_ms).topics
        counted(made, answer())
    made.succeeded((T, 0))
    made.failed((T, 0), now_ms)
    assert made.next_due_ms() == now_ms + FIRST_DELAY_MS


def test_there_is_no_request_while_nothing_is_due() -> None:
    made = fetching()
    assert made.request(0) is None
    made.want((T, 0), asked(0))
    made.failed((T, 0), 0)
    assert made.request(0) is None
    made.drop((T, 0))
    assert made.next_due_ms() is None
