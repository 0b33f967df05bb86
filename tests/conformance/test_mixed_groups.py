"""Our consumer in groups together with members of other clients, of both protocols."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from confluent_kafka import Consumer as ConfluentConsumer
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from tests.conformance.conftest import broker_with
from tests.conformance.crew import (
    CONSUMER,
    HEARTBEAT_MS,
    PARTITIONS,
    QUICK,
    RECORDS,
    SESSION_MS,
    Crew,
    numbered,
    write,
)
from tests.waiting import DEADLINE_SECONDS, until

broker = broker_with(**QUICK)


def aiokafka_member(address: str, group: str, topic: str, strategy: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        retry_backoff_ms=20,
        partition_assignment_strategy=(strategy,),
    )


@pytest.mark.parametrize("ours_leads", [True, False])
@pytest.mark.parametrize(
    ("name", "strategy"), [("range", RangePartitionAssignor), ("sticky", StickyPartitionAssignor)]
)
async def test_our_members_share_a_group_with_those_of_aiokafka(
    crew: Crew, ours_leads: bool, name: str, strategy: Any
) -> None:
    theirs = aiokafka_member(crew.address, crew.group, crew.topic, strategy)
    given: list[object] = []

    async def read() -> None:
        async for record in theirs:
            given.append(record.value)  # noqa: PERF401 (the list is looked at meanwhile)

    async def start() -> asyncio.Task[None]:
        await theirs.start()
        return asyncio.create_task(read())

    assignors = {"partition_assignment_strategy": (name,)}
    if ours_leads:
        await crew.add(**assignors)
        await until(lambda: crew.shares() == [PARTITIONS])
    task = await start()
    if not ours_leads:
        await until(lambda: len(theirs.assignment()) == PARTITIONS)
        await crew.add(**assignors)
    await until(lambda: crew.shares() == [2] and len(theirs.assignment()) == 2)
    await write(crew.address, crew.topic, range(RECORDS, 2 * RECORDS))
    await until(lambda: {*given, *crew.values()} == set(numbered(range(2 * RECORDS))))
    task.cancel()
    await theirs.stop()
    await until(lambda: crew.shares() == [PARTITIONS])
    await write(crew.address, crew.topic, range(2 * RECORDS, 3 * RECORDS))
    await until(lambda: {*given, *crew.values()} == set(numbered(range(3 * RECORDS))))
    assert max(crew.values().values()) == 1


@pytest.mark.parametrize("ours_leads", [True, False])
@pytest.mark.parametrize("name", ["range", "cooperative-sticky", "consumer"])
async def test_our_members_share_a_group_with_those_of_confluent_kafka(
    crew: Crew, ours_leads: bool, name: str
) -> None:
    """In the consumer protocol, no member leads."""
    is_classic = name != "consumer"
    classic = {
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": name,
    }
    theirs = ConfluentConsumer(
        {
            "bootstrap.servers": crew.address,
            "group.id": crew.group,
            "auto.offset.reset": "earliest",
            **(classic if is_classic else {"group.protocol": "consumer"}),
        }
    )
    given: list[object] = []
    held: list[Any] = []
    is_over = False

    def read() -> None:
        # librdkafka must not be asked for its assignment from another thread: it may wait for this one.
        while not is_over:
            held[:] = theirs.assignment()
            for message in theirs.consume(100, 0.05):
                assert message.error() is None, message.error()
                given.append(message.value())
        theirs.close()

    async def start() -> asyncio.Future[None]:
        theirs.subscribe([crew.topic])
        return asyncio.get_running_loop().run_in_executor(None, read)

    assignors: dict[str, Any] = {"partition_assignment_strategy": (name,)} if is_classic else CONSUMER
    if ours_leads:
        await crew.add(**assignors)
        await until(lambda: crew.shares() == [PARTITIONS])
    reading = await start()
    if not ours_leads:
        await until(lambda: len(held) == PARTITIONS)
        await crew.add(**assignors)
    await until(lambda: crew.shares() == [2] and len(held) == 2)
    await write(crew.address, crew.topic, range(RECORDS, 2 * RECORDS))
    await until(lambda: {*given, *crew.values()} == set(numbered(range(2 * RECORDS))))
    is_over = True
    await reading
    await until(lambda: crew.shares() == [PARTITIONS])
    await write(crew.address, crew.topic, range(2 * RECORDS, 3 * RECORDS))
    await until(lambda: {*given, *crew.values()} == set(numbered(range(3 * RECORDS))))
    assert max(crew.values().values()) == 1
    assert Counter([*given, *crew.values().elements()]) == numbered(range(3 * RECORDS))


async def test_our_members_share_a_cooperative_group_with_those_of_kafka_python(crew: Crew) -> None:
    await crew.add(partition_assignment_strategy=("cooperative-sticky",))
    await until(lambda: crew.shares() == [PARTITIONS])
    theirs = KafkaConsumer(
        crew.topic,
        bootstrap_servers=crew.address,
        group_id=crew.group,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[CooperativeStickyAssignor],
    )
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while crew.shares() != [2] or len(theirs.assignment()) != 2:
                await asyncio.to_thread(theirs.poll, 200)
    finally:
        await asyncio.to_thread(theirs.close)
    await until(lambda: crew.shares() == [PARTITIONS])
