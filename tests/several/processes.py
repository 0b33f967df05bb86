"""A broker of several processes, started as users start it."""

from __future__ import annotations

import os
import random
import signal
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from faults.process import BrokerProcess
from tests.waiting import until

_PORTS = range(10_000, 32_000)
"""The kernel gives none of these to those who ask for any port, so nobody has one by chance."""
_APART = 100
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}


class Processes:
    """The processes of one broker. `count` may change between two starts."""

    def __init__(self, data_dir: Path, count: int, **settings: str) -> None:
        self.data_dir = data_dir
        self.count = count
        self._settings = {**QUICK, **settings}
        self._held: list[socket.socket] = []
        self.broker: BrokerProcess | None = None

    async def start(self) -> None:
        settings = {**self._settings, "processes": str(self.count)}
        self.broker = BrokerProcess(self.data_dir, settings=settings)
        self.release_ports()
        self._held = hold_ports_apart(self.count + 1)
        self.broker.port = self._held[0].getsockname()[1]
        await self.broker.start()

    def release_ports(self) -> None:
        """Let others have the ports of the last start."""
        while self._held:
            self._held.pop().close()

    async def stop(self) -> int:
        """By SIGTERM; the exit code."""
        assert self.broker is not None
        return await self.broker.terminate()

    @property
    def running(self) -> BrokerProcess:
        assert self.broker is not None
        return self.broker

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.running.port}"

    @property
    def started(self) -> dict[str, Any]:
        return self.running.events("broker_started")[0]

    def pids(self) -> dict[str, int]:
        """Name -> id of the processes beside the first one, as they are now."""
        pids = {str(each["process"]): int(each["pid"]) for each in self.started["processes"]}
        for again in self.running.events("process_started_again"):
            pids[again["process"]] = int(again["pid"])
        return pids

    def store_pid(self) -> int:
        """That of the process of the store."""
        known = {self.running.pid, *self.pids().values()}
        if "store" in self.pids():
            return self.pids()["store"]
        (store,) = children_of(self.running.pid or 0) - known
        return store

    async def kill_and_await(self, name: str) -> None:
        """kill -9 of a process, until it serves again."""
        pid = self.store_pid() if name == "store" else self.pids()[name]
        before = len(self.running.events("process_started_again"))
        os.kill(pid, signal.SIGKILL)
        await until(lambda: len(self.running.events("process_started_again")) > before)


def hold_ports_apart(count: int) -> list[socket.socket]:
    """Sockets that hold a free port and those that a broker's processes have beside it (docs/processes.md).

    A server that sets SO_REUSEADDR can listen there.
    """
    while True:
        first = random.SystemRandom().choice(_PORTS)
        held: list[socket.socket] = []
        try:
            for port in range(first, first + count * _APART, _APART):
                with (
                    socket.socket() as strict
                ):  # Without SO_REUSEADDR: it fails where somebody holds the port.
                    strict.bind(("127.0.0.1", port))
                held.append(socket.socket())
                held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                held[-1].bind(("127.0.0.1", port))
        except OSError:
            for each in held:
                each.close()
        else:
            return held


def children_of(pid: int) -> set[int]:
    """The processes that a process has started."""
    with suppress(FileNotFoundError):
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    return set()


def has_ended(pids: Iterable[int]) -> bool:
    """Whether none of these processes runs."""
    return all(_state(pid) in ("", "Z") for pid in pids)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


@asynccontextmanager
async def processes(data_dir: Path, count: int, **settings: str) -> AsyncIterator[Processes]:
    """Started, and ended if the test has not."""
    several = Processes(data_dir, count, **settings)
    await several.start()
    try:
        yield several
    finally:
        if several.running.is_running:
            left = children_of(several.running.pid or 0)
            await several.running.kill_9()
            await until(lambda: has_ended(left))
        several.release_ports()
