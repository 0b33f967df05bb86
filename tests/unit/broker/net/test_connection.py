"""A connection on a real socket: the order of answers, back-pressure, and how connections end."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.net.peers import (
    Peer,
    Running,
    measured_by_the_loop,
    produce_frame,
    request_frame,
    serving,
)
from tests.unit.broker.observability.test_metrics import value
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.handlers.connection_state import AuthenticationStep, ConnectionState
from tidelog.broker.handlers.context import CloseConnection, Handler, LateAnswer
from tidelog.broker.net import connection
from tidelog.broker.net import server as server_module
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.framing import encode_request_frame
from tidelog.protocol.hot import ProducePartitionResult
from tidelog.protocol.quotas import CONNECTION_CREATION_RATE, IP
from tidelog.protocol.schema import ApiKey

Future = asyncio.Future[Any]
PRODUCED = [("t", [ProducePartitionResult(0, 0, 0)])]


def api_versions(context: Any, request: Any) -> Any:
    return {"error_code": 0}


class Held:
    """A handler whose answers are futures that the test resolves, in any order it likes."""

    def __init__(self) -> None:
        self.futures: list[Future] = []

    def handle(self, context: Any, request: Any) -> Future:
        future: Future = asyncio.get_running_loop().create_future()
        self.futures.append(future)
        return future

    async def arrived(self, count: int) -> None:
        await until(lambda: len(self.futures) >= count)


@pytest.fixture
def held() -> Held:
    return Held()


def handlers_with(held: Held) -> dict[ApiKey, Handler]:
    return {ApiKey.PRODUCE: held.handle, ApiKey.API_VERSIONS: api_versions}


@pytest.fixture
async def server(held: Held) -> AsyncIterator[Running]:
    async with serving(handlers_with(held)) as running:
        yield running


async def test_late_answers_leave_in_order_and_what_goes_wrong_with_one_harms_no_other() -> None:
    late: list[LateAnswer] = []

    def handle(context: Any, request: Any) -> LateAnswer:
        late.append(LateAnswer())
        return late[-1]

    async with serving({ApiKey.PRODUCE: handle}) as server, await Peer.connect(server.port) as peer:
        async with await Peer.connect(server.port) as gone:
            gone.send(produce_frame(9, [("t", [(0, b"x")])]))
            await until(lambda: len(late) == 1)
        for correlation_id in range(3):
            peer.send(produce_frame(9, [("t", [(0, b"x")])], correlation_id=correlation_id))
        await until(lambda: len(late) == 4)
        with capture_logs() as events:
            for answer, result in zip(
                reversed(late), (PRODUCED, "no answer", PRODUCED, PRODUCED), strict=True
            ):
                answer.give(result)
        late[1].give("too late")
        answers = [await peer.answer(ApiKey.PRODUCE, 9) for _ in range(3)]
        assert [correlation_id for correlation_id, _ in answers] == [0, 1, 2]
        codes = [answer.responses[0].partition_responses[0].error_code for _, answer in answers]
        assert codes == [0, ErrorCode.UNKNOWN_SERVER_ERROR, 0]
        assert [event["event"] for event in events] == ["request_failed"]


async def test_no_more_is_read_while_too_many_requests_wait_and_all_are_served_in_the_end(held: Held) -> None:
    async with (
        serving(handlers_with(held), connection_queued_max_requests=4) as server,
        await Peer.connect(server.port) as peer,
    ):
        for correlation_id in range(20):
            peer.send(produce_frame(9, [("t", [(0, b"x")])], correlation_id=correlation_id))
        await held.arrived(4)
        async with await Peer.connect(server.port) as other:
            await other.ask(ApiKey.API_VERSIONS, 3)
        assert len(held.futures) == 4
        for answered in range(20):
            await held.arrived(answered + 1)
            held.futures[answered].set_result(PRODUCED)
            assert (await peer.answer(ApiKey.PRODUCE, 9))[0] == answered
            assert len(held.futures) <= answered + 5


async def test_a_client_that_sends_many_requests_at_once_keeps_no_other_waiting(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "TURN_SECONDS", 1e-5)
    served: list[int] = []

    def counted(context: Any, request: Any) -> Any:
        served.append(len(held.futures))
        return {"error_code": 0}

    handlers = {ApiKey.PRODUCE: held.handle, ApiKey.API_VERSIONS: counted}
    async with (
        serving(handlers) as server,
        await Peer.connect(server.port) as many,
        await Peer.connect(server.port) as other,
    ):
        frames = [request_frame(ApiKey.API_VERSIONS, 0, {}, number) for number in range(1_000)]
        many.send(b"".join(frames))
        await until(lambda: served)
        other.send(produce_frame(9, [("t", [(0, b"x")])]))
        answers = [(await many.answer(ApiKey.API_VERSIONS, 0))[0] for _ in frames]
        assert answers == list(range(1_000))
        # Those after the first were served when the other client's request had been.
        assert served.count(0) < 500
        held.futures[0].set_result(PRODUCED)
        await other.answer(ApiKey.PRODUCE, 9)


async def test_no_more_is_dispatched_while_answers_held_back_take_too_many_bytes(held: Held) -> None:
    calls: list[int] = []

    def large(context: Any, request: Any) -> Any:
        calls.append(context.header.correlation_id)
        return {"topics": [{"name": "n" * 30_000}]}

    handlers = {**handlers_with(held), ApiKey.METADATA: large}
    async with (
        serving(handlers, connection_queued_max_bytes=100_000) as server,
        await Peer.connect(server.port) as peer,
    ):
        peer.send(produce_frame(9, [("t", [(0, b"x")])]))
        for correlation_id in range(1, 31):
            peer.request(ApiKey.METADATA, 1, {}, correlation_id)
        await until(lambda: len(calls) >= 4)
        async with await Peer.connect(server.port) as other:
            await other.ask(ApiKey.API_VERSIONS, 3)
        assert len(calls) == 4
        held.futures[0].set_result(PRODUCED)
        await peer.answer(ApiKey.PRODUCE, 9)
        ids = [(await peer.answer(ApiKey.METADATA, 1))[0] for _ in range(30)]
        assert ids == list(range(1, 31))


async def test_no_more_is_dispatched_while_the_client_does_not_read_its_answers() -> None:
    calls: list[int] = []

    def large(context: Any, request: Any) -> Any:
        calls.append(context.header.correlation_id)
        return {"topics": [{"name": "n" * 32_000} for _ in range(32)]}

    async with (
        serving({ApiKey.METADATA: large, ApiKey.API_VERSIONS: api_versions}) as server,
        await Peer.connect(server.port, limit=1 << 16) as peer,
    ):
        for correlation_id in range(200):
            peer.request(ApiKey.METADATA, 1, {}, correlation_id)
        await until(lambda: len(calls) >= 2)
        async with await Peer.connect(server.port) as other:
            for _ in range(20):
                await other.ask(ApiKey.API_VERSIONS, 3)
        assert len(calls) < 50  # What sockets and the high-water mark hold, of 200 MB.
        ids = [(await peer.answer(ApiKey.METADATA, 1))[0] for _ in range(200)]
        assert ids == list(range(200))


async def test_a_client_that_goes_cancels_its_long_polls_and_never_an_append(held: Held) -> None:
    cancelled = asyncio.Event()
    started = asyncio.Event()

    async def long_poll() -> Any:
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cancelled.set()

    handlers = {**handlers_with(held), ApiKey.FETCH: lambda *_: long_poll()}
    async with serving(handlers) as server:
        async with await Peer.connect(server.port) as peer:
            peer.send(produce_frame(9, [("t", [(0, b"x")])]))
            peer.request(ApiKey.FETCH, 4, {"topics": []})
            await started.wait()
        async with asyncio.timeout(DEADLINE_SECONDS):
            await cancelled.wait()
        assert not held.futures[0].cancelled()
        held.futures[0].set_result(PRODUCED)


@pytest.mark.parametrize(
    ("data", "api_key"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", None),
        (b"\xff\xff\xff\xff", None),
        (b"\x7f\xff\xff\xff", None),
        (b"\0\0\0\0", None),
        (b"\0\0\0\3abc", None),
        (b"".join(encode_request_frame(ApiKey.METADATA, 99, 1, "test", b"")), 3),
        (b"".join(encode_request_frame(ApiKey.API_VERSIONS, 3, 1, "test", b"\xff")), 18),
    ],
)
async def test_bad_bytes_close_the_connection_with_exactly_one_log_event(
    server: Running, data: bytes, api_key: int | None
) -> None:
    with capture_logs() as events:
        async with await Peer.connect(server.port) as peer, await Peer.connect(server.port) as other:
            peer.send(data + b"\0\0\0\x01more")
            assert await peer.closed() == b""
            await other.ask(ApiKey.API_VERSIONS, 3)
    (event,) = events
    assert event["event"] == "connection_closed_bad_request"
    assert (event["log_level"], event["api_key"]) == ("warning", api_key)
    assert event["peer"].startswith("127.0.0.1:")
    assert event["reason"]
    assert value(server.metrics, "tidelog_connections_closed_bad_request_total") == 1


async def test_answers_that_are_ready_leave_before_bad_bytes_close_the_connection(server: Running) -> None:
    with capture_logs():
        async with await Peer.connect(server.port) as peer:
            peer.send(request_frame(ApiKey.API_VERSIONS, 3, {}, 5))
            assert (await peer.answer(ApiKey.API_VERSIONS, 3))[0] == 5
            peer.send(request_frame(ApiKey.API_VERSIONS, 3, {}, 6) + b"\0\0\0\3abc")
            assert (await peer.answer(ApiKey.API_VERSIONS, 3))[0] == 6
            assert await peer.closed() == b""


async def test_a_handler_that_fails_late_kills_neither_connection_nor_broker(
    server: Running, held: Held
) -> None:
    with capture_logs() as events:
        async with await Peer.connect(server.port) as peer:
            peer.send(produce_frame(9, [("t", [(0, b"x")])]))
            await held.arrived(1)
            held.futures[0].set_exception(RuntimeError("why"))
            _, response = await peer.answer(ApiKey.PRODUCE, 9)
            assert response.responses[0].partition_responses[0].error_code == -1
            await peer.ask(ApiKey.API_VERSIONS, 3)
    assert [event["event"] for event in events] == ["request_failed"]


@pytest.mark.parametrize("at_once", [True, False])
async def test_an_answer_that_is_none_closes_the_connection_when_its_turn_comes(
    held: Held, at_once: bool
) -> None:
    def close(context: Any, request: Any) -> Any:
        if at_once:
            raise CloseConnection
        return held.handle(context, request)

    handlers = {**handlers_with(held), ApiKey.METADATA: close}
    async with serving(handlers) as server, await Peer.connect(server.port) as peer:
        peer.send(produce_frame(9, [("t", [(0, b"x")])], correlation_id=1))
        peer.request(ApiKey.METADATA, 1, {}, 2)
        peer.request(ApiKey.API_VERSIONS, 3, {}, 3)
        await held.arrived(1 if at_once else 2)
        if not at_once:
            held.futures[1].set_exception(CloseConnection())
        async with await Peer.connect(server.port) as other:
            await other.ask(ApiKey.API_VERSIONS, 3)
        held.futures[0].set_result(PRODUCED)
        assert (await peer.answer(ApiKey.PRODUCE, 9))[0] == 1
        assert await peer.closed() == b""


async def test_one_connection_more_than_allowed_is_closed_and_a_place_that_falls_free_is_given_again(
    held: Held,
) -> None:
    async with serving(handlers_with(held), max_connections=2) as server:
        with capture_logs() as events:
            async with await Peer.connect(server.port) as first:
                await first.ask(ApiKey.API_VERSIONS, 3)
                async with await Peer.connect(server.port) as second:
                    await second.ask(ApiKey.API_VERSIONS, 3)
                    for _ in range(3):
                        async with await Peer.connect(server.port) as third:
                            assert await third.closed() == b""
                await until(lambda: server.metrics.connections == 1)
                async with await Peer.connect(server.port) as fourth:
                    await fourth.ask(ApiKey.API_VERSIONS, 3)
        assert [event["event"] for event in events] == ["connection_refused"] * 3
        assert events[0]["max_connections"] == 2
        assert value(server.metrics, "tidelog_connections_refused_total") == 3


async def test_an_address_gets_its_number_of_connections_and_its_rate(held: Held) -> None:
    overrides = ("10.0.0.1:9", "127.0.0.1:1")
    limits = {"max_connections_per_ip": 0, "max_connections_per_ip_overrides": overrides}
    # Its clients come with addresses of IPv6 that stand for those of IPv4.
    async with serving(handlers_with(held), host="::ffff:127.0.0.1", **limits) as server:
        with capture_logs() as events:
            async with await Peer.connect(server.port) as first:
                await first.ask(ApiKey.API_VERSIONS, 3)
                async with await Peer.connect(server.port) as second:
                    assert await second.closed() == b""
            await until(lambda: server.metrics.connections == 0)
            server.limits.replace({((IP, "127.0.0.1"),): {CONNECTION_CREATION_RATE: 0.001}})
            async with await Peer.connect(server.port) as third:
                await third.ask(ApiKey.API_VERSIONS, 3)
            await until(lambda: server.metrics.connections == 0)
            async with await Peer.connect(server.port) as fourth:
                assert await fourth.closed() == b""
    assert [event["event"] for event in events] == ["connection_refused"] * 2
    assert "max.connections.per.ip" in events[0]["advice"]
    assert "connection_creation_rate" in events[1]["advice"]


async def test_above_the_connection_rate_of_the_broker_new_ones_wait(held: Held) -> None:
    async with serving(handlers_with(held), max_connection_creation_rate=5) as server:
        began = asyncio.get_running_loop().time()
        peers = [await Peer.connect(server.port) for _ in range(8)]
        for peer in peers:
            await peer.ask(ApiKey.API_VERSIONS, 3)
            await peer.close()
        assert asyncio.get_running_loop().time() - began >= (8 - 6) / 5 - 0.05


async def test_an_idle_connection_is_closed_and_one_that_waits_for_an_answer_is_not(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured_by_the_loop(monkeypatch, connection, server_module)
    with capture_logs() as events:
        async with (
            serving(handlers_with(held), connections_max_idle_ms=50) as server,
            await Peer.connect(server.port) as idle,
            await Peer.connect(server.port) as waiting,
        ):
            waiting.send(produce_frame(9, [("t", [(0, b"x")])]))
            await held.arrived(1)
            assert await idle.closed() == b""
            assert server.metrics.connections == 1
            held.futures[0].set_result(PRODUCED)
            await waiting.answer(ApiKey.PRODUCE, 9)
            assert await waiting.closed() == b""
    assert {event["event"] for event in events} == {"connection_closed_idle"}


async def test_a_stop_answers_what_is_in_flight_and_takes_nothing_more(held: Held) -> None:
    async def forever() -> Any:
        await asyncio.get_running_loop().create_future()

    handlers = {**handlers_with(held), ApiKey.FETCH: lambda *_: forever()}
    server = await Running.start_with(handlers, {})
    async with await Peer.connect(server.port) as peer:
        peer.request(ApiKey.FETCH, 7, {"topics": []}, 1)
        peer.send(produce_frame(9, [("t", [(0, b"x")])], correlation_id=2))
        await held.arrived(1)
        stopping = asyncio.create_task(server.stop(5000))
        assert (await peer.answer(ApiKey.FETCH, 7))[0] == 1
        peer.send(produce_frame(9, [("t", [(0, b"x")])], correlation_id=3))
        with pytest.raises(ConnectionError):
            await Peer.connect(server.port)
        held.futures[0].set_result(PRODUCED)
        assert (await peer.answer(ApiKey.PRODUCE, 9))[0] == 2
        assert await peer.closed() == b""
        assert await stopping == 0
    assert len(held.futures) == 1


async def test_a_stop_does_not_wait_longer_than_its_timeout(held: Held) -> None:
    server = await Running.start_with(handlers_with(held), {})
    async with await Peer.connect(server.port) as peer:
        peer.send(produce_frame(9, [("t", [(0, b"x")])]))
        await held.arrived(1)
        assert await server.stop(20) == 1
        assert await peer.closed() == b""


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (
            {
                "host": "0.0.0.0",
                "port": 0,
                "internal_port": 0,
                "internal_advertised_host": "broker",
                "internal_advertised_port": 29092,
            },
            ("PLAINTEXT", "INTERNAL"),
        ),
        (
            {
                "listeners": "OUTSIDE://:0,INSIDE://0.0.0.0:0",
                "advertised_listeners": "INSIDE://broker:29092",
                "listener_security_protocol_map": "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT",
            },
            ("OUTSIDE", "INSIDE"),
        ),
    ],
    ids=["short form", "lists"],
)
async def test_the_state_of_a_connection_names_its_listener_and_client_and_is_made_once(
    settings: dict[str, object], names: tuple[str, str]
) -> None:
    seen: list[ConnectionState] = []

    def handle(context: Any, request: Any) -> Any:
        seen.append(context.connection)
        return {}

    async with serving({ApiKey.API_VERSIONS: handle}, **settings) as server:
        ports = [endpoint.port for endpoint in server.endpoints]
        for port in ports:
            async with await Peer.connect(port) as peer:
                await peer.ask(ApiKey.API_VERSIONS, 3)
                await peer.ask(ApiKey.API_VERSIONS, 3)
    outside, again, inside, _ = seen
    assert outside is again
    assert outside.connection_id != inside.connection_id
    assert outside.listener == (names[0], "127.0.0.1", ports[0])
    assert inside.listener == (names[1], "broker", 29092)
    for state in seen:
        assert (state.client_host, state.principal) == ("127.0.0.1", ("User", "ANONYMOUS"))
        assert state.authentication is AuthenticationStep.NOT_REQUIRED
