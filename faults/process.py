"""A real `tidelog serve` process that can be killed, stopped, continued and started again.

Owns one process at a time, its log lines and its addresses. The data folder belongs to the caller.
Invariants: `port` and `http_port` are chosen at the first start and kept for all later ones; while the broker
does not run, no other process is given them. A method that ends the process returns only after it ended, so
the folder's lock is free.
"""

import asyncio
import contextlib
import json
import resource
import signal
import socket
import sys
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

LINES_KEPT = 10_000
_LONGEST_LINE_BYTES = 1024 * 1024


class BrokerProcessError(RuntimeError):
    """The broker did not start, or did not stop, as asked; the message ends with its last log lines."""


def hold_free_port() -> socket.socket:
    """A socket bound to a free port of 127.0.0.1. A server that sets SO_REUSEADDR can listen there."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


class BrokerProcess:
    """Starts, stops and kills one broker on `data_dir` and free ports. `settings` have Kafka's names
    (`log.segment.bytes`)."""

    def __init__(
        self,
        data_dir: Path,
        *,
        settings: Mapping[str, object] | None = None,
        command: Sequence[str] = (sys.executable, "-m", "tidelog.broker"),
    ) -> None:
        self.data_dir = data_dir
        self.host = "127.0.0.1"
        self.port = self.http_port = 0
        self.settings = dict(settings or {})
        self.log_lines: deque[str] = deque(maxlen=LINES_KEPT)
        self.starts = 0
        self.command = tuple(command)
        """The command to start, without the arguments; may be set between two starts."""
        self._process: asyncio.subprocess.Process | None = None
        self._ready: asyncio.Future[None] | None = None
        self._readers: list[asyncio.Task[None]] = []

    @property
    def pid(self) -> int | None:
        """Process id while it runs, else None."""
        return self._process.pid if self.is_running and self._process is not None else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def events(self, name: str) -> list[dict[str, Any]]:
        """The structured log events called `name`, oldest first, of all starts."""
        parsed = (event_of(line) for line in self.log_lines)
        return [event for event in parsed if event is not None and event.get("event") == name]

    async def start(self, timeout_ms: float = 120_000) -> int:
        """Start it and return its port after `broker_started`. Raises BrokerProcessError without it."""
        if self.is_running:
            raise BrokerProcessError(f"the broker already runs as process {self.pid}")
        self.port, self.http_port = self._chosen(self.port), self._chosen(self.http_port)
        arguments = [*self.command, "--data-dir", str(self.data_dir), "--http-port", str(self.http_port)]
        if "listeners" not in self.settings:
            arguments += ["--port", str(self.port)]
        for name, value in self.settings.items():
            arguments += ["--set", f"{name}={value}"]
        self._process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE_BYTES,
        )
        self.starts += 1
        self._ready = asyncio.get_running_loop().create_future()
        self._readers = [
            asyncio.create_task(self._collect(stream))
            for stream in (self._process.stdout, self._process.stderr)
            if stream is not None
        ]
        ended = asyncio.create_task(self._process.wait())
        try:
            await asyncio.wait(
                (self._ready, ended), timeout=timeout_ms / 1000, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:
            # No other code knows the process yet, so it must be ended here.
            await self.kill_9()
            raise
        finally:
            ended.cancel()
        if not self._ready.done():
            await self.kill_9()
            raise BrokerProcessError(self._complaint("the broker did not say broker_started"))
        return self.port

    def _chosen(self, port: int) -> int:
        """A free port for 0. It is held as long as `self`."""
        if port:
            return port
        held = hold_free_port()
        weakref.finalize(self, held.close)
        return int(held.getsockname()[1])

    async def kill_9(self) -> None:
        """SIGKILL, and wait for its end. Does nothing if it already ended."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self._wait_gone()

    async def terminate(self, timeout_ms: float = 120_000) -> int:
        """SIGTERM, and return the exit code. Kills it and raises BrokerProcessError past `timeout_ms`."""
        if self._process is None or self._process.returncode is not None:
            raise BrokerProcessError("the broker does not run")
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), timeout_ms / 1000)
        except TimeoutError:
            await self.kill_9()
            complaint = self._complaint(f"the broker ignored SIGTERM for {timeout_ms} ms")
            raise BrokerProcessError(complaint) from None
        return await self._wait_gone()

    async def restart(self, timeout_ms: float = 120_000) -> int:
        """Start it again on the same ports and folder, after a SIGTERM if it still runs; return its port."""
        if self.is_running:
            await self.terminate(timeout_ms)
        return await self.start(timeout_ms)

    def pause(self) -> None:
        """SIGSTOP: its sockets stay open, but it does not answer."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        self._signal(signal.SIGCONT)

    def limit_files(self, size_bytes: int | None) -> None:
        """Let writes fail with EFBIG that would make a file larger than this, as on a full disk; None ends
        that. Without effect while the process does not run."""
        if self.pid is not None:
            limit = resource.RLIM_INFINITY if size_bytes is None else size_bytes
            resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill_9()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None or self._process.returncode is not None:
            raise BrokerProcessError("the broker does not run")
        self._process.send_signal(number)

    async def _collect(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            text = line.decode(errors="replace").rstrip("\n")
            self.log_lines.append(text)
            if self._ready is None or self._ready.done():
                continue
            event = event_of(text)
            if event is not None and event.get("event") == "broker_started":
                self.port = int(event["port"])
                self.http_port = int(event["http_port"])
                self._ready.set_result(None)

    async def _wait_gone(self) -> int:
        if self._process is None:
            return 0
        exit_code = await self._process.wait()
        await asyncio.gather(*self._readers)
        return exit_code

    def _complaint(self, what: str) -> str:
        ended = "" if self._process is None else f" (exit code {self._process.returncode})"
        tail = "\n".join(list(self.log_lines)[-20:])
        return f"{what}{ended}; its last log lines:\n{tail}"


def event_of(line: str) -> dict[str, Any] | None:
    """The structured event in a line of a broker's log, None where there is none."""
    if not line.startswith("{"):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None
