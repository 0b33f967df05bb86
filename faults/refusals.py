"""`python -m faults.refusals`: whether librdkafka keeps its epoch while brokers refuse what it has in flight.

Three brokers over etcd; three replicas, all of which must be in sync. Five writers with full queues have five
requests in flight. Each fault is one of: the leader's disk is full, the leader is killed, it hands over and
stops, a follower hangs until it is not in sync. A disk is full by the process's limit of file sizes: all
writes fail with EFBIG.

After a code 45 librdkafka raises its epoch for all partitions, and sends again what other partitions have
stored (its issue 4953). Exit code 1 where an epoch was raised, as its log (`debug=eos`) or the stored batches
say, or where records are lost, doubled or reordered.
"""

import asyncio
import logging
import re
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from faults.checker import Finding, Kind, check, check_sequences, is_acked
from faults.foreign_writers import ConfluentWriter
from faults.process import BrokerProcess
from faults.readback import read_all, read_files
from faults.several_brokers import BROKERS, WAIT_SECONDS, SeveralBrokers, asked, several_brokers, until
from faults.workload import Job

_TOPIC: Final = "refusals"
_PARTITIONS: Final = 3
_WRITERS: Final = 5
_FULL_S: Final = (0.05, 0.3, 1.0)
_SETTINGS: Final = {
    "min.insync.replicas": BROKERS,
    "replica.lag.time.max.ms": 1_000,
    "broker.session.timeout.ms": 3_000,
}
_OF_LIBRDKAFKA: Final[dict[str, Any]] = {
    "max.in.flight": 5,
    "linger.ms": 1,
    "batch.num.messages": 4,
    "queue.buffering.max.messages": 200,
    "message.timeout.ms": 0,
    "debug": "eos",
}
KINDS: Final = ("full", "kill", "stop", "hang")
_ERRORS: Final = re.compile(
    r'requestmetrics_errors_total\{error="(?!NONE)(\w+)",request="Produce"\} ([\d.]+)'
)


class _Bumps(logging.Handler):
    """What librdkafka logs of its epochs, within `collecting`."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    @property
    def count(self) -> int:
        return sum("epoch bump" in line for line in self.lines)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        logger = logging.getLogger("librdkafka")
        before = logger.level, logger.propagate
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.setLevel(before[0])
            logger.propagate = before[1]

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "epoch bump" in text or "skipped sequence" in text:
            self.lines.append(text)


class Refusals:
    """Runs brokers under writers, breaks them, and checks what they stored. Made by `refusals`."""

    def __init__(self, cluster: SeveralBrokers, folder: Path) -> None:
        self.faults: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        """Codes that partitions got, as far as their broker lived to be asked."""
        self.bumps = _Bumps()
        self.job = Job(cluster.address, _TOPIC, _PARTITIONS, seed=0)
        self._cluster = cluster
        self._brokers = cluster.brokers
        self._folder = folder
        self._writers = [
            ConfluentWriter(f"writer-{each}", self.job, _OF_LIBRDKAFKA) for each in range(_WRITERS)
        ]

    async def begin(self) -> None:
        for writer in self._writers:
            await writer.start()
        await self._until_written()

    async def fault(self, kind: str, number: int) -> None:
        """One of KINDS; at its end all replicas are in sync, and each partition was written."""
        leader = self._brokers[(await self._cluster.partitions())[number % _PARTITIONS].leader]
        self.faults[kind] += 1
        if kind == "full":
            leader.limit_files(0)
            await asyncio.sleep(_FULL_S[number % len(_FULL_S)])
            leader.limit_files(None)
        elif kind == "hang":
            follower = next(each for each in self._brokers.values() if each is not leader)
            follower.pause()
            await until(self._has_shrunk)
            await asyncio.sleep(_FULL_S[number % len(_FULL_S)])
            follower.resume()
        else:
            await self._count(leader)
            await (leader.kill_9() if kind == "kill" else leader.terminate())
            await leader.start()
        await until(self._cluster.is_in_sync)
        await self._until_written()

    async def end(self) -> list[Finding]:
        """Stop the writers and the brokers; what contradicts the acknowledgements, and each raised epoch."""
        for writer in self._writers:
            await writer.settle(WAIT_SECONDS)
        for broker in self._brokers.values():
            await self._count(broker)
        findings = check(
            self.job.ledgers,
            await read_all(self.job.bootstrap_servers, _TOPIC, _PARTITIONS, WAIT_SECONDS),
        )
        for broker in self._brokers.values():
            await broker.terminate()
        for partition in range(_PARTITIONS):
            stored = read_files(self._folder / "broker-1", _TOPIC, partition)
            findings += stored.findings + check_sequences(partition, stored.batches)
            raised = {batch.producer_id for batch in stored.batches if batch.producer_epoch > 0}
            findings += [
                Finding(Kind.SEQUENCE, f"partition {partition}: producer {each} raised its epoch")
                for each in sorted(raised)
            ]
        return findings + [Finding(Kind.SEQUENCE, line) for line in self.bumps.lines]

    async def _count(self, broker: BrokerProcess) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{broker.http_port}/metrics") as answer,
        ):
            for name, count in _ERRORS.findall(await answer.text()):
                self.refused[name] += round(float(count))

    async def _until_written(self) -> None:
        before = self.acknowledged

        async def is_written() -> bool:
            return self.acknowledged >= before + _WRITERS

        await until(is_written)

    @property
    def acknowledged(self) -> int:
        return sum(ledger.count(is_acked) for ledger in self.job.ledgers)

    async def _has_shrunk(self) -> bool:
        return any(len(each.isr) < BROKERS for each in await self._cluster.partitions())


@asynccontextmanager
async def refusals(folder: Path, command: Sequence[str] = ()) -> AsyncIterator[Refusals]:
    """Brokers and one member of etcd with their data in `folder`, and writers at work. `command` starts
    another broker. Raises BrokerProcessError."""
    async with several_brokers(folder, _TOPIC, _PARTITIONS, 1, _SETTINGS, command) as cluster:
        made = Refusals(cluster, folder)
        with made.bumps.collecting():
            await made.begin()
            yield made


async def _main(kinds: Sequence[str], faults: int) -> int:
    with tempfile.TemporaryDirectory(prefix="tidelog-refusals-") as folder:
        async with refusals(Path(folder)) as made:
            for number in range(faults):
                await made.fault(kinds[number % len(kinds)], number)
            findings = await made.end()
    counted = ", ".join(f"{count} {kind}" for kind, count in made.faults.items())
    codes = ", ".join(f"{count} × {name}" for name, count in sorted(made.refused.items()))
    print(f"{faults} faults: {counted}; {made.acknowledged:,} records acknowledged; refusals: {codes}")
    print(f"raised epochs: {made.bumps.count}; oddities: {made.job.oddities or 'none'}")
    for finding in findings:
        print(f"{finding.kind}: {finding.text}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(*asked("faults.refusals", KINDS, "faults", 200))))
