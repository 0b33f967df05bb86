"""A framework's workers bill orders through rebalances and a kill -9 of each broker; what then happened.

Owns the course of the trials, `bill_orders`, which all frameworks run at the same time over one cluster.
Orders arrive for one worker; while a second worker joins; before, during and after the time that the broker
is down; before and after the first worker is stopped. Orders are numbers from 0 on. Customer
`order % CUSTOMERS` sends an order.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.frameworks.workers import Worker
from tests.several.served import ONE, Served, served
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.client import Admin, Consumer, ConsumerRecord, NewTopic, Producer, TopicPartition

CUSTOMERS, PARTITIONS = 10, 2
# A busy machine starts a JVM in a minute.
_SECONDS = 5 * DEADLINE_SECONDS


@dataclass(frozen=True)
class Framework:
    """How its worker is started. Its group has its name; its topics are NAME-orders and NAME-bills."""

    name: str
    command: tuple[str, ...]
    sender: tuple[str, ...] = ()
    """The command that sends orders from standard input; without one, the trial sends them."""
    prints_bills: str = ""
    """The pattern of a line that its worker prints for a bill; without one, bills are records of a topic."""
    counts_orders: bool = False
    """Whether each bill has the number of the customer's orders so far, from the framework's own state."""
    exactly_once: bool = False
    """Whether it commits bills, state and offsets in transactions."""
    exit_code: int = 0
    """Of a worker that got SIGTERM."""


@dataclass
class Outcome:
    """What a trial saw. Offsets are of the topic of the orders."""

    framework: Framework
    sent: int = 0
    bills: list[dict[str, int]] = field(default_factory=list)
    orders: dict[int, TopicPartition] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    uncommitted: list[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]] = field(
        default_factory=list
    )
    """For each disturbance: the offsets committed before it, the ends of the partitions after it."""
    committed_at_the_end: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)

    def billed(self) -> Counter[int]:
        return Counter(bill["order"] for bill in self.bills)

    def may_be_repeated(self) -> set[int]:
        """The orders that were not committed when a disturbance began; none in transactions."""
        if self.framework.exactly_once:
            return set()
        return {
            order
            for order, where in self.orders.items()
            for before, after in self.uncommitted
            if before.get(where, 0) <= self.offsets[order] < after[where]
        }


class Trial:
    """One framework's workers, over the cluster that all share. A subclass says what a framework does
    differently.
    """

    def __init__(self, framework: Framework, folder: Path, site: "Site") -> None:
        self._framework = framework
        self._site = site
        self._folder = folder / framework.name
        self.outcome = Outcome(framework)
        self.workers: list[Worker] = []
        self._sender: Worker | None = None
        self._sent = 0
        self._before_kill: dict[TopicPartition, int] = {}
        self._orders_topic, self._bills_topic = f"{framework.name}-orders", f"{framework.name}-bills"
        self._partitions = [TopicPartition(self._orders_topic, index) for index in range(PARTITIONS)]

    async def begin(self) -> None:
        """One worker bills; a second one joins while orders arrive."""
        await self._site.create_topic(self._orders_topic)
        await self._begin_work()
        await self._send(50)
        await self._until(self._has_committed_all, "the first offsets to be committed")
        before = await self._committed()
        await self._start_worker()
        while not await self._has_members(2):
            await self._send(4)
            await self._until(self._has_billed_all, "bills while a worker joins")
        await self._settle(2, before)

    async def approach_kill(self) -> None:
        """Orders that are billed and perhaps not committed, then orders that may be on their way."""
        self._before_kill = await self._committed()
        await self._send(40)
        await self._until(self._has_billed_all, "bills before the kill")
        await self._send(20)

    async def wait_while_down(self) -> None:
        await self._send(20)

    async def recover(self) -> None:
        await self._settle(2, self._before_kill)

    async def finish(self) -> None:
        """The first worker is stopped, the second one goes on alone."""
        first, second = self.workers
        before = await self._committed()
        await self._send(20)
        await first.stop(self._framework.exit_code)
        await self._send(20)
        await self._settle(1, before)
        await self._send(20)
        await self._until(self._has_billed_all, "bills of the worker that is left")
        await second.stop(self._framework.exit_code)
        self.outcome.sent = self._sent
        self.outcome.committed_at_the_end = await self._committed()
        self.outcome.ends = await self._ends()
        self.outcome.bills = self._bills()
        for record in await self._site.read(self._orders_topic, self._sent):
            order = _order_of(record.value)
            self.outcome.orders[order] = TopicPartition(record.topic, record.partition)
            self.outcome.offsets[order] = record.offset

    async def _settle(self, members: int, before: dict[TopicPartition, int]) -> None:
        """Wait for the end of a disturbance that began when `before` was committed.

        A worker learns from a heartbeat, which may be seconds late, that another one left: what it bills
        until then may be billed again.
        """
        await self._until(self._has_billed_all, "bills after a disturbance")
        await self._until(lambda: self._has_members(members), f"a stable group of {members} members")
        await self._until(self._has_committed_all, "all offsets to be committed")
        self.outcome.uncommitted.append((before, await self._ends()))

    async def kill(self) -> None:
        for worker in [*self.workers, *([self._sender] if self._sender else [])]:
            await worker.kill()

    def _worker(self, name: str) -> Worker:
        return Worker(self._folder / name, self._site.bootstrap_servers)

    async def _begin_work(self) -> None:
        """Start the first worker, and what sends orders and reads bills."""
        if not self._framework.prints_bills:
            await self._site.create_topic(self._bills_topic)
            self._site.read_bills(self._bills_topic)
        await self._start_worker()
        if self._framework.sender:
            self._sender = self._worker("sender")
            await self._sender.start(self._framework.sender)

    async def _start_worker(self) -> None:
        await self._start(self._framework.command)

    async def _start(self, command: Sequence[str]) -> None:
        worker = self._worker(f"worker {len(self.workers)}")
        self.workers.append(worker)
        await worker.start(command)

    async def _send(self, count: int) -> None:
        for order in range(self._sent, self._sent + count):
            await self._send_order(order)
        self._sent += count

    async def _send_order(self, order: int) -> None:
        if self._sender is not None:
            await self._sender.write(str(order))
        else:
            await self._site.send(self._orders_topic, order)

    def _bills(self) -> list[dict[str, int]]:
        if not self._framework.prints_bills:
            return self._site.bills[self._bills_topic]
        printed = "".join(worker.output for worker in self.workers)
        return [
            {"order": int(number)}
            for number in re.findall(self._framework.prints_bills, printed, re.MULTILINE)
        ]

    def _has_billed_all(self) -> bool:
        return len({bill["order"] for bill in self._bills()}) == self._sent

    async def _has_committed_all(self) -> bool:
        return sum((await self._committed()).values()) == self._sent

    async def _has_members(self, count: int) -> bool:
        group = await self._site.admin.groups.describe(self._framework.name)
        return group.state == "Stable" and len(group.members) == count

    async def _committed(self) -> dict[TopicPartition, int]:
        offsets = await self._site.admin.groups.offsets(self._framework.name)
        return {where: committed.offset for where, committed in offsets.items() if where in self._partitions}

    async def _ends(self) -> dict[TopicPartition, int]:
        return await self._site.consumer.end_offsets(self._partitions)

    async def _until(self, condition: Callable[[], object], what: str) -> None:
        try:
            await until(condition, _SECONDS)
        except TimeoutError:
            printed = "\n".join(worker.output[-4000:] for worker in self.workers)
            raise TimeoutError(f"{self._framework.name}: waited for {what}. It printed:\n{printed}") from None


class Site:
    """The cluster, and the clients with which trials send orders and read bills."""

    def __init__(self, cluster: Served) -> None:
        self.bootstrap_servers = cluster.bootstrap_servers
        self.admin = Admin(bootstrap_servers=self.bootstrap_servers)
        self.consumer = Consumer(bootstrap_servers=self.bootstrap_servers, auto_offset_reset="earliest")
        self.producer = Producer(bootstrap_servers=self.bootstrap_servers)
        self.bills: dict[str, list[dict[str, int]]] = {}
        self._reading: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Site":
        await self.admin.start()
        await self.producer.start()
        await self.consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._reading:
            task.cancel()
        for client in (self.producer, self.consumer):
            await client.stop()
        await self.admin.close()

    async def create_topic(self, name: str) -> None:
        await self.admin.create_topics([NewTopic(name, num_partitions=PARTITIONS)])

    def read_bills(self, topic: str) -> None:
        """From now on what is written into the topic is added to `bills[topic]`."""
        self.bills[topic] = []
        self._reading.append(asyncio.create_task(self._read_bills(topic)))

    async def _read_bills(self, topic: str) -> None:
        async with self._reader(topic) as consumer:
            async for record in consumer:
                self.bills[topic].append(json.loads(record.value))

    def _reader(self, topic: str) -> Consumer:
        return Consumer(
            topic,
            bootstrap_servers=self.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )

    async def send(self, topic: str, order: int) -> None:
        key = b"%d" % (order % CUSTOMERS)
        await self.producer.send(topic, b"%d" % order, key=key, partition=order % PARTITIONS)

    async def read(self, topic: str, count: int) -> list[ConsumerRecord]:
        async with self._reader(topic) as consumer:
            return [await consumer.getone() for _ in range(count)]


async def bill_orders(
    folder: Path, *makers: Callable[[Path, Site], Trial], way: str = ONE
) -> dict[str, Outcome]:
    """The outcome of each framework, by its name, over a cluster that is `served` in this way. Its brokers
    are killed in turn. Raises TimeoutError where a framework does not go on."""
    quick = {"group.initial.rebalance.delay.ms": "0"}
    async with served(way, folder / "cluster", **quick) as cluster, Site(cluster) as site:
        trials = [make(folder, site) for make in makers]
        try:
            await asyncio.gather(*(trial.begin() for trial in trials))
            for broker in range(cluster.count):
                await asyncio.gather(*(trial.approach_kill() for trial in trials))
                async with cluster.without(broker):
                    await asyncio.gather(*(trial.wait_while_down() for trial in trials))
                await asyncio.gather(*(trial.recover() for trial in trials))
            await asyncio.gather(*(trial.finish() for trial in trials))
        finally:
            for trial in trials:
                await trial.kill()
    return {trial.outcome.framework.name: trial.outcome for trial in trials}


def _order_of(value: bytes) -> int:
    """The number of an order, as the trial sends it or as the argument of a task."""
    found = json.loads(value)
    return found if isinstance(found, int) else found["args"][0]
