"""A broker process from outside: its first line, its refusals to start, and its end."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.unit.broker.net.peers import Peer
from tests.waiting import DEADLINE_SECONDS
from tidelog.client import Admin, ConfigResource, ConfigResourceType, NewTopic
from tidelog.protocol.schema import ApiKey


class Process:
    """`python -m tidelog.broker` and its first line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdout, self.stderr = process.stdout, process.stderr

    @classmethod
    async def spawn(cls, *arguments: str) -> "Process":
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", "tidelog.broker", *arguments)
        return cls(await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe))

    async def event(self) -> dict[str, object]:
        async with asyncio.timeout(DEADLINE_SECONDS):
            event = json.loads(await self.stdout.readline())
        assert isinstance(event, dict)
        return event

    async def end(self) -> tuple[int, str, str]:
        """(exit code, rest of standard output, standard error)."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                out, errors = await self.process.communicate()
        finally:
            await self.kill()
        assert self.process.returncode is not None
        return self.process.returncode, out.decode(), errors.decode()

    async def kill(self) -> None:
        """Nothing happens if it has ended."""
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


@asynccontextmanager
async def started(data_dir: Path, *arguments: str) -> AsyncIterator[tuple[Process, dict[str, object]]]:
    given = ("--port", "0", "--http-port", "0", "--data-dir", str(data_dir), *arguments)
    broker = await Process.spawn(*given)
    try:
        yield broker, await broker.event()
    finally:
        await broker.kill()


def port_of(event: dict[str, object], name: str = "port") -> int:
    port = event[name]
    assert isinstance(port, int)
    return port


async def test_the_first_line_says_where_the_broker_serves_and_both_ports_accept(tmp_path: Path) -> None:
    async with started(tmp_path) as (_, event):
        assert event["event"] == "broker_started"
        assert event["data_dir"] == str(tmp_path)
        async with await Peer.connect(port_of(event)) as peer:
            assert (await peer.ask(ApiKey.API_VERSIONS, 3)).error_code == 0
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(event, "http_port"))
        writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
        assert b" 200 OK" in await reader.readline()
        writer.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_broker_cleanly_with_exit_code_0(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with started(tmp_path) as (broker, event):
        async with await Peer.connect(port_of(event)) as peer:
            await peer.ask(ApiKey.METADATA, 9, {"topics": [{"name": "t"}], "allow_auto_topic_creation": True})
            broker.process.send_signal(number)
            broker.process.send_signal(number)  # Once more does no harm.
            assert await peer.closed() == b""
        code, out, errors = await broker.end()
    assert (code, errors) == (0, "")
    events = [json.loads(line)["event"] for line in out.splitlines()]
    assert events[-1] == "broker_stopped"
    assert "broker_stopping" in events


async def test_a_signal_ends_a_broker_whose_remote_storage_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anyone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
    is_asked = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_asked.set()
        await reader.read()
        writer.close()

    store = await asyncio.start_server(hang, "127.0.0.1", 0)
    host, port = store.sockets[0].getsockname()
    settings = (
        "remote.log.storage.system.enable=true",
        "remote.storage.url=s3://bucket/prefix",
        f"remote.storage.endpoint=http://{host}:{port}",
        f"remote.storage.request.timeout.ms={round(10_000 * DEADLINE_SECONDS)}",
    )
    arguments = [each for setting in settings for each in ("--set", setting)]
    async with store, started(tmp_path, *arguments) as (broker, event):
        async with Admin(bootstrap_servers=f"127.0.0.1:{port_of(event)}") as admin:
            await admin.create_topics([NewTopic("t", topic_configs={"remote.storage.enable": "true"})])
        async with asyncio.timeout(DEADLINE_SECONDS):
            await is_asked.wait()
        broker.process.terminate()
        code, out, errors = await broker.end()
    assert (code, errors) == (0, "")
    assert json.loads(out.splitlines()[-1])["event"] == "broker_stopped"


@pytest.mark.parametrize("when", ["at the start", "while it runs"])
async def test_events_below_the_log_level_are_not_logged(tmp_path: Path, when: str) -> None:
    arguments = ("--set", "log.level=warn") if when == "at the start" else ()
    async with started(tmp_path, *arguments) as (broker, event):
        if not arguments:
            async with Admin(bootstrap_servers=f"127.0.0.1:{port_of(event)}") as admin:
                await admin.alter_configs(
                    {ConfigResource(ConfigResourceType.BROKER, "1"): {"log.level": "WARN"}}
                )
        broker.process.send_signal(signal.SIGTERM)
        code, out, errors = await broker.end()
    assert (code, "broker_stop" in out, errors) == (0, False, "")


def one_line(errors: str, *words: str) -> None:
    (line,) = errors.splitlines()
    assert json.loads(line)["event"] == "broker_not_started"
    for word in words:
        assert word in line


async def test_a_port_in_use_is_one_clear_line_and_exit_code_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        broker = await Process.spawn("--port", port, "--http-port", "0", "--data-dir", str(tmp_path / "new"))
        code, out, errors = await broker.end()
    assert (code, out) == (1, "")
    one_line(errors, f"127.0.0.1 port {port}", "Address already in use", "choose another port")
    assert not (tmp_path / "new").exists()


async def test_a_data_folder_in_use_is_one_clear_line_and_exit_code_1(tmp_path: Path) -> None:
    async with started(tmp_path):
        second = await Process.spawn("--port", "0", "--http-port", "0", "--data-dir", str(tmp_path))
        code, out, errors = await second.end()
    assert (code, out) == (1, "")
    one_line(errors, str(tmp_path), "another broker")


@pytest.mark.parametrize("name", ["file/data", "too long " * 50])
async def test_a_data_folder_that_cannot_be_written_is_one_clear_line_and_exit_code_1(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").write_text("not a folder")
    broker = await Process.spawn("--port", "0", "--http-port", "0", "--data-dir", str(tmp_path / name))
    code, out, errors = await broker.end()
    assert (code, out) == (1, "")
    one_line(errors, str(tmp_path / name), "data.dir")
