"""A connection's bounds where they meet the transport and the long polls."""

import time
from typing import Any
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.net.peers import Peer, measured_by_the_loop, produce_frame, request_frame, serving
from tests.unit.broker.net.test_connection import PRODUCED, Held, handlers_with
from tests.waiting import until
from tidelog.broker.limits.queued_memory import QueuedMemory
from tidelog.broker.net import connection as connection_module
from tidelog.broker.net import server as server_module
from tidelog.broker.net.connection import Connection
from tidelog.broker.net.request_queue import RequestQueue, Waiting
from tidelog.protocol.hot import FetchResponse
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import Buffer


async def test_long_polls_count_as_the_most_that_they_may_bring() -> None:
    held = Held()
    fetch = {"max_bytes": 2**31 - 1, "topics": []}
    handlers = {**handlers_with(held), ApiKey.FETCH: held.handle}
    async with (
        serving(handlers, connection_queued_max_bytes=100_000, fetch_max_bytes=60_000) as server,
        await Peer.connect(server.port) as peer,
    ):
        for correlation_id in range(6):
            peer.request(ApiKey.FETCH, 7, fetch, correlation_id)
        await held.arrived(2)
        async with await Peer.connect(server.port) as other:
            await other.ask(ApiKey.API_VERSIONS, 3)
        assert len(held.futures) == 2
        for answered in range(6):
            await held.arrived(answered + 1)
            held.futures[answered].set_result(FetchResponse(0, 0, 0, []))
            assert (await peer.answer(ApiKey.FETCH, 7))[0] == answered
            assert len(held.futures) <= answered + 3


async def test_a_client_that_never_reads_its_answers_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    measured_by_the_loop(monkeypatch, connection_module, server_module)
    frame = [b"x" * 1_000_000]
    with capture_logs() as events:
        async with (
            serving({}, connections_max_idle_ms=200) as server,
            await Peer.connect(server.port, limit=1) as peer,
        ):
            server.dispatcher.dispatch = lambda *_: frame  # type: ignore[assignment,method-assign]
            peer.send(request_frame(ApiKey.API_VERSIONS, 3, {}) * 100)
            await until(lambda: server.metrics.connections == 1)
            await until(lambda: server.metrics.connections == 0)
    assert [event["event"] for event in events] == ["connection_closed_stuck"]


async def test_a_connection_is_stuck_only_while_nothing_leaves() -> None:
    async with serving({}) as server, await Peer.connect(server.port):
        await until(lambda: server.metrics.connections == 1)
        (connection,) = server._connections
        sizes = iter((7, 7, 5, 5, 0, 0))
        connection._transport = Mock(get_write_buffer_size=lambda: next(sizes))
        moments = [connection.is_stuck_since(time.perf_counter()) for _ in range(6)]
        assert moments == [False, True, False, True, False, False]


async def test_a_transport_that_resumes_from_within_a_write_sends_nothing_twice() -> None:
    """Newer asyncio transports call resume_writing inside writelines."""
    held = Held()
    async with serving(handlers_with(held), connection_queued_max_requests=3) as server:
        made: list[Connection] = []
        opened = server.connection_opened
        server.connection_opened = lambda one: made.append(one) or opened(one)  # type: ignore
        async with await Peer.connect(server.port) as peer:
            await until(lambda: made)
            connection = made[0]
            transport = connection._transport

            class Resuming:
                def __getattr__(self, name: str) -> Any:
                    return getattr(transport, name)

                def write(self, data: Any) -> None:
                    transport.write(data)
                    connection.resume_writing()

                def writelines(self, data: Any) -> None:
                    transport.writelines(data)
                    connection.resume_writing()

            connection._transport = Resuming()  # type: ignore[assignment]
            frames = [produce_frame(9, [("t", [(0, b"x")])], correlation_id=number) for number in range(3)]
            frames += [request_frame(ApiKey.API_VERSIONS, 3, {}, number) for number in range(3, 6)]
            peer.send(b"".join(frames))
            await held.arrived(3)
            connection.pause_writing()
            for future in held.futures:
                future.set_result(PRODUCED)
            ids = [(await peer.answer(ApiKey.PRODUCE, 9))[0] for _ in range(3)]
            ids += [(await peer.answer(ApiKey.API_VERSIONS, 3))[0] for _ in range(3)]
            assert ids == list(range(6))
            assert not peer.reader._buffer  # type: ignore[attr-defined]


class Two(Waiting):
    """Two requests that a stream took together."""

    answer: list[Buffer] | None = None
    requests = 2

    def abandon(self) -> None: ...

    def interrupt(self) -> None: ...


async def test_a_stream_takes_no_more_together_than_there_is_room_for() -> None:
    rooms: list[int] = []

    def serve(frames: list[memoryview], started: float, most: int) -> Waiting:
        rooms.append(most)
        del frames[-2:]
        return Two()

    async with (
        serving({}, connection_queued_max_requests=4) as server,
        await Peer.connect(server.port) as peer,
    ):
        await until(lambda: server.metrics.connections == 1)
        (connection,) = server._connections
        connection.stream = Mock(serve=serve)
        peer.send(request_frame(ApiKey.API_VERSIONS, 3, {}) * 6)
        await until(lambda: len(rooms) == 2)
        assert rooms == [4, 2]
        connection.cut()


def test_requests_that_were_taken_together_leave_their_room_with_their_answers() -> None:
    queue, out = RequestQueue(4, 5_000, 2_000, QueuedMemory(1 << 30)), list[Buffer]()
    first, second = Two(), Two()
    queue.add(first)
    queue.add(second)
    assert (queue.room(), queue.is_full()) == (0, True)
    first.answer = second.answer = [b"1", b"2"]
    assert (queue.answered(second, out), queue.answered(first, out), len(out)) == (2, 0, 4)
    assert (queue.room(), queue.is_full()) == (4, False)
    queue.add(Two())
    queue.add_answer([b"3"])
    queue.abandon()
    assert (queue.room(), queue.held_bytes) == (4, 0)
