"""Requests of many elements: others have their turn meanwhile, and order, answers and errors are as ever."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.net.peers import Peer, Running, produce_frame, request_frame, serving
from tests.waiting import until
from tidelog.broker.handlers.context import Handler, LateAnswer, RequestContext
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.framing import encode_request_frame
from tidelog.protocol.hot import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ProducePartitionResult,
    ProduceRequest,
    encode_fetch_request,
)
from tidelog.protocol.schema import ApiKey, encode_request
from tidelog.protocol.steps import ELEMENTS_PER_STEP, Pace, Steps, each

STEPS = 20
COUNT = STEPS * ELEMENTS_PER_STEP


def describe_cluster(context: RequestContext, request: Any) -> dict[str, Any]:
    return {"cluster_id": "c"}


class Deletion:
    """A handler in steps that notes how far it is."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.is_done = False

    def handle(self, context: RequestContext, request: Any) -> Steps[dict[str, Any]]:
        def delete(name: str) -> dict[str, Any]:
            self.names.append(name)
            return {"name": name, "error_code": 0}

        responses = yield from each(delete, request.topic_names, Pace())
        self.is_done = True
        return {"responses": responses}


def long_deletion(correlation_id: int = 0, count: int = COUNT) -> bytes:
    names = [f"t{number}" for number in range(count)]
    return request_frame(ApiKey.DELETE_TOPICS, 5, {"topic_names": names}, correlation_id)


def long_append(correlation_id: int = 0, acks: int = -1) -> bytes:
    partitions = [(index, b"%06d" % index) for index in range(COUNT)]
    return produce_frame(9, [("t", partitions)], acks, correlation_id)


class Appends:
    """A Produce handler in steps: what it was given, in order, and the answers that the test is to give."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.late: list[LateAnswer] = []

    def handle(self, context: RequestContext, request: ProduceRequest) -> Any:
        return self._append(request)

    def _append(self, request: ProduceRequest) -> Steps[Any]:
        pace = Pace()
        for _, partitions in request.topics:
            for _, records in partitions:
                self.records.append(bytes(records or b""))
                if pace.spent():
                    yield
        if request.acks == 0:
            return None
        self.late.append(LateAnswer())
        return self.late[-1]


APPENDED = [b"%06d" % index for index in range(COUNT)]
STORED = [("t", [ProducePartitionResult(index, 0) for index in range(COUNT)])]


def handlers(**more: Handler) -> dict[ApiKey, Handler]:
    return {
        ApiKey.DESCRIBE_CLUSTER: describe_cluster,
        **{ApiKey[name.upper()]: handle for name, handle in more.items()},
    }


async def served_meanwhile(server: Running) -> None:
    async with await Peer.connect(server.port) as other:
        await other.ask(ApiKey.DESCRIBE_CLUSTER, 0)


async def test_another_connection_is_served_while_a_long_request_is() -> None:
    deletion = Deletion()
    async with (
        serving(handlers(delete_topics=deletion.handle)) as server,
        await Peer.connect(server.port) as other,
        await Peer.connect(server.port) as peer,
    ):
        await other.ask(ApiKey.DESCRIBE_CLUSTER, 0)
        peer.send(long_deletion(7))
        answers_before = 0
        while not deletion.is_done:
            await other.ask(ApiKey.DESCRIBE_CLUSTER, 0)
            answers_before += not deletion.is_done
        assert answers_before >= STEPS // 4
        correlation_id, response = await peer.answer(ApiKey.DELETE_TOPICS, 5)
        assert (correlation_id, len(response.responses)) == (7, COUNT)


async def test_batches_of_a_long_append_are_all_appended_before_those_behind_it() -> None:
    appends = Appends()
    async with serving(handlers(produce=appends.handle)) as server, await Peer.connect(server.port) as peer:
        behind = produce_frame(9, [("t", [(0, b"behind")])], correlation_id=2)
        peer.send(long_append(1) + behind)
        await until(lambda: len(appends.late) == 2)
        assert appends.records == [*APPENDED, b"behind"]
        appends.late[1].give([("t", [ProducePartitionResult(0, 0)])])
        appends.late[0].give(STORED)
        frames = [await peer.frame(), await peer.frame()]
        assert [int.from_bytes(frame[:4], "big") for frame in frames] == [1, 2]


async def test_nothing_is_received_over_a_long_append_that_is_still_read() -> None:
    """Its records are views of the receive buffer, which what follows would overwrite."""
    appends = Appends()
    async with serving(handlers(produce=appends.handle)) as server, await Peer.connect(server.port) as peer:
        for round_ in range(3):
            peer.send(long_append())
            await until(lambda: appends.records)
            peer.send(produce_frame(9, [("t", [(0, b"#" * 60_000)])]))
            await until(lambda: len(appends.late) == 2 * (round_ + 1))  # noqa: B023
            assert appends.records[:COUNT] == APPENDED
            assert appends.records[COUNT:] == [b"#" * 60_000]
            appends.records.clear()


async def test_those_behind_a_long_append_do_not_wait_for_the_disk() -> None:
    appends = Appends()
    async with serving(handlers(produce=appends.handle)) as server, await Peer.connect(server.port) as peer:
        peer.send(long_append(1))
        await until(lambda: len(appends.late) == 1)
        peer.send(long_append(2) + request_frame(ApiKey.DESCRIBE_CLUSTER, 0, {}, 3))
        await until(lambda: len(appends.late) == 2)
        assert not any(late.is_given for late in appends.late)
        for late in appends.late:
            late.give(STORED)
        for expected in (1, 2, 3):
            assert int.from_bytes((await peer.frame())[:4], "big") == expected


async def test_a_long_append_that_wants_no_answer_gets_none() -> None:
    appends = Appends()
    async with serving(handlers(produce=appends.handle)) as server, await Peer.connect(server.port) as peer:
        peer.send(long_append(1, acks=0))
        await peer.ask(ApiKey.DESCRIBE_CLUSTER, 0)
        assert appends.records == APPENDED


async def test_a_long_append_runs_its_course_when_its_client_goes() -> None:
    appends = Appends()
    async with serving(handlers(produce=appends.handle)) as server:
        peer = await Peer.connect(server.port)
        peer.send(long_append(1, acks=0))
        await until(lambda: appends.records)
        await peer.close()
        await until(lambda: appends.records == APPENDED)


async def test_a_long_answer_to_a_short_request_leaves_in_its_place() -> None:
    def metadata(context: RequestContext, request: Any) -> dict[str, Any]:
        return {"topics": [{"name": f"t{number}"} for number in range(COUNT)]}

    async with serving(handlers(metadata=metadata)) as server, await Peer.connect(server.port) as peer:
        peer.request(ApiKey.METADATA, 9, {"topics": []}, 1)
        peer.request(ApiKey.DESCRIBE_CLUSTER, 0, {}, 2)
        correlation_id, response = await peer.answer(ApiKey.METADATA, 9)
        assert (correlation_id, len(response.topics)) == (1, COUNT)
        assert (await peer.answer(ApiKey.DESCRIBE_CLUSTER, 0))[0] == 2


async def test_a_long_request_that_breaks_off_closes_its_connection_with_one_event() -> None:
    deletion = Deletion()
    body = encode_request(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["t"] * COUNT})
    with capture_logs() as events:
        async with serving(handlers(delete_topics=deletion.handle)) as server:
            async with await Peer.connect(server.port) as peer:
                broken = encode_request_frame(ApiKey.DELETE_TOPICS, 5, 1, "test", body[:-6])
                peer.send(b"".join(broken))
                assert await peer.closed() == b""
            await served_meanwhile(server)
    assert deletion.names == []
    (event,) = [event for event in events if event["event"] == "connection_closed_bad_request"]
    assert f"topic_names[{COUNT - 1}]" in event["reason"]


@pytest.mark.parametrize("error", [ApiError(ErrorCode.POLICY_VIOLATION), ValueError("a fault of ours")])
async def test_an_error_in_a_later_step_is_that_apis_answer(error: Exception) -> None:
    def failing(context: RequestContext, request: Any) -> Steps[Any]:
        yield
        raise error

    async with serving(handlers(delete_topics=failing)) as server, await Peer.connect(server.port) as peer:
        peer.send(long_deletion(1, 3))
        _, response = await peer.answer(ApiKey.DELETE_TOPICS, 5)
        expected = error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
        assert [held.error_code for held in response.responses] == [expected] * 3
        await peer.ask(ApiKey.DESCRIBE_CLUSTER, 0)


def long_fetch(correlation_id: int, max_bytes: int = 1) -> bytes:
    partitions = [FetchPartition(index, -1, 0, -1, -1, 1) for index in range(COUNT)]
    request = FetchRequest(-1, 60_000, 1, max_bytes, 0, 0, -1, [("t", partitions)])
    body = encode_fetch_request(12, request)
    return b"".join(encode_request_frame(ApiKey.FETCH, 12, correlation_id, "test", body))


async def test_long_fetches_that_want_little_do_not_keep_their_connection_from_being_read() -> None:
    """They reserve what they ask for. So the end of the connection is noticed, and ends them."""
    polled: list[asyncio.Event] = []

    def fetch(context: RequestContext, request: FetchRequest) -> LateAnswer:
        async def poll() -> None:
            polled.append(ended := asyncio.Event())
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        return LateAnswer.of(poll(), 0)

    bounds = {"connection_queued_max_bytes": 100_000, "fetch_max_bytes": 60_000}
    async with serving(handlers(fetch=fetch), **bounds) as server:
        peer = await Peer.connect(server.port)
        peer.send(long_fetch(1, 10_000) + long_fetch(2, 10_000))
        await until(lambda: len(polled) == 2)
        await peer.close()
        await until(lambda: all(ended.is_set() for ended in polled))


async def test_a_long_fetch_is_a_long_poll_like_any_other() -> None:
    polled: list[asyncio.Event] = []

    def fetch(context: RequestContext, request: FetchRequest) -> Any:
        async def poll() -> FetchResponse:
            polled.append(asyncio.Event())
            await polled[-1].wait()
            return FetchResponse(0, 0, 0, [])

        return poll()

    frame = long_fetch(1)
    appends = Appends()
    both = handlers(fetch=fetch, produce=appends.handle)
    async with serving(both) as server, await Peer.connect(server.port) as peer:
        peer.send(frame + produce_frame(9, [("t", [(0, b"behind")])], correlation_id=2))
        await until(lambda: appends.records == [b"behind"])
        await until(lambda: len(polled) == 1)
        appends.late[0].give([("t", [ProducePartitionResult(0, 0)])])
        polled[0].set()
        assert int.from_bytes((await peer.frame())[:4], "big") == 1
        assert int.from_bytes((await peer.frame())[:4], "big") == 2


async def test_many_long_requests_at_once_are_all_answered() -> None:
    deletion = Deletion()
    async with serving(handlers(delete_topics=deletion.handle)) as server:
        peers = [await Peer.connect(server.port) for _ in range(10)]
        for peer in peers:
            peer.send(long_deletion(1, COUNT // 4))
        for peer in peers:
            _, response = await peer.answer(ApiKey.DELETE_TOPICS, 5)
            assert len(response.responses) == COUNT // 4
            await peer.close()
