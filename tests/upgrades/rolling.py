"""Three brokers over etcd go from an older version to this one and back, one by one, as the runbook says.

Meanwhile clients of four projects and one of the older version write and read: none gets an error, nothing is
lost, stored twice or reordered.

`make upgrades` runs it, for each version that was recorded.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from faults.etcd import running_etcd
from tests.deadline import deadline
from tests.several.applications import CLIENTS, applications, make_topics
from tests.several.operations import SECONDS, Machines
from tests.upgrades.recording import COMMITS, command_of, package
from tests.waiting import until
from tidelog.client import Admin, NewTopic

_TOPIC = "older"


class OlderClient:
    """`client.py` with the package of an older version."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.told: list[bytes] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.told.append(line)

    async def go_on(self) -> None:
        before = len(self.told)
        await until(lambda: len(self.told) > before + 5 or self._process.returncode is not None)

    async def end(self) -> None:
        """It has read each number once, in order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._reading
        assert await self._process.wait() == 0, self.told
        *numbers, read = self.told
        assert json.loads(read) == list(range(len(numbers)))


@asynccontextmanager
async def older_client(source: Path, address: str) -> AsyncIterator[OlderClient]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(Path(__file__).with_name("client.py")), address, _TOPIC),
        env=os.environ | {"PYTHONPATH": str(source)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield OlderClient(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("commit", COMMITS)
async def test_brokers_of_two_versions_serve_together_on_the_way_up_and_down(
    commit: str, tmp_path: Path
) -> None:
    source = package(commit, tmp_path / "source")
    older, newer = command_of(source), command_of()
    async with running_etcd(tmp_path) as etcd:
        machines = Machines(tmp_path, ",".join(etcd.endpoints))
        brokers = [machines.broker[number] for number in (1, 2, 3)]
        try:
            for broker in brokers:
                broker.command = older
                broker.settings["min.insync.replicas"] = 2
            address = await machines.start(1, 2, 3)
            await make_topics(address, CLIENTS, 3)
            async with Admin(bootstrap_servers=address) as admin:
                await admin.create_topics([NewTopic(_TOPIC, 1, 3)])
            with deadline("the upgrade", SECONDS), applications(address) as running:
                async with older_client(source, address) as client:
                    for command in (newer, older):
                        for number, broker in enumerate(brokers, 1):
                            broker.command = command
                            operator = machines.operator(without=number)
                            await operator.follow("Restart brokers, or upgrade them", broker)
                            await running.go_on()
                            await client.go_on()
                    await client.end()
                    await running.end(address)
        finally:
            for broker in brokers:
                await broker.kill_9()
        assert [each for broker in brokers for each in broker.events("partition_offline")] == []
