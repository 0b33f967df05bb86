"""kill -9 of brokers while they copy segments to remote storage: nothing is lost, doubled or left over.

One broker alone, and three with replicas over etcd whose leaders are killed. Run by its path, with KILLS and
SEED in the environment; `make cluster` runs it, `make test` leaves it out.
"""

import asyncio
import os
import random
from pathlib import Path

from faults.process import BrokerProcess
from faults.wire import Wire
from tests.several.operations import Machines, machines
from tests.waiting import pause, until
from tidelog.client import Admin, Consumer, NewTopic, Producer
from tidelog.remote_log.manifest import Manifest, decode
from tidelog.wire.metadata import PartitionInfo

__all__ = ["machines"]
KILLS = int(os.environ.get("KILLS", "3"))
SEED = int(os.environ.get("SEED", "1"))
QUICK = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "20",
    "log.retention.check.interval.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "50",
}
TIERED = {"segment.bytes": "20000", "remote.storage.enable": "true", "local.retention.bytes": "40000"}


PARTITIONS = 3
EARLIEST_LOCAL = -4


def manifests_in(remote: Path) -> dict[Path, Manifest]:
    """The newest of each partition, by its folder."""
    newest = {path.parent: path for path in sorted(remote.rglob("manifest-*.json"))}
    return {folder: decode(path.read_bytes()) for folder, path in newest.items()}


def left_over(remote: Path) -> set[str]:
    """Names that are in a manifest or in its folder, and not in both."""
    found: set[str] = set()
    for folder, manifest in manifests_in(remote).items():
        named = {each.name + suffix for each in manifest.segments for suffix in (".log", ".indexes")}
        found |= named ^ {path.name for path in folder.iterdir() if not path.name.startswith("manifest-")}
    return found


class Writing:
    """One writer a partition, each with one record in flight; what was acknowledged."""

    def __init__(self, address: str, partitions: int) -> None:
        self.sent: list[list[bytes]] = [[] for _ in range(partitions)]
        self._is_over = asyncio.Event()
        self._tasks = [asyncio.create_task(self._write(address, each)) for each in range(partitions)]

    async def _write(self, address: str, partition: int) -> None:
        sent = self.sent[partition]
        async with Producer(bootstrap_servers=address, delivery_timeout_ms=600_000) as producer:
            while not self._is_over.is_set():
                value = b"%08d" % len(sent) + b"x" * 200
                await producer.send_and_wait("t", value, partition=partition)
                sent.append(value)

    async def go_on(self, count: int) -> None:
        """Return when each partition has so many more."""
        wanted = [len(sent) + count for sent in self.sent]
        await until(lambda: all(len(sent) >= most for sent, most in zip(self.sent, wanted, strict=True)))

    async def end(self) -> None:
        self._is_over.set()
        await asyncio.gather(*self._tasks)

    async def check(self, address: str, remote: Path) -> None:
        """A reader from the beginning gets each record once, in order, and the store has nothing else."""
        read: list[list[bytes]] = [[] for _ in self.sent]
        async with Consumer("t", bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            for _ in range(sum(map(len, self.sent))):
                record = await consumer.getone()
                read[record.partition].append(record.value or b"")
        assert read == self.sent
        await until(lambda: len(manifests_in(remote)) == len(self.sent) and not left_over(remote))
        segments = [len(each.segments) for each in manifests_in(remote).values()]
        print(f"{KILLS} kills, {sum(map(len, self.sent))} records, {segments} remote segments")


async def test_kills_while_segments_are_copied(tmp_path: Path) -> None:
    moments, remote = random.Random(SEED), tmp_path / "remote"
    broker = BrokerProcess(tmp_path / "data", settings={**QUICK, "remote.storage.url": f"file://{remote}"})
    await broker.start()
    address = f"127.0.0.1:{broker.port}"
    try:
        async with Admin(bootstrap_servers=address) as admin:
            await admin.create_topics([NewTopic("t", 1, topic_configs=TIERED)])
        writing = Writing(address, 1)
        for _ in range(KILLS):
            await pause(moments.uniform(0.3, 1.5))
            await broker.kill_9()
            await broker.start()
        await writing.go_on(200)
        await writing.end()
        await writing.check(address, remote)
    finally:
        await broker.kill_9()


async def partitions_of(address: str) -> list[PartitionInfo]:
    async with Admin(bootstrap_servers=address) as admin:
        (topic,) = await admin.describe_topics(["t"])
    return list(topic.partitions)


async def all_in_sync(address: str) -> None:
    while any(len(each.isr) < len(each.replicas) for each in await partitions_of(address)):  # noqa: ASYNC110
        await asyncio.sleep(0.1)


async def test_kills_of_leaders_in_turn_while_they_copy(machines: Machines, tmp_path: Path) -> None:
    moments, remote = random.Random(SEED), tmp_path / "remote"
    for broker in machines.broker.values():
        broker.settings |= {**QUICK, "remote.storage.url": f"file://{remote}", "min.insync.replicas": 2}
    address = await machines.start(1, 2, 3)
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic("t", PARTITIONS, 3, topic_configs=TIERED)])
    writing = Writing(address, PARTITIONS)
    for number in range(KILLS):
        await writing.go_on(150)
        await all_in_sync(address)
        await pause(moments.uniform(0.0, 1.0))
        leader = (await partitions_of(address))[number % PARTITIONS].leader
        killed = machines.broker[leader]
        await killed.kill_9()
        await writing.go_on(150)
        await killed.start()
    await all_in_sync(address)
    await writing.end()
    for each in await partitions_of(address):
        async with Wire.connected(machines.broker[each.leader].port) as wire:
            _, local_start = await wire.offset_at("t", each.partition, EARLIEST_LOCAL)
        assert local_start > 0
    await writing.check(address, remote)
