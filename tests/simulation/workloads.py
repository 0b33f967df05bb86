"""What clients do in the simulation beside processors in transactions, and what they were promised.

Owns four programs, each of which is killed and begun again: a writer that is idempotent, with five requests
in flight; a member that commits offsets; an administrator that creates and deletes topics and ACLs; and one
that gives partitions other replicas. What they note outlives them.
"""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Final

from faults.checker import Finding, Kind, check
from faults.readback import read_all
from faults.workload import Job, TidelogWriter
from tests.simulation.virtual_loop import Node
from tidelog.broker.cluster.catalog import Catalog
from tidelog.client import Admin, ClientError, Consumer, Delivery, NewTopic, TopicPartition
from tidelog.protocol.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType

LOG: Final = "log"
PATIENT: Final[dict[str, Any]] = {
    "request_timeout_ms": 1500,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
}
_PAUSE_S: Final = 0.4
_MOST_UNDER_WAY: Final = 40
"""Records of one writer."""


class _Writer(TidelogWriter):
    """Sends no more while much is under way: what waits through an outage would only be written after it."""

    async def hand_over(self, partition: int, counter: int, key: bytes, value: bytes) -> Delivery:
        while len(self._deliveries) >= _MOST_UNDER_WAY and not self._receiving.done():
            self._outcome_arrived.clear()
            await self._outcome_arrived.wait()
        return await super().hand_over(partition, counter, key, value)


class Writers:
    """One writer after the other to the topic LOG."""

    def __init__(self, address: str, partitions: int, seed: int) -> None:
        self._job = Job(address, LOG, partitions, seed, longest_pause_s=0.5)
        self._writer: _Writer
        self._has_started = asyncio.Event()

    async def run(self, node: Node) -> None:
        """The present program."""
        settings = {**PATIENT, "delivery_timeout_ms": 60_000, "linger_ms": 2}
        writer = _Writer(node.name, self._job, settings)
        await writer.start()
        self._writer = writer
        self._has_started.set()

    async def settle(self) -> None:
        """Also of a program that was begun just now: it would write on. Raises TimeoutError."""
        async with asyncio.timeout(60):
            await self._has_started.wait()
        await self._writer.settle(60)

    def killed(self) -> None:
        """What was open is uncertain."""
        self._has_started.clear()
        for ledger in self._job.ledgers:
            ledger.close()

    async def judge(self) -> list[Finding]:
        """Of what is stored now. Raises ClientError, TimeoutError."""
        logs = await read_all(self._job.bootstrap_servers, LOG, self._job.partitions, 60)
        return check(self._job.ledgers, logs)


class Committer:
    """A group whose offsets only grow."""

    def __init__(self, address: str, partitions: int) -> None:
        self._address = address
        self._keys = [TopicPartition(LOG, index) for index in range(partitions)]
        self._promised = dict.fromkeys(self._keys, 0)
        self._asked = 0
        self.findings: list[Finding] = []

    async def run(self, node: Node) -> None:
        while True:
            try:
                async with Consumer(bootstrap_servers=self._address, group_id="plain", **PATIENT) as consumer:
                    while True:
                        await self._step(consumer)
                        await asyncio.sleep(_PAUSE_S)
            except ClientError:
                await asyncio.sleep(_PAUSE_S)

    async def _step(self, consumer: Consumer) -> None:
        for key in self._keys:
            promised = self._promised[key]
            found = await consumer.committed(key) or 0
            if not promised <= found <= self._asked:
                text = f"{key}: the offset {promised} was committed, later it is {found}"
                self.findings.append(Finding(Kind.BACKWARDS, text))
        self._asked += 1
        wanted = self._asked
        await consumer.commit(dict.fromkeys(self._keys, wanted))
        self._promised = dict.fromkeys(self._keys, wanted)


class _Steps(ABC):
    """One step after the other, each through the same client until one fails."""

    def __init__(self, address: str, rng: random.Random) -> None:
        self._address = address
        self._rng = rng

    async def run(self, node: Node) -> None:
        while True:
            try:
                async with Admin(bootstrap_servers=self._address, **PATIENT) as admin:
                    while True:
                        await self._step(admin)
                        await asyncio.sleep(_PAUSE_S * self._rng.random())
            except ClientError:
                await asyncio.sleep(_PAUSE_S)

    @abstractmethod
    async def _step(self, admin: Admin) -> None:
        """Raises ClientError."""


class Mover(_Steps):
    """Gives partitions of all topics other replicas, and cancels some of that."""

    def __init__(self, address: str, rng: random.Random, brokers: int) -> None:
        super().__init__(address, rng)
        self._brokers = range(1, brokers + 1)

    async def _step(self, admin: Admin) -> None:
        if self._rng.random() < 0.3 and (under_way := await admin.reassignments.list()):
            await admin.reassignments.alter({self._rng.choice(list(under_way)): None})
            return
        topic = self._rng.choice(await admin.describe_topics())
        key = TopicPartition(topic.name, self._rng.randrange(len(topic.partitions)))
        replicas = self._rng.sample(self._brokers, self._rng.randint(2, min(3, len(self._brokers))))
        await admin.reassignments.alter({key: replicas})


class Administrator(_Steps):
    """Creates topics and ACLs, and deletes some of them again."""

    def __init__(
        self, address: str, rng: random.Random, replicas: int, topic_configs: Mapping[str, str]
    ) -> None:
        super().__init__(address, rng)
        self._replicas = replicas
        self._topic_configs = topic_configs
        self._next = 0
        self._kept: set[str] = set()
        """Whose creation was confirmed, and whose deletion was not asked for."""

    async def _step(self, admin: Admin) -> None:
        if len(self._kept) > 3:
            name = min(self._kept)
            self._kept.discard(name)
            if name.startswith("topic"):
                await admin.delete_topics([name])
            else:
                await admin.acls.delete([AclFilter(resource_name=name)])
            return
        self._next += 1
        if self._rng.random() < 0.5:
            name = f"topic-{self._next}"
            await admin.create_topics([NewTopic(name, 2, self._replicas, self._topic_configs)])
        else:
            name = f"acl-{self._next}"
            await admin.acls.create([_acl(name)])
        self._kept.add(name)

    def judge(self, catalog: Catalog) -> Iterator[Finding]:
        known = {topic.name for topic in catalog.topics()} | {acl.resource_name for acl in catalog.acls}
        for name in sorted(self._kept - known):
            yield Finding(Kind.MISSING, f"{name} was created, and does not exist")
        # What was deleted may exist: a broker may execute an earlier sending of the creation later.


def _acl(name: str) -> Acl:
    return Acl(
        ResourceType.TOPIC,
        PatternType.LITERAL,
        name,
        "User:somebody",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )
