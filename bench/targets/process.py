"""A server under measurement as a process: starts it, waits for it, reads its use of the machine, kills it.

Owns the processes it started. Invariants: `stop` returns only when the process has ended; a target that does
not get ready raises with the end of its output. Reads /proc, so memory and CPU time need Linux.
"""

import contextlib
import os
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from bench.wire import HOST, Wire
from faults.process import hold_free_port

READY_TIMEOUT_S = 60.0
_POLL_S = 0.001
_LAST_BYTES = 2_000
_CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class TargetError(RuntimeError):
    """A server did not start, or ended while it was needed. The message ends with its last output."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class Server(ABC):
    """What loads run against at `port`: one process, or some that work together."""

    name: str
    replicas: Sequence[int] = ()
    """The brokers that are to have each partition, the one at `port` first; empty: the server chooses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0

    @abstractmethod
    def start(self) -> None:
        """Start it and return when it serves. Raises TargetError."""

    @abstractmethod
    def stop(self) -> None:
        """Kill it and wait until it is gone; nothing happens if it never ran."""

    @abstractmethod
    def check_alive(self) -> None:
        """Raise TargetError when a process has ended."""

    @abstractmethod
    def parts(self) -> Mapping[str, Sequence[int]]:
        """The ids of its processes, by what they do."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Target(Server):
    """Runs one server process. `folder` is made for it on the disk that is measured; what it prints goes
    beside it."""

    ready_timeout_s = READY_TIMEOUT_S
    reuses_address = False
    """Whether the server sets SO_REUSEADDR: then its port is nobody else's, also before it listens."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.started_at = self.seconds_to_ready = 0.0
        self._held: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._output = folder.with_name(f"{folder.name}.out")

    def prepare(self) -> None:
        """What is to be done in `folder` before each start and is no part of its time."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command line that listens on `self.port`."""

    def choose_port(self) -> None:
        if self.reuses_address:
            self._held = hold_free_port()
            self.port = int(self._held.getsockname()[1])
        else:
            self.port = free_port()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise TargetError(f"{self.name} does not run")
        return self._process.pid

    def parts(self) -> Mapping[str, Sequence[int]]:
        return {"server": [self.pid]}

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start it, and do not wait for it. Raises TargetError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.port:
            self.choose_port()
        self.prepare()
        self.started_at = time.perf_counter()
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def ask(self) -> None:
        """Return when it has answered a request. Raises OSError, WireError."""
        with Wire(self.port, self.ready_timeout_s) as wire:
            wire.metadata()

    def wait_ready(self) -> None:
        """Return when it has answered its first request. Raises TargetError."""
        deadline = self.started_at + self.ready_timeout_s
        while True:
            with contextlib.suppress(OSError):
                self.ask()
                self.seconds_to_ready = time.perf_counter() - self.started_at
                return
            self.check_alive()
            if time.perf_counter() > deadline:
                raise TargetError(
                    f"{self.name} was not ready after {self.ready_timeout_s} s{self._last_words()}"
                )
            time.sleep(_POLL_S)

    def check_alive(self) -> None:
        if self._process is None or self._process.poll() is not None:
            code = None if self._process is None else self._process.returncode
            raise TargetError(f"{self.name} ended with exit code {code}{self._last_words()}")

    def _last_words(self) -> str:
        if not self._output.exists():
            return ""
        with self._output.open("rb") as output:  # It may be gigabytes of one error.
            output.seek(max(0, self._output.stat().st_size - _LAST_BYTES))
            text = output.read().decode(errors="replace")
        return "; it printed:\n" + "\n".join(text.splitlines()[-10:]) if text else ""

    def kill(self) -> None:
        """Kill it and wait until it is gone; it keeps its port."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        self.kill()
        if self._held is not None:
            self._held.close()
        self.port = 0

    def used_bytes(self) -> int:
        """Memory that it needs now: what is resident."""
        return resident_bytes(self.pid)

    def cpu_seconds(self) -> float:
        """CPU time the process has used so far, user and system, to 10 ms."""
        return cpu_seconds(self.pid)


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used so far, user and system, to 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS_PER_S


def resident_bytes(pid: int | str) -> int:
    """Resident set size of a process by its id, or of this one as "self"."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
