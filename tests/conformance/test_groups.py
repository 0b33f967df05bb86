"""Groups of aiokafka and kafka-python: members share partitions, come, go, come back, outlive the broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka import KafkaAdminClient, KafkaConsumer

from tests.conformance.conftest import RunningBroker, broker_with
from tests.conformance.peers import Message
from tests.conformance.peers.confluent import ConfluentKafka
from tests.conformance.several import BrokerProcess
from tests.waiting import DEADLINE_SECONDS, wait_for

PARTITIONS = 4
RECORDS = 40
SESSION_MS = 6_000
HEARTBEAT_MS = 100
POLL_MS = 1_000
"""kafka-python forgets an assignment that comes just as a poll times out."""
VALUES = {b"%d" % number for number in range(RECORDS)}
_numbers = count()


broker = broker_with(group_initial_rebalance_delay_ms=0)


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    """A topic with records in each of its partitions."""
    return filled(broker.address)


def filled(address: str) -> str:
    name = f"shared-{next(_numbers)}"
    client = ConfluentKafka()
    client.create_topics(address, {name: PARTITIONS})
    messages = [Message(number % PARTITIONS, 1_000, None, b"%d" % number) for number in range(RECORDS)]
    client.write(address, {name: ("none", messages)})
    return name


class Revoked(ConsumerRebalanceListener):  # type: ignore[misc]
    """Remembers which partitions were taken away, and when they came."""

    def __init__(self) -> None:
        self.revoked: list[set[Any]] = []
        self.assigned: list[set[Any]] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.revoked.append(set(revoked))

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.assigned.append(set(assigned))


class Members:
    """aiokafka's consumers of one group, polled in turn."""

    def __init__(self, address: str, topic: str, group: str) -> None:
        self._address, self._topic, self._group = address, topic, group
        self._stack = AsyncExitStack()
        self.read: set[bytes] = set()
        self.consumers: list[Any] = []

    async def add(self, listener: Revoked | None = None, **settings: Any) -> Any:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._address,
            group_id=self._group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            retry_backoff_ms=20,
            **settings,
        )
        consumer.subscribe([self._topic], listener=listener)
        await self._stack.enter_async_context(consumer)
        self.consumers.append(consumer)
        return consumer

    async def stop(self, consumer: Any) -> None:
        self.consumers.remove(consumer)
        await consumer.stop()

    async def poll_until(self, condition: Any) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not condition():
                await self.poll()

    async def poll(self) -> None:
        for consumer in self.consumers:
            for records in (await consumer.getmany(timeout_ms=20)).values():
                self.read.update(record.value for record in records)

    async def positions(self) -> dict[Any, int]:
        return {
            where: await consumer.position(where)
            for consumer in self.consumers
            for where in consumer.assignment()
        }

    def shares(self) -> list[int]:
        return sorted(len(consumer.assignment()) for consumer in self.consumers)


@pytest.fixture
async def members(broker: RunningBroker, topic: str) -> AsyncIterator[Members]:
    made = Members(broker.address, topic, f"group-{topic}")
    async with made._stack:
        yield made


async def test_aiokafka_shares_the_partitions_and_takes_over_those_of_a_member_that_leaves(
    members: Members,
) -> None:
    first = await members.add()
    await members.poll_until(lambda: members.shares() == [PARTITIONS])
    second = await members.add()
    await members.poll_until(lambda: members.shares() == [2, 2])
    assert first.assignment().isdisjoint(second.assignment())
    await members.stop(first)
    await members.poll_until(lambda: members.shares() == [PARTITIONS] and members.read >= VALUES)


async def test_aiokafka_goes_on_where_the_group_committed(members: Members) -> None:
    first = await members.add()
    await members.poll_until(lambda: members.read >= VALUES)
    await first.commit()
    await members.stop(first)
    members.read.clear()
    second = await members.add()
    await members.poll_until(lambda: members.shares() == [PARTITIONS])
    ends = await second.end_offsets(second.assignment())
    assert {where: await second.committed(where) for where in ends} == ends
    assert not members.read


async def test_aiokafka_s_sticky_assignor_moves_no_more_than_it_must(members: Members) -> None:
    sticky = {"partition_assignment_strategy": (StickyPartitionAssignor,)}
    first = await members.add(**sticky)
    await members.poll_until(lambda: members.shares() == [PARTITIONS])
    before = set(first.assignment())
    await members.add(**sticky)
    await members.poll_until(lambda: members.shares() == [2, 2])
    assert first.assignment() < before


async def test_a_static_member_of_aiokafka_comes_back_and_nobody_rebalances(members: Members) -> None:
    listener = Revoked()
    first = await members.add(listener, group_instance_id="first")
    second = await members.add(group_instance_id="second")
    await members.poll_until(
        lambda: members.shares() == [2, 2] and listener.assigned[-1] == first.assignment()
    )
    share, rebalances = second.assignment(), len(listener.assigned)
    await members.stop(second)
    back = await members.add(group_instance_id="second")
    await members.poll_until(lambda: back.assignment())
    assert back.assignment() == share
    assert len(listener.assigned) == rebalances
    assert first.assignment().isdisjoint(share)


def test_kafka_python_shares_the_partitions_and_goes_on_where_the_group_committed(
    broker: RunningBroker, topic: str
) -> None:
    def member() -> KafkaConsumer:
        return KafkaConsumer(
            topic,
            bootstrap_servers=broker.address,
            group_id=f"group-{topic}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )

    read: set[bytes] = set()
    consumers = [member()]

    def shares(*expected: int) -> bool:
        for consumer in consumers:
            for records in consumer.poll(timeout_ms=POLL_MS).values():
                read.update(record.value for record in records)
        return sorted(len(consumer.assignment()) for consumer in consumers) == list(expected)

    try:
        wait_for(lambda: shares(PARTITIONS) and read >= VALUES, "all records", DEADLINE_SECONDS)
        consumers[0].commit()
        read.clear()
        consumers.append(member())
        wait_for(lambda: shares(2, 2), "two halves", DEADLINE_SECONDS)
        consumers.pop(0).close()
        wait_for(lambda: shares(PARTITIONS), "the whole", DEADLINE_SECONDS)
        assert not read
    finally:
        for consumer in consumers:
            consumer.close()


def test_operators_see_and_delete_groups_with_kafka_python(broker: RunningBroker, topic: str) -> None:
    group = f"group-{topic}"
    consumer = KafkaConsumer(topic, bootstrap_servers=broker.address, group_id=group)
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        wait_for(
            lambda: consumer.poll(timeout_ms=POLL_MS) or consumer.assignment(), "partitions", DEADLINE_SECONDS
        )
        described = admin.describe_groups([group])[group]
        assert described["group_state"] == "Stable"
        assert len(described["members"]) == 1
        assert group in {each["group_id"] for each in admin.list_groups()}
        consumer.close()
        admin.delete_groups([group])
        assert group not in {each["group_id"] for each in admin.list_groups()}
    finally:
        consumer.close()
        admin.close()


async def test_members_come_back_after_kill_9_and_nothing_committed_is_lost(tmp_path: Path) -> None:
    settings = {"group.initial.rebalance.delay.ms": 0}
    async with BrokerProcess(tmp_path, settings=settings) as process:
        address = f"127.0.0.1:{process.port}"
        topic = await asyncio.to_thread(filled, address)
        members = Members(address, topic, "g")
        async with members._stack:
            for _ in range(2):
                await members.add(request_timeout_ms=5_000)
            await members.poll_until(lambda: members.shares() == [2, 2])
            # What the first member read before the second one came is read again.
            async with asyncio.timeout(DEADLINE_SECONDS):
                while sum((acknowledged := await members.positions()).values()) < RECORDS:
                    await members.poll()
            for consumer in members.consumers:
                await consumer.commit({where: acknowledged[where] for where in consumer.assignment()})

            await process.kill_9()
            await process.restart()
            more = {b"more %d" % number for number in range(PARTITIONS)}
            async with AIOKafkaProducer(bootstrap_servers=address) as producer:
                for number, value in enumerate(sorted(more)):
                    await producer.send_and_wait(topic, value, partition=number)
            members.read.clear()
            await members.poll_until(lambda: members.read >= more and members.shares() == [2, 2])
            assert not members.read & VALUES
            committed = {
                where: await consumer.committed(where)
                for consumer in members.consumers
                for where in consumer.assignment()
            }
            assert committed == acknowledged
            for consumer in members.consumers:
                await consumer.commit()
