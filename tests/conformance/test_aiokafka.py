"""What aiokafka does beyond writing and reading: it speaks the oldest versions of all."""

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
from aiokafka.errors import OffsetOutOfRangeError, for_code

from tests.conformance.conftest import RunningBroker
from tests.conformance.peers.aio import AioKafka
from tests.conformance.several import BrokerProcess
from tests.waiting import DEADLINE_SECONDS
from tidelog.protocol.errors import ErrorCode

_PATIENCE_S = DEADLINE_SECONDS
PEER = AioKafka()


async def make(broker: RunningBroker, topic: str, partitions: int = 1) -> None:
    await asyncio.to_thread(PEER.create_topics, broker.address, {topic: partitions})


@pytest.mark.one_broker("counts brokers")
async def test_the_admin_lists_describes_and_deletes_topics(broker: RunningBroker) -> None:
    await make(broker, "described", 2)
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    try:
        assert "described" in await admin.list_topics()
        (described,) = await admin.describe_topics(["described"])
        assert [partition["partition"] for partition in described["partitions"]] == [0, 1]
        assert described["error_code"] == ErrorCode.NONE
        await admin.create_partitions({"described": NewPartitions(4)})
        (described,) = await admin.describe_topics(["described"])
        assert len(described["partitions"]) == 4
        await admin.delete_topics(["described"])
        assert "described" not in await admin.list_topics()
        cluster = await admin.describe_cluster()
        assert [node["port"] for node in cluster["brokers"]] == [broker.broker.port]
    finally:
        await admin.close()


@pytest.mark.parametrize("acks", [1, "all"])
async def test_what_was_acknowledged_is_counted_by_whoever_asks_next(
    broker: RunningBroker, acks: int | str
) -> None:
    """Its producer has acks=1 unless told otherwise."""
    topic = f"counted-{acks}"
    where = TopicPartition(topic, 0)
    await make(broker, topic)
    async with (
        AIOKafkaProducer(bootstrap_servers=broker.address, acks=acks) as producer,
        AIOKafkaConsumer(bootstrap_servers=broker.address) as consumer,
    ):
        consumer.assign([where])
        for number in range(20):
            stored = await producer.send_and_wait(topic, b"%d" % number, timestamp_ms=1_000_000 + number)
            assert stored.offset == number
            assert await consumer.end_offsets([where]) == {where: number + 1}
            found = (await consumer.offsets_for_times({where: 1_000_000 + number}))[where]
            assert found is not None
            assert found.offset == number


async def test_acknowledged_records_can_be_deleted_at_once(broker: RunningBroker) -> None:
    await make(broker, "emptied")
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    try:
        async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
            for number in range(20):
                await producer.send_and_wait("emptied", b"x")
                deleted = await admin.delete_records(
                    {TopicPartition("emptied", 0): RecordsToDelete(number + 1)}
                )
                assert deleted == {TopicPartition("emptied", 0): number + 1}
    finally:
        await admin.close()


async def test_a_reader_waits_for_what_comes_next(broker: RunningBroker) -> None:
    await make(broker, "awaited")
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.address)
    async with consumer, PEER.producer(broker.address) as producer:
        where = TopicPartition("awaited", 0)
        consumer.assign([where])
        await consumer.seek_to_end(where)
        waiting = asyncio.create_task(consumer.getone())
        for number in range(5):
            stored = await producer.send_and_wait("awaited", b"%d" % number)
            record = await asyncio.wait_for(waiting, _PATIENCE_S)
            assert (record.offset, record.value) == (stored.offset, b"%d" % number)
            waiting = asyncio.create_task(consumer.getone())
        waiting.cancel()


async def test_an_offset_that_is_not_there_is_out_of_range(broker: RunningBroker) -> None:
    await make(broker, "short")
    async with AIOKafkaConsumer(bootstrap_servers=broker.address, auto_offset_reset="none") as consumer:
        where = TopicPartition("short", 0)
        consumer.assign([where])
        consumer.seek(where, 5)
        with pytest.raises(OffsetOutOfRangeError):
            await asyncio.wait_for(consumer.getone(), _PATIENCE_S)


async def test_a_record_past_the_limit_of_the_broker_is_refused(broker: RunningBroker) -> None:
    await make(broker, "too-large")
    async with PEER.producer(broker.address, max_request_size=3_000_000) as producer:
        with pytest.raises(for_code(ErrorCode.MESSAGE_TOO_LARGE)):
            await asyncio.wait_for(producer.send_and_wait("too-large", b"x" * 2_000_000), _PATIENCE_S)


@pytest.mark.one_broker("with acks=0 a broker that does not lead yet drops what is sent")
async def test_without_acknowledgements_nothing_is_awaited(broker: RunningBroker) -> None:
    await make(broker, "unacknowledged")
    async with AIOKafkaProducer(bootstrap_servers=broker.address, acks=0) as producer:
        for number in range(20):
            await producer.send_and_wait("unacknowledged", b"%d" % number, partition=0)
    found = await asyncio.to_thread(PEER.read, broker.address, {("unacknowledged", 0): 20})
    assert [stored.message.value for stored in found["unacknowledged"]] == [b"%d" % n for n in range(20)]


async def test_each_record_is_stored_once_and_in_order_through_a_kill(tmp_path: Path) -> None:
    count = 1000
    async with BrokerProcess(tmp_path / "data") as process:
        address = f"127.0.0.1:{process.port}"
        await asyncio.to_thread(PEER.create_topics, address, {"survivor": 1})
        async with PEER.producer(address, max_batch_size=1000, retry_backoff_ms=20) as producer:
            answers = [await producer.send("survivor", b"%d" % n, partition=0) for n in range(count)]
            await asyncio.wait_for(answers[count // 10], _PATIENCE_S)
            await process.kill_9()
            assert not answers[-1].done()
            await process.start()
            metadata = await asyncio.wait_for(asyncio.gather(*answers), _PATIENCE_S)
        assert [each.offset for each in metadata] == list(range(count))
        found = await asyncio.to_thread(PEER.read, address, {("survivor", 0): count})
    assert [stored.message.value for stored in found["survivor"]] == [b"%d" % n for n in range(count)]
