"""A broker of several processes, started as users start it."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from faults.process import BrokerProcess
from tests.waiting import until

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
        self.broker: BrokerProcess | None = None

    async def start(self) -> None:
        settings = {**self._settings, "processes": str(self.count)}
        self.broker = BrokerProcess(self.data_dir, settings=settings)
        await self.broker.start()

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
