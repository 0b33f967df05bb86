"""/metrics, /healthz and /readyz on a real socket, and what a broker that nobody scrapes does not pay."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.net.endpoints import BindError, bind
from tidelog.broker.net.http import HttpServer
from tidelog.broker.net.http_places import MOST_AT_WORK, MOST_CONNECTIONS, MOST_PER_ADDRESS, MOST_UNREAD
from tidelog.broker.observability.metrics import Metrics


async def _echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


async def _large(request: web.Request) -> web.Response:
    return web.Response(body=bytes(16 << 20))


async def _fail(request: web.Request) -> web.Response:
    raise RuntimeError("why")


class Http:
    """A served HttpServer whose readiness the test decides."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.is_ready = True
        self.events = PeerEvents()
        self.held = asyncio.Event()
        self.working = self.turn = 0
        self.turns: list[int] = []
        self.server = HttpServer(
            bind("127.0.0.1", 0, "http.port"),
            self.metrics,
            lambda: self.is_ready,
            self.events,
            self._add_routes,
        )

    async def _hold(self, request: web.Request) -> web.Response:
        self.working += 1
        await self.held.wait()
        return web.Response()

    async def _note(self, request: web.Request) -> web.Response:
        self.turns.append(self.turn)
        return web.Response()

    def count_turns(self) -> None:
        self.turn += 1
        asyncio.get_running_loop().call_soon(self.count_turns)

    def _add_routes(self, application: web.Application) -> None:
        application.router.add_get("/noted", self._note)
        application.router.add_get("/held", self._hold)
        application.router.add_get("/large", _large)
        application.router.add_post("/body", _echo)
        application.router.add_get("/failing", _fail)

    async def send(self, data: bytes) -> bytes:
        """What comes back for `data`, after which nothing is sent any more."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        async with asyncio.timeout(DEADLINE_SECONDS):
            try:
                writer.write(data)
                await writer.drain()
                writer.write_eof()
                return await reader.read()
            except ConnectionError:
                return b""
            finally:
                writer.transport.abort()

    async def get(self, path: str) -> tuple[int, dict[str, str], str]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        async with asyncio.timeout(DEADLINE_SECONDS):
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
        status, *lines = head.split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return int(status.split()[1]), headers, body


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    http = Http()
    http.server.start()
    yield http
    await http.server.stop()


async def test_metrics_come_in_the_prometheus_text_format(http: Http) -> None:
    http.metrics.out_of_order()
    status, headers, body = await http.get("/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "tidelog_out_of_order_batches_total 1.0\n" in body


async def test_healthz_is_well_as_long_as_the_loop_turns_and_readyz_only_while_requests_are_served(
    http: Http,
) -> None:
    assert (await http.get("/healthz"))[0] == 200
    assert (await http.get("/readyz"))[0] == 200
    http.is_ready = False
    assert (await http.get("/readyz"))[0] == 503
    assert (await http.get("/healthz"))[0] == 200
    assert (await http.get("/nowhere"))[0] == 404


async def test_many_first_connections_are_all_served(http: Http) -> None:
    answers = await asyncio.gather(*(http.get("/healthz") for _ in range(20)))
    assert {status for status, _, _ in answers} == {200}


@pytest.mark.parametrize(
    ("begun", "answer"),
    [
        (b"", b""),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ", b""),
        (
            b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na",
            b"HTTP/1.1 408 Request Timeout\r\n",
        ),
    ],
)
async def test_who_sends_no_whole_request_is_cut_off(
    http: Http, monkeypatch: pytest.MonkeyPatch, begun: bytes, answer: bytes
) -> None:
    monkeypatch.setattr("tidelog.broker.net.http._IDLE_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", http.server.port)
    writer.write(begun)
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await reader.readline() == answer
        await reader.read()
    writer.close()


_HEAD = b"POST /body HTTP/1.1\r\nHost: x\r\n"
BAD_HTTP = {
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    "Kafka": b"\0\0\0\x12\0\x12\0\3\0\0\0\1\0\4test\0\2a\2b\0",
    "garbage": bytes(range(255, 0, -1)) * 40,
    "a version that does not exist": b"GET / HTTP/9.9\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a long path": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    "a long header": _HEAD + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
    "many headers": _HEAD + b"".join(b"h%d: x\r\n" % number for number in range(20_000)) + b"\r\n",
    "a header with a blank": _HEAD + b"X : y\r\n\r\n",
    "a length that is no number": _HEAD + b"Content-Length: abc\r\n\r\n",
    "two lengths": _HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nabc",
    "a chunk without size": _HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc",
    "a chunk that is too long": _HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcdefgh\r\n",
    "chunks that end": _HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
    "a body that ends": _HEAD + b"Content-Length: 100\r\n\r\nabc",
    "a body that is not gzip": _HEAD + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde",
    "a large body": _HEAD + b"Content-Length: 50000000\r\n\r\n" + b"x" * 3_000_000,
}


@pytest.mark.parametrize("data", BAD_HTTP.values(), ids=BAD_HTTP.keys())
async def test_bad_http_makes_no_traceback_and_is_no_fault_of_the_server(
    http: Http, data: bytes, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with capture_logs() as events:
        answer = await http.send(data)
        assert (await http.get("/healthz"))[0] == 200
    assert not answer or answer.split()[1].startswith(b"4")
    assert {event["event"] for event in events} <= {"http_request_bad"}
    assert not any("exc_info" in event or "Traceback" in str(event) for event in events)
    assert not caplog.records
    assert "Traceback" not in capfd.readouterr().err


async def test_a_fault_of_the_server_is_an_event_with_its_traceback(http: Http) -> None:
    with capture_logs() as events:
        assert (await http.get("/failing"))[0] == 500
    (event,) = events
    assert (event["event"], event["peer"]) == ("http_request_failed", "127.0.0.1")
    assert isinstance(event["exc_info"], RuntimeError)


async def test_bad_http_is_logged_a_few_times_and_then_counted(http: Http) -> None:
    with capture_logs() as events:
        for _ in range(15):
            await http.send(BAD_HTTP["a version that does not exist"])
        http.events.close()
    assert [event["event"] for event in events] == ["http_request_bad"] * 10 + ["events_held_back"]
    assert (events[-1]["of"], events[-1]["peer"], events[-1]["events"]) == (
        "http_request_bad",
        "127.0.0.1",
        5,
    )


async def test_a_server_without_a_request_stops_as_well() -> None:
    http = Http()
    http.server.start()
    await http.server.stop()
    with pytest.raises(ConnectionError):
        await http.get("/healthz")


async def test_a_port_that_another_listens_on_is_refused_with_the_setting_to_change(http: Http) -> None:
    with pytest.raises(
        BindError,
        match=rf"cannot listen on 127\.0\.0\.1 port {http.server.port}: Address already in use.*http\.port",
    ):
        bind("127.0.0.1", http.server.port, "http.port")


def test_a_start_imports_neither_what_comes_with_the_first_http_connection_nor_the_client() -> None:
    program = "import sys, tidelog.broker.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    late = ("aiohttp", "prometheus_client", "pydantic", "tidelog.client")
    assert not [name for name in done.stdout.split() if name.startswith(late)]


async def test_connections_beyond_the_limit_of_an_address_replace_the_longest_open_ones(http: Http) -> None:
    assert (await http.get("/healthz"))[0] == 200
    idle = [await asyncio.open_connection("127.0.0.1", http.server.port) for _ in range(MOST_PER_ADDRESS + 8)]
    ended = [asyncio.ensure_future(reader.read()) for reader, _ in idle]
    async with asyncio.timeout(DEADLINE_SECONDS):
        await asyncio.gather(*ended[:8])
    assert (await http.get("/healthz"))[0] == 200
    for _, writer in idle:
        writer.close()
    await asyncio.gather(*ended, return_exceptions=True)
    await until(lambda: http.server.connections == 0)


async def test_too_many_requests_at_work_are_refused_and_keep_no_health_check_out(http: Http) -> None:
    working = [asyncio.ensure_future(http.get("/held")) for _ in range(MOST_AT_WORK)]
    await until(lambda: http.working == MOST_AT_WORK)
    status, headers, body = await http.get("/metrics")
    assert (status, headers["retry-after"]) == (503, "1")
    assert body.endswith("try again\n")
    assert (await http.get("/healthz"))[0] == 200
    http.held.set()
    assert {status for status, _, _ in await asyncio.gather(*working)} == {200}
    assert (await http.get("/metrics"))[0] == 200


async def test_a_connection_with_a_request_in_progress_is_not_closed_for_others(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.broker.net.http._IDLE_SECONDS", 10 * DEADLINE_SECONDS)
    working = asyncio.ensure_future(http.get("/held"))
    await until(lambda: http.working == 1)
    # Of as many addresses, so that none has more connections than that one.
    strangers = [
        await asyncio.open_connection(
            "127.0.0.1", http.server.port, local_addr=(f"127.0.{number // 200}.{number % 200 + 2}", 0)
        )
        for number in range(MOST_CONNECTIONS)
    ]
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await strangers[0][0].read() == b""
    http.held.set()
    assert (await working)[0] == 200
    for _, writer in strangers:
        writer.transport.abort()


async def test_requests_that_arrive_together_begin_in_turns_of_the_loop(http: Http) -> None:
    await http.get("/healthz")
    pairs = [await asyncio.open_connection("127.0.0.1", http.server.port) for _ in range(20)]
    await until(lambda: http.server.connections >= 20)
    http.count_turns()
    for _, writer in pairs:
        writer.write(b"GET /noted HTTP/1.1\r\nHost: x\r\n\r\n")
    await until(lambda: len(http.turns) == 20)
    assert len(set(http.turns)) == 20
    for _, writer in pairs:
        writer.transport.abort()


async def test_unread_answers_are_limited(http: Http) -> None:
    await http.get("/healthz")
    pairs = []
    for _ in range(MOST_UNREAD + 8):
        pair = await asyncio.open_connection("127.0.0.1", http.server.port, limit=1)
        pair[1].write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        pairs.append(pair)
    await until(lambda: http.server.connections == MOST_UNREAD)
    assert (await http.get("/healthz"))[0] == 200
    for _, writer in pairs:
        writer.transport.abort()


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/nowhere", "/ HTTP/9.9 "])
async def test_no_answer_names_a_version_of_the_server(http: Http, path: str) -> None:
    _, headers, _ = await http.get(path)
    assert headers["server"] == "tidelog"
