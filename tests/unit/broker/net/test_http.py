"""/metrics, /healthz and /readyz on a real socket, and what a broker that nobody scrapes does not pay."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from tidelog.broker.metrics import Metrics
from tidelog.broker.net.http import HttpServer
from tidelog.broker.net.server import BindError, bind


class Http:
    """A served HttpServer whose readiness the test decides."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.is_ready = True
        self.server = HttpServer(bind("127.0.0.1", 0, "http.port"), self.metrics, lambda: self.is_ready)

    async def get(self, path: str) -> tuple[int, dict[str, str], str]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        async with asyncio.timeout(10):
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


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_who_sends_no_whole_request_is_cut_off(
    http: Http, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr("tidelog.broker.net.http._IDLE_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", http.server.port)
    writer.write(begun)
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()


async def test_a_server_that_nobody_asked_stops_as_well() -> None:
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


def test_aiohttp_and_prometheus_client_are_not_imported_to_start() -> None:
    late = {"aiohttp", "prometheus_client", "pydantic"}
    program = f"import sys, tidelog.broker.app; print({late} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
