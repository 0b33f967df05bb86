"""A broker inside a test: quick to start, alone on its port and folder, and gone afterwards."""

import asyncio
import socket
import threading
from pathlib import Path

import pytest

from tests.ports import free_port
from tidelog.broker.fault_injection.rules import FaultError
from tidelog.broker.testing.embedded import EmbeddedBroker, StartError, ThreadedBroker
from tidelog.client import Admin, ClientError, Consumer, Producer
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.settings import ConfigError


async def send(broker: EmbeddedBroker | ThreadedBroker, topic: str, *values: bytes) -> list[int]:
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        return [(await producer.send_and_wait(topic, value)).offset for value in values]


async def read(broker: EmbeddedBroker | ThreadedBroker, topic: str, count: int) -> list[object]:
    async with Consumer(
        topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        return [(await consumer.getone()).value for _ in range(count)]


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_it_serves_and_leaves_nothing_behind() -> None:
    async with EmbeddedBroker(settings={"port": free_port()}) as broker:
        topic = await broker.create_topic()
        assert await send(broker, topic, b"a", b"b") == [0, 1]
        assert await read(broker, topic, 2) == [b"a", b"b"]
        assert broker.data_dir.exists()
    assert not broker.data_dir.exists()
    assert not is_listening(broker.port)
    assert not broker.is_running


async def test_it_is_gone_also_when_the_test_fails() -> None:
    with pytest.raises(LookupError):
        async with EmbeddedBroker(settings={"port": free_port()}) as broker:
            raise LookupError
    assert not broker.data_dir.exists()
    assert not is_listening(broker.port)


async def test_brokers_side_by_side_know_nothing_of_each_other() -> None:
    async with EmbeddedBroker() as one, EmbeddedBroker() as other:
        assert one.port != other.port
        assert one.data_dir != other.data_dir
        await one.create_topic("mine")
        async with Admin(bootstrap_servers=other.bootstrap_servers) as admin:
            assert await admin.list_topics() == []


async def test_a_folder_that_was_given_is_kept_and_can_be_served_again(tmp_path: Path) -> None:
    async with EmbeddedBroker(data_dir=tmp_path / "data") as broker:
        topic = await broker.create_topic("kept")
        await send(broker, topic, b"a")
    assert (tmp_path / "data" / "kept-0").is_dir()
    async with EmbeddedBroker(data_dir=tmp_path / "data") as broker:
        assert await read(broker, topic, 1) == [b"a"]


async def test_a_client_carries_on_over_a_restart() -> None:
    async with EmbeddedBroker() as broker:
        port, topic = broker.port, await broker.create_topic()
        async with Producer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=5) as producer:
            before = await producer.send_and_wait(topic, b"before")
            await broker.restart()
            after = await producer.send_and_wait(topic, b"after")
        assert broker.port == port
        assert (before.offset, after.offset) == (0, 1)
        assert before.producer_id == after.producer_id
        assert after.sequence == 1


async def test_a_crash_leaves_the_folder_as_kill_9_would() -> None:
    async with EmbeddedBroker(settings={"port": free_port()}) as broker:
        topic = await broker.create_topic()
        await send(broker, topic, b"a", b"b")
        await broker.crash()
        assert not broker.is_running
        assert not is_listening(broker.port)
        assert not list(broker.data_dir.glob("**/*.snapshot"))
        assert not (broker.data_dir / ".kafka_cleanshutdown").exists()
        await broker.start()
        log = broker.broker.services.replica(topic, 0).log
        assert not log.recovery.clean_shutdown
        assert log.recovery.replayed_batches == 2
        assert await read(broker, topic, 2) == [b"a", b"b"]


async def test_a_crash_answers_no_request() -> None:
    async with EmbeddedBroker() as broker:
        topic = await broker.create_topic()
        async with Producer(
            bootstrap_servers=broker.bootstrap_servers, delivery_timeout_ms=300, retry_backoff_ms=5
        ) as producer:
            await producer.send_and_wait(topic, b"a")
            await broker.crash()
            delivery = await producer.send(topic, b"b")
            with pytest.raises(ClientError):
                await delivery


async def test_a_stopped_broker_can_be_closed_and_started_anew() -> None:
    broker = EmbeddedBroker()
    await broker.start()
    await broker.start()
    await broker.create_topic("old")
    await broker.close()
    await broker.close()
    await broker.start()
    assert broker.broker.services.catalog.topic("old") is None
    await broker.close()
    with pytest.raises(RuntimeError, match="does not run"):
        _ = broker.broker


async def test_topics_have_the_partitions_and_settings_that_were_asked_for() -> None:
    async with EmbeddedBroker() as broker:
        name = await broker.create_topic("orders", partitions=3, configs={"max.message.bytes": "1000"})
        topic = broker.broker.services.catalog.topic(name)
        assert topic is not None
        assert len(topic.partitions) == 3
        assert topic.configs["max.message.bytes"] == "1000"
        assert await broker.create_topic() != await broker.create_topic()
        with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.TOPIC_ALREADY_EXISTS):
            await broker.create_topic("orders")


async def test_a_group_begins_at_once_unless_the_test_wants_kafka_s_delay() -> None:
    for settings, delay_ms in (({}, 0), ({"group.initial.rebalance.delay.ms": 3_000}, 3_000)):
        async with EmbeddedBroker(settings=settings) as broker:
            assert broker.broker.config.group_initial_rebalance_delay_ms == delay_ms


def test_settings_are_checked_before_anything_is_made() -> None:
    with pytest.raises(ConfigError, match=r"log\.segment\.bytes"):
        EmbeddedBroker(settings={"log.segment.bytes": -1})
    with pytest.raises(ConfigError, match=r"log\.segmen"):
        EmbeddedBroker(settings={"log.segmen.bytes": 1})


async def test_a_start_that_fails_leaves_no_folder() -> None:
    async with EmbeddedBroker() as first:
        second = EmbeddedBroker(settings={"port": first.port})
        with pytest.raises(StartError, match=str(first.port)):
            await second.start()
        assert not second.data_dir.exists()


def test_a_threaded_broker_serves_whatever_the_test_does() -> None:
    threads = set(threading.enumerate())
    with ThreadedBroker(settings={"port": free_port()}) as broker:
        topic = broker.create_topic(partitions=2)
        assert asyncio.run(send(broker, topic, b"a")) == [0]
        broker.restart()
        broker.crash()
        assert not broker.is_running
        broker.restart()
        assert is_listening(broker.port)
    assert not is_listening(broker.port)
    assert not broker.data_dir.exists()
    assert set(threading.enumerate()) <= threads
    broker.close()


def test_a_threaded_broker_that_cannot_start_leaves_no_thread() -> None:
    with ThreadedBroker() as first:
        threads = set(threading.enumerate())
        with pytest.raises(StartError), ThreadedBroker(settings={"port": first.port}):
            pass
        assert set(threading.enumerate()) <= threads


async def test_it_fails_as_a_test_orders_it() -> None:
    async with EmbeddedBroker(settings={"faults.enable": True}) as broker:
        topic = await broker.create_topic()
        broker.order_fault("error", error="NOT_ENOUGH_REPLICAS", when="before", topic=topic, count=2)
        taken = broker.order_fault("cut", topic=topic)
        assert (taken["fault"], taken["remaining"]) == ("cut", 1)
        assert await send(broker, topic, b"a") == [0]
        assert [each["hits"] for each in broker.faults()["finished"]] == [2, 1]
        broker.order_fault("drop", count=None)
        broker.clear_faults()
        assert broker.faults()["faults"] == []
        assert await send(broker, topic, b"b") == [1]
        wrong: tuple[dict[str, object], ...] = ({"count": -1}, {"topics": "t"}, {"api": "nonsense"})
        for fields in wrong:
            with pytest.raises(FaultError):
                broker.order_fault("drop", **fields)
        with pytest.raises(FaultError, match="expected one of drop"):
            broker.order_fault("nonsense")
    async with EmbeddedBroker() as broker:
        with pytest.raises(RuntimeError, match=r"faults\.enable=true"):
            broker.order_fault("cut")


def test_the_broker_of_the_fixture_fails_too(tidelog_broker: ThreadedBroker, tidelog_topic: str) -> None:
    tidelog_broker.order_fault("cut", topic=tidelog_topic)
    assert asyncio.run(send(tidelog_broker, tidelog_topic, b"a")) == [0]
    assert tidelog_broker.faults()["finished"][0]["hits"] == 1
    tidelog_broker.order_fault("drop", count=None)
    tidelog_broker.clear_faults()
    assert tidelog_broker.faults()["faults"] == []
