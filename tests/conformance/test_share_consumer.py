"""`ShareConsumer`, `Admin.groups` and the commands with a share group of a real broker.

SHARE_GROUPS_AT=host:port runs them against another one, such as Kafka, whose locks of share groups take a few
seconds at most.
"""

import asyncio
import json
import os
from collections import Counter
from contextlib import closing
from itertools import count
from typing import Any

import confluent_kafka
import pytest

from tests.conformance.commands import Type, typist
from tests.conformance.conftest import RunningBroker, broker_with
from tests.deadline import deadline
from tests.waiting import DEADLINE_SECONDS, until
from tidelog import (
    AcknowledgementError,
    Admin,
    BrokerError,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    DeadLetter,
    NewTopic,
    Producer,
    ShareConsumer,
    TopicPartition,
)

LOCK_MS = 1_000
_numbers = count()

broker = broker_with(
    **{
        "group.share.min.record.lock.duration.ms": LOCK_MS,
        "group.share.record.lock.duration.ms": LOCK_MS,
        "group.share.min.heartbeat.interval.ms": 100,
        "group.share.heartbeat.interval.ms": 100,
    }
)


@pytest.fixture
def address(broker: RunningBroker) -> str:
    return os.environ.get("SHARE_GROUPS_AT", broker.address)


@pytest.fixture
def name() -> str:
    """Of a topic and its group, new on any broker."""
    return f"jobs-{os.getpid()}-{next(_numbers)}"


async def filled(address: str, name: str, records: int, partitions: int = 2) -> None:
    """The topic, and the group that reads it from its first record on."""
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic(name, partitions, 1)])
        group = ConfigResource(ConfigResourceType.GROUP, name)
        await admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})
    await add(address, name, *(b"%d" % number for number in range(records)))


async def add(address: str, name: str, *values: bytes) -> None:
    async with Producer(bootstrap_servers=address) as producer:
        for value in values:
            await producer.send_and_wait(name, value, key=value)


def member(address: str, name: str, **settings: int) -> "ShareConsumer[bytes | None, bytes | None]":
    return ShareConsumer(name, group_id=name, bootstrap_servers=address, **settings)  # type: ignore[arg-type]


async def test_workers_of_two_members_process_each_record_once(address: str, name: str) -> None:
    await filled(address, name, 200)
    processed: Counter[bytes | None] = Counter()

    async def work(consumer: "ShareConsumer[bytes | None, bytes | None]") -> None:
        async for record in consumer:
            async with record.processing():
                await asyncio.sleep(0)
                processed[record.value] += 1

    async with member(address, name, max_poll_records=8) as one, member(address, name) as other:
        workers = [asyncio.create_task(work(each)) for each in (one, one, one, other, other)]
        await until(lambda: len(processed) == 200)
        await asyncio.gather(one.commit(), other.commit())
        await asyncio.gather(one.stop(), other.stop())
        await asyncio.gather(*workers)
    assert set(processed.values()) == {1}


async def test_released_records_come_again_and_rejected_ones_do_not(address: str, name: str) -> None:
    await filled(address, name, 3)
    async with member(address, name) as consumer:
        outcomes: list[tuple[bytes | None, int]] = []
        while len(outcomes) < 4:
            record = await consumer.getone()
            outcomes.append((record.value, record.delivery_count))
            async with record.processing(reject=ValueError, release=OSError):
                if record.value == b"0":
                    raise ValueError
                if record.value == b"1" and record.delivery_count == 1:
                    raise OSError
        await consumer.commit()
    assert sorted(outcomes) == [(b"0", 1), (b"1", 1), (b"1", 2), (b"2", 1)]


async def test_a_lock_lasts_as_long_as_its_record_is_processed(address: str, name: str) -> None:
    await filled(address, name, 1, partitions=1)
    async with member(address, name) as consumer, member(address, name) as other:
        record = await consumer.getone()
        waiting = asyncio.create_task(other.getone())
        await until(lambda: other.assignment())
        async with record.processing():
            lock_seconds = consumer._fetcher._lock_seconds  # type: ignore[union-attr]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(waiting), 2 * lock_seconds)
        await consumer.commit()
        waiting.cancel()


async def test_a_record_whose_lock_ends_goes_to_another_and_a_late_acceptance_fails(
    address: str, name: str
) -> None:
    await filled(address, name, 1, partitions=1)
    async with member(address, name) as consumer:
        late = await consumer.getone()
        consumer.unsubscribe()
        async with member(address, name) as other:
            record = await other.getone()
            assert (record.offset, record.delivery_count) == (late.offset, 2)
            record.accept()
            await other.commit()
        late.accept()
        with pytest.raises(AcknowledgementError):
            await consumer.commit()


async def test_what_is_held_at_a_stop_goes_to_the_next_member_at_once(address: str, name: str) -> None:
    await filled(address, name, 10, partitions=1)
    async with member(address, name) as consumer:
        for _ in range(4):
            record = await consumer.getone()
        record.accept()
    async with member(address, name) as consumer:
        seen = [(await consumer.getone()).offset for _ in range(9)]
    assert sorted(seen) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


async def test_an_administrator_sees_and_moves_a_share_group(address: str, name: str) -> None:
    await filled(address, name, 10, partitions=1)
    key = TopicPartition(name, 0)
    async with Admin(bootstrap_servers=address) as admin:
        async with member(address, name) as consumer:
            for _ in range(10):
                (await consumer.getone()).accept()
            await consumer.commit()
            group = await admin.groups.describe(name)
            assert (group.type, group.state, len(group.members)) == ("share", "Stable", 1)
            assert name in [each.group_id for each in await admin.groups.list() if each.type == "share"]
            with pytest.raises(BrokerError, match="NON_EMPTY_GROUP"):
                await admin.groups.alter_share_offsets(name, {key: 4})
        # Kafka stores a later start offset with one of the next changes only.
        assert (await admin.groups.share_offsets(name))[key].lag == 0
        await admin.groups.alter_share_offsets(name, {key: 4})
        assert (await admin.groups.share_offsets(name))[key].start_offset == 4
        await admin.groups.delete_share_offsets(name, [name])
        assert await admin.groups.share_offsets(name) == {}
        await admin.groups.delete([name])
        assert (await admin.groups.describe(name)).state == "Dead"


DEAD_LETTERS = {
    "errors.deadletterqueue.copy.record.enable": "true",
    "share.delivery.count.limit": "2",
}


async def with_dead_letters(address: str, name: str, **configs: str) -> str:
    """The topic of a group's dead letters."""
    topic = f"dlq.{name}"
    async with Admin(bootstrap_servers=address) as admin:
        configs = {"errors.deadletterqueue.group.enable": "true", **configs}
        await admin.create_topics([NewTopic(topic, 1, 1, configs)])
        settings = {**DEAD_LETTERS, "errors.deadletterqueue.topic.name": topic}
        await admin.alter_configs({ConfigResource(ConfigResourceType.GROUP, name): settings})
    return topic


async def dead_letters(address: str, topic: str, count: int) -> list[tuple[Any, ...]]:
    """The next so many: what their headers say, and the value."""
    found = []
    async with Consumer(topic, bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        while len(found) < count:
            record = await consumer.getone()
            letter = DeadLetter.of(record)
            assert (letter.topic_partition, letter.group_id) == (TopicPartition(topic[4:], 0), topic[4:])
            assert [each.removeprefix("__dlq.errors.") for each, _ in record.headers] == [
                *("topic", "partition", "offset", "group", "delivery.count", "message")
            ]
            found.append((letter.offset, letter.delivery_count, letter.reason, record.key, record.value))
    return found


async def test_what_is_rejected_or_given_up_becomes_a_dead_letter(address: str, name: str) -> None:
    await filled(address, name, 4, partitions=1)
    topic = await with_dead_letters(address, name)
    async with member(address, name) as consumer:
        for _ in range(5):
            record = await consumer.getone()
            if record.offset == 1:
                record.release()
            else:
                (record.accept if record.offset == 2 else record.reject)()
            await consumer.commit()
    assert sorted(await dead_letters(address, topic, 3)) == [
        (0, 1, "Offset rejected by client.", b"0", b"0"),
        (1, 2, "Offset delivery count exceeded the threshold.", b"1", b"1"),
        (3, 1, "Offset rejected by client.", b"3", b"3"),
    ]
    async with Consumer(name, bootstrap_servers=address, auto_offset_reset="earliest") as reader:
        with pytest.raises(ValueError, match="is no dead letter"):
            DeadLetter.of(await reader.getone())


@pytest.fixture
def tidelog(address: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Type:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", address)
    return typist(capfd)


def test_the_commands_know_share_groups(address: str, name: str, tidelog: Type) -> None:
    asyncio.run(filled(address, name, 10, partitions=1))
    _, shown, _ = tidelog("consume", name, "--share", name, "--max-messages", "6", "--json")
    assert [json.loads(line)["offset"] for line in shown.splitlines()] == list(range(6))
    described = json.loads(tidelog("group", "describe", name, "--json")[1])
    assert (described["type"], described["members"]) == ("share", [])
    assert [(each["topic"], each["lag"]) for each in described["offsets"]] == [(name, 4)]
    assert "share" in tidelog("group", "list")[1]
    assert tidelog("group", "reset-offsets", name, "--to-earliest")[0] == 0
    _, shown, _ = tidelog("consume", name, "--share", name, "--timeout-ms", "1000")
    assert sorted(shown.split()) == [str(number) for number in range(10)]
    assert tidelog("group", "delete", name)[0] == 0


def librdkafka(address: str, name: str) -> confluent_kafka.ShareConsumer:
    consumer = confluent_kafka.ShareConsumer(
        {"bootstrap.servers": address, "group.id": name, "share.acknowledgement.mode": "explicit"}
    )
    consumer.subscribe([name])
    return consumer


def polled(consumer: confluent_kafka.ShareConsumer, count: int) -> dict[int, Any]:
    """The next so many records, by offset."""
    found: dict[int, Any] = {}
    with deadline("records of librdkafka's share consumer", DEADLINE_SECONDS):
        while len(found) < count:
            for message in consumer.poll(1.0):
                assert message.error() is None
                found[message.offset()] = message
    return found


def test_librdkafka_accepts_releases_and_rejects(address: str, name: str) -> None:
    asyncio.run(filled(address, name, 3, partitions=1))
    kinds = confluent_kafka.AcknowledgeType
    with closing(librdkafka(address, name)) as consumer:
        messages = polled(consumer, 3)
        for offset, kind in enumerate((kinds.ACCEPT, kinds.RELEASE, kinds.REJECT)):
            consumer.acknowledge(messages[offset], kind)
        assert list(consumer.commit_sync().values()) == [None]
        (again,) = polled(consumer, 1).values()
        assert again.offset() == 1
        consumer.acknowledge(again)
        assert list(consumer.commit_sync().values()) == [None]
