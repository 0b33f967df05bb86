"""`python -m faults.failover`: how long writes wait when a broker is killed or stopped, or etcd has no
quorum.

Three brokers and three members of etcd on loopback, with the default lease; three replicas, of which two must
be in sync. Three writers of different clients each wait for one acknowledgement after the other. A gap is the
longest time without one, from the fault until each has one for a record that it sent after the broker's end.
Gaps are printed for any writer, and for each client. Of kills, it also prints when others led (medians). Exit
code 1 where records are lost, doubled or reordered, or where nothing was written and read meanwhile.
"""

import asyncio
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer

from faults.checker import UNCERTAIN, Finding, Ledger, Mark, check, is_acked
from faults.marks import record_of
from faults.readback import Follower, read_all
from faults.several_brokers import WAIT_SECONDS, SeveralBrokers, asked, several_brokers, until
from tidelog.client import ClientError, Producer

_TOPIC: Final = "failover"
_WRITERS: Final = 3
_MEMBERS: Final = 3
_PAUSE_S: Final = 0.002
_WITHOUT_QUORUM_SECONDS: Final = 15.0
"""Longer than the lease."""
KINDS: Final = ("kill", "stop", "quorum")


@dataclass
class Figures:
    """What the rounds with one kind of fault gave: the longest gap of each, and the client errors of all."""

    kind: str
    gaps_s: list[dict[str, float]] = field(default_factory=list)
    """By client."""
    phases_s: list[tuple[float, float]] = field(default_factory=list)
    """Of kills: until others led, and from then to the end."""
    errors: int = 0
    written: int = 0
    read: int = 0

    def __str__(self) -> str:
        gaps = _percentiles(list(map(max, map(dict.values, self.gaps_s))))
        if self.phases_s:
            elected, written = map(statistics.median, zip(*self.phases_s, strict=True))
            gaps += (
                f"; others led after {elected:.3f} s, and the last writer went on after {written:.3f} s more"
            )
        return (
            f"{self.kind:<6} {len(self.gaps_s):>3} rounds: {gaps}; {self.errors} client errors;"
            f" {self.written:,} records written and {self.read:,} read meanwhile"
            + "".join(
                f"\n       {client:<16} {_percentiles([each[client] for each in self.gaps_s])}"
                for client in self.gaps_s[0]
            )
        )


def _percentiles(gaps_s: Sequence[float]) -> str:
    ordered = sorted(gaps_s)
    p50, p99 = (ordered[int(share * len(ordered))] for share in (0.5, 0.99))
    return f"gap p50 {p50:.3f} s, p99 {p99:.3f} s, longest {ordered[-1]:.3f} s"


Send = Callable[[int, bytes, bytes], Awaitable[int]]
"""Sends key and value to a partition, and returns the offset. Raises whatever the client raises."""


@asynccontextmanager
async def _senders(address: str) -> AsyncIterator[dict[str, Send]]:
    """By client, each with its defaults but for acks=all and idempotence, which not all have as defaults."""
    loop = asyncio.get_running_loop()
    confluent = ConfluentProducer(
        {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
    )

    async def send_by_confluent(partition: int, key: bytes, value: bytes) -> int:
        told: asyncio.Future[int] = loop.create_future()

        def report(error: Any, message: Any) -> None:
            if error is not None:
                told.set_exception(KafkaException(error))
            else:
                told.set_result(message.offset())

        confluent.produce(_TOPIC, value, key, partition, on_delivery=report)
        while not told.done():
            confluent.poll(0)
            await asyncio.sleep(_PAUSE_S)
        return told.result()

    async with (
        Producer(bootstrap_servers=address) as ours,
        AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True) as aiokafka,
    ):

        async def send(partition: int, key: bytes, value: bytes) -> int:
            return (await ours.send_and_wait(_TOPIC, value, key, partition)).offset

        async def send_by_aiokafka(partition: int, key: bytes, value: bytes) -> int:
            offset: int = (await aiokafka.send_and_wait(_TOPIC, value, key, partition)).offset
            return offset

        yield {"tidelog": send, "confluent-kafka": send_by_confluent, "aiokafka": send_by_aiokafka}


class _Writer:
    """Sends to one partition, one record at a time."""

    def __init__(self, client: str, send: Send, partition: int, ledger: Ledger) -> None:
        self.client = client
        self.errors = 0
        self.longest_gap_s = 0.0
        self.sent_at = 0.0
        """When the record of the last acknowledgement was sent."""
        self._send = send
        self._partition = partition
        self._ledger = ledger
        self._writing = asyncio.create_task(self._write())

    async def stop(self) -> None:
        self._writing.cancel()
        await asyncio.gather(self._writing, return_exceptions=True)
        self._ledger.close()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        acknowledged_at = loop.time()
        while True:
            sent_at = loop.time()
            counter = self._ledger.sent(self._partition)
            key, value = record_of(Mark(self._ledger.writer, self._partition, counter))
            fate = UNCERTAIN
            try:
                fate = await self._send(self._partition, key, value)
            except (ClientError, AioError, KafkaException):
                self.errors += 1
            else:
                self.sent_at = sent_at
                self.longest_gap_s = max(self.longest_gap_s, loop.time() - acknowledged_at)
                acknowledged_at = loop.time()
            self._ledger.record_outcome(self._partition, counter, fate)
            await asyncio.sleep(_PAUSE_S)


class Failover:
    """Running brokers under writers. Made by `failover`."""

    def __init__(self, cluster: SeveralBrokers) -> None:
        self.ledgers = [Ledger(number, f"writer {number}") for number in range(_WRITERS)]
        self._cluster = cluster
        self._writers: list[_Writer] = []
        self._follower = Follower(cluster.address, _TOPIC, _WRITERS)

    def begin(self, senders: Mapping[str, Send]) -> None:
        self._follower.start()
        self._writers = [
            _Writer(*each, index, self.ledgers[index]) for index, each in enumerate(senders.items())
        ]

    async def end(self) -> None:
        """Once."""
        for writer in self._writers:
            await writer.stop()
        await self._follower.stop()

    async def measure(self, kind: str, rounds: int) -> Figures:
        """One of KINDS, so many times."""
        figures = Figures(kind)
        for number in range(rounds):
            await until(self._cluster.is_in_sync)
            await self._until_written()
            written, read = self._written(), self._read()
            errors = sum(writer.errors for writer in self._writers)
            for writer in self._writers:
                writer.longest_gap_s = 0.0
            if kind == "quorum":
                await self._without_quorum()
            else:
                began = datetime.now(UTC)
                await self._without_leader(kind, number)
                figures.phases_s += self._phases(began) if kind == "kill" else ()
            figures.gaps_s.append({writer.client: writer.longest_gap_s for writer in self._writers})
            figures.errors += sum(writer.errors for writer in self._writers) - errors
            figures.written += self._written() - written
            figures.read += self._read() - read
            await self._whole()
        return figures

    async def check(self) -> list[Finding]:
        """After `end`: what contradicts the acknowledgements."""
        return check(self.ledgers, await read_all(self._cluster.address, _TOPIC, _WRITERS, WAIT_SECONDS))

    async def _without_leader(self, kind: str, number: int) -> None:
        broker = self._cluster.brokers[(await self._cluster.partitions())[number % _WRITERS].leader]
        await (broker.kill_9() if kind == "kill" else broker.terminate())
        await self._until_written()

    def _phases(self, began: datetime) -> list[tuple[float, float]]:
        """As `Figures.phases_s`, by the brokers' events; nothing if nobody was elected."""
        times = [
            datetime.fromisoformat(event["timestamp"])
            for broker in self._cluster.brokers.values()
            for event in broker.events("leaders_elected")
        ]
        elected = min((each for each in times if each >= began), default=None)
        if elected is None:
            return []
        return [((elected - began).total_seconds(), (datetime.now(UTC) - elected).total_seconds())]

    async def _without_quorum(self) -> None:
        for number in range(_MEMBERS // 2 + 1):
            await self._cluster.members.stop(number)
        await asyncio.sleep(_WITHOUT_QUORUM_SECONDS)

    async def _whole(self) -> None:
        """All members and all brokers run."""
        for number in range(_MEMBERS):
            self._cluster.members.go_on(number)
        for broker in self._cluster.brokers.values():
            if not broker.is_running:
                await broker.start()

    async def _until_written(self) -> None:
        """Each writer has an acknowledgement of a record that it sent from now on. Raises TimeoutError."""
        now = asyncio.get_running_loop().time()

        async def is_written() -> bool:
            return all(each.sent_at > now for each in self._writers)

        await until(is_written)

    def _written(self) -> int:
        return sum(ledger.count(is_acked) for ledger in self.ledgers)

    def _read(self) -> int:
        return sum(map(len, self._follower.logs.values()))


@asynccontextmanager
async def failover(folder: Path) -> AsyncIterator[Failover]:
    """Brokers and members with their data in `folder`, and writers at work. Raises BrokerProcessError."""
    settings = {"min.insync.replicas": 2}
    async with (
        several_brokers(folder, _TOPIC, _WRITERS, _MEMBERS, settings) as cluster,
        _senders(cluster.address) as senders,
    ):
        made = Failover(cluster)
        made.begin(senders)
        yield made


async def _main(kinds: Sequence[str], rounds: int) -> int:
    with tempfile.TemporaryDirectory(prefix="tidelog-failover-") as folder:
        async with failover(Path(folder)) as made:
            idle = False
            try:
                for kind in kinds:
                    figures = await made.measure(kind, 1 if kind == "quorum" else rounds)
                    print(figures, flush=True)
                    idle |= not figures.written or not figures.read
            finally:
                await made.end()
            findings = await made.check()
    for finding in findings:
        print(f"{finding.kind}: {finding.text}")
    return 1 if findings or idle else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(*asked("faults.failover", KINDS, "rounds", 30))))
