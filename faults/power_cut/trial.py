"""Cuts the power of one machine, or of three at once, under writers, and checks what their ext4 has kept.

Owns the order: start, write, cut, start again. At the end everything is read back and compared with the
writers' outcomes. Besides records, created topics and given producer ids must survive every cut. Of three
machines each has a broker and a member of etcd; the disk of the member keeps what it was given. If the
system does not allow such machines, that is reported and nothing is tried.
"""

import asyncio
import os
import random
import subprocess
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

from faults.checker import Finding, Kind, check, is_acked
from faults.damage.verdict import judge_ids
from faults.etcd import BINARY, EtcdMembers, running_etcd
from faults.foreign_readers import compare_with_others
from faults.foreign_writers import ConfluentWriter
from faults.latest_values import check_latest
from faults.power_cut import machine
from faults.process import BrokerProcess, BrokerProcessError
from faults.readback import read_all
from faults.runner import alarms
from faults.site import SESSION_MS, made
from faults.trial import Outcome, Say, turns
from faults.wire import Wire
from faults.workload import Job, TidelogWriter, Writer
from faults.workload_keyed import BROKER_SETTINGS, COMPACTED_TOPIC, TOPIC_CONFIGS, KeyedWriter, read_compacted
from tidelog.client import ClientError
from tidelog.protocol.errors import ErrorCode

TOPIC: Final = "kept"
_PARTITIONS: Final = 3
_EARLY_SHARES: Final = (0.0, 0.0, 0.3, 0.9)
_MEAN_LIFE_S: Final = 0.7
_LONGEST_LIFE_S: Final = 3.0
_LOOK_S: Final = 0.02
_START_MS: Final = 60_000
_SETTLE_SECONDS: Final = 180.0
_READ_SECONDS: Final = 120.0
_SETTINGS: Final[dict[str, object]] = {
    "log.segment.bytes": 65_536,
    "log.flush.offset.checkpoint.interval.ms": 200,
    "auto.create.topics.enable": "false",
    **BROKER_SETTINGS,
}
_MACHINES: Final = 3
_OF_SEVERAL: Final[dict[str, object]] = {
    "broker.session.timeout.ms": SESSION_MS,
    "default.replication.factor": _MACHINES,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 2 * SESSION_MS,
}
_TIDELOG: Final[dict[str, Any]] = {"request_timeout_ms": 2000, "retry_backoff_max_ms": 200}
_CONFLUENT: Final[dict[str, Any]] = {
    "batch.size": 16_384,
    "request.timeout.ms": 2000,
    "socket.timeout.ms": 2500,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.max.ms": 200,
    "queue.buffering.max.messages": 2000,
}
"""A batch larger than a segment is refused. librdkafka then raises its epoch, and what another partition had
neither acknowledged nor refused is stored twice."""


def why_not(machines: bool = False) -> str:
    """Why this system allows no such machine, as far as that shows without trying; "" where it may."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "power cuts on a real file system want root, to mount one"
    if missing := machine.missing_tools():
        return f"power cuts on a real file system want {', '.join(missing)}"
    if not os.path.exists("/dev/fuse"):
        return "power cuts on a real file system want /dev/fuse"
    if machines and BINARY is None:
        return "power cuts of three machines want etcd"
    return ""


async def run(
    seed: int, seconds: float, folder: Path, say: Say, cuts: int = 0, machines: bool = False
) -> Outcome:
    """Cut the power until `seconds` are over, or `cuts` times. `machines`: of three brokers at once."""
    outcome = Outcome()
    if reason := why_not(machines):
        outcome.left_out.append(reason)
        return outcome
    images = [folder / f"disk-{number}" for number in range(1, _MACHINES + 1 if machines else 2)]
    try:
        for image in images:
            await asyncio.to_thread(machine.make_image, image)
    except (OSError, subprocess.CalledProcessError) as error:
        outcome.left_out.append(f"power cuts on a real file system: no ext4 can be made: {error}")
        return outcome
    etcd = running_etcd(made(folder / "etcd"), _MACHINES) if machines else nullcontext()
    async with etcd as members:
        site = _Site(images, members, random.Random(f"power {seed}"), seed, outcome)
        try:
            if not await site.begin():
                return outcome
            for _ in turns(seconds, cuts):
                await site.live_and_cut(say)
            await site.judge()
        except BrokerProcessError as error:
            outcome.findings.append(Finding(Kind.ALARM, str(error)))
        finally:
            await site.end()
    return outcome


class _Site:
    """Machines, their writers, and the outcomes they received."""

    def __init__(
        self,
        images: Sequence[Path],
        members: EtcdMembers | None,
        rng: random.Random,
        seed: int,
        outcome: Outcome,
    ) -> None:
        self._images = images
        self._members = members
        self._rng = rng
        self._seed = seed
        self._outcome = outcome
        own: dict[str, object] = {}
        if members is not None:
            own = {**_OF_SEVERAL, "cluster.store": members.store}
        self._brokers = [
            BrokerProcess(Path("data"), settings={**_SETTINGS, **own, "node.id": number})
            for number in range(1, len(images) + 1)
        ]
        self._job: Job
        self._keyed_job: Job
        self._writers: list[Writer] = []
        self._topics: list[str] = []
        self._ids: list[int] = []
        self._lives = 0
        self._acknowledged_before = 0

    async def begin(self) -> bool:
        """Start the machines and the writers; False where the system does not allow it."""
        try:
            await self._start_brokers()
        except BrokerProcessError as error:
            if f"exit code {machine.CANNOT}" not in str(error):
                raise
            self._outcome.left_out.append(f"power cuts on a real file system: {error}")
            return False
        address = ",".join(f"127.0.0.1:{broker.port}" for broker in self._brokers)
        async with self._wire() as wire:
            for name, configs in ((TOPIC, None), (COMPACTED_TOPIC, TOPIC_CONFIGS)):
                if code := await wire.create_topic(name, _PARTITIONS, configs):
                    raise BrokerProcessError(f"CreateTopics was answered with error {code}")
        self._job = Job(address, TOPIC, _PARTITIONS, self._seed)
        self._keyed_job = Job(address, COMPACTED_TOPIC, _PARTITIONS, self._seed)
        self._writers = [
            TidelogWriter("tidelog", self._job, _TIDELOG),
            KeyedWriter("tidelog, keyed", self._keyed_job, _TIDELOG),
            ConfluentWriter("confluent", self._job, _CONFLUENT),
        ]
        await asyncio.gather(*(writer.start() for writer in self._writers))
        return True

    def _wire(self) -> AbstractAsyncContextManager[Wire]:
        return Wire.connected(self._rng.choice(self._brokers).port)

    async def live_and_cut(self, say: Say) -> None:
        """Let the writers write for a while, make a topic and a producer, then cut and start again."""
        life_s = min(self._rng.expovariate(1 / _MEAN_LIFE_S), _LONGEST_LIFE_S)
        await self._make_things()
        await asyncio.sleep(life_s)
        await self._until_more_is_acknowledged()
        making = asyncio.create_task(self._make_things())
        await asyncio.sleep(self._rng.random() * 0.02)
        await self._cut()
        await asyncio.gather(making, return_exceptions=True)
        await self._power_on()
        self._outcome.tried["power cut"] += 1
        say(f"power cut after {life_s:.2f} s, and a start")

    async def _until_more_is_acknowledged(self) -> None:
        """A cut tries nothing before something was promised in this life. BrokerProcessError if not."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _SETTLE_SECONDS
        while True:
            if self._acknowledged() > self._acknowledged_before:
                break
            if loop.time() > deadline:
                raise BrokerProcessError(f"no record was acknowledged in {_SETTLE_SECONDS:g} s of a life")
            await asyncio.sleep(_LOOK_S)
        self._acknowledged_before = self._acknowledged()

    def _acknowledged(self) -> int:
        return sum(ledger.count(is_acked) for ledger in self._job.ledgers)

    async def _make_things(self) -> None:
        """A topic and a producer id; what was answered must stay. The power may go meanwhile."""
        async with self._wire() as wire:
            code, producer_id = await wire.new_producer_id()
            if not code:
                self._ids.append(producer_id)
            name = f"made-{len(self._topics)}-{self._lives}"
            if await wire.create_topic(name, 1) == ErrorCode.NONE:
                self._topics.append(name)

    async def _power_on(self) -> None:
        if self._members is not None:
            for number in range(_MACHINES):
                await self._members.start(number)
        await self._start_brokers()

    async def _start_brokers(self) -> None:
        self._lives += 1
        for image, broker in zip(self._images, self._brokers, strict=True):
            share = self._rng.choice(_EARLY_SHARES)
            broker.command = machine.command(image, share, f"{self._seed} {image.name} {self._lives}")
        starts = (broker.start(_START_MS) for broker in self._brokers)
        for started in await asyncio.gather(*starts, return_exceptions=True):
            if isinstance(started, BaseException):
                raise started

    async def judge(self) -> None:
        """Wait until every outcome is known, read it back, compare."""
        findings = self._outcome.findings
        for writer in self._writers:
            try:
                await writer.settle(_SETTLE_SECONDS)
            except TimeoutError:
                findings.append(Finding(Kind.HANGING, f"{writer.name} did not settle"))
        self._writers.clear()
        address = self._job.bootstrap_servers
        try:
            logs = await read_all(address, TOPIC, _PARTITIONS, _READ_SECONDS)
            left = await read_compacted(address, _PARTITIONS, _READ_SECONDS)
        except (ClientError, TimeoutError) as error:
            findings.append(Finding(Kind.UNREADABLE, f"{type(error).__name__} {error}"))
        else:
            findings += check(self._job.ledgers, logs)
            findings += check_latest(self._keyed_job.ledgers, left)
            findings += await compare_with_others(address, TOPIC, logs, _READ_SECONDS)
            count = sum(map(len, logs.values()))
            cleans = sum(len(broker.events("log_cleaned")) for broker in self._brokers)
            self._outcome.figures.append(
                f"{count:,} records, {len(self._topics):,} topics and {len(self._ids):,} producer ids,"
                f" {self._lives:,} lives of {len(self._brokers)} with ext4 on a disk with a write cache;"
                f" {cleans:,} cleans of a compacted topic"
            )
        async with self._wire() as wire:
            there = await wire.topic_names()
        for name in self._topics:
            if name not in there:
                findings.append(Finding(Kind.MISSING, f"topic {name} was made and is gone"))
        findings += judge_ids((), self._ids)

    async def end(self) -> None:
        """Switch everything off."""
        await asyncio.gather(*(writer.give_up() for writer in self._writers), return_exceptions=True)
        await self._cut()
        for broker in self._brokers:
            self._outcome.findings += alarms(broker)

    async def _cut(self) -> None:
        """Nothing of any machine does more once it has begun."""
        pids = [broker.pid for broker in self._brokers if broker.pid is not None]
        await asyncio.gather(*(asyncio.to_thread(machine.stop_broker, pid) for pid in pids))
        if self._members is not None:
            await asyncio.gather(*map(self._members.kill, range(_MACHINES)))
        await asyncio.gather(*(broker.kill_9() for broker in self._brokers))
