"""How the sender treats brokers: it pauses when asked to, and renews an identity that has been idle."""

import asyncio

import pytest

from tests.unit.wire.scripted import TOPIC, Request, ScriptedBroker
from tests.waiting import DEADLINE_SECONDS
from tidelog.client import DeliveryFailedError, Producer
from tidelog.protocol.records import read_batch_header
from tidelog.protocol.schema import ApiKey


async def test_a_broker_that_asks_for_a_pause_gets_one() -> None:
    loop = asyncio.get_running_loop()
    arrived: list[float] = []

    def throttle(request: Request) -> dict[str, object]:
        arrived.append(loop.time())
        answer = ScriptedBroker.produced(request, base_offset=len(arrived) - 1)
        return {**answer, "throttle_time_ms": 200 if len(arrived) == 1 else 0}

    async with ScriptedBroker() as broker, Producer(bootstrap_servers=broker.address) as producer:
        broker.scripts[ApiKey.PRODUCE] = throttle
        for number in range(3):
            await producer.send_and_wait(TOPIC, b"%d" % number)
    assert arrived[1] - arrived[0] >= 0.2
    assert arrived[2] - arrived[1] < 0.2


async def test_an_idle_producer_renews_before_it_sends_and_one_at_work_does_not() -> None:
    async with (
        ScriptedBroker() as broker,
        Producer(bootstrap_servers=broker.address, producer_id_lease_ms=300) as producer,
    ):
        loop = asyncio.get_running_loop()
        for _ in range(3):
            await producer.send_and_wait(TOPIC, b"busy")
        idle = loop.create_future()
        loop.call_later(0.35, idle.set_result, None)
        await idle
        metadata = await producer.send_and_wait(TOPIC, b"after")
        headers = [
            read_batch_header(partition.records)
            for request in broker.seen(ApiKey.PRODUCE)
            for topic in request.values.topic_data
            for partition in topic.partition_data
        ]
    assert [(each.producer_epoch, each.base_sequence) for each in headers] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert (metadata.producer_epoch, metadata.sequence) == (1, 0)
    assert len(broker.seen(ApiKey.INIT_PRODUCER_ID)) == 1


async def test_nothing_is_sent_to_a_broker_that_reads_more_slowly_than_we_write() -> None:
    async with ScriptedBroker() as broker, Producer(bootstrap_servers=broker.address) as producer:
        await producer.send_and_wait(TOPIC, b"first")
        connection = await producer._cluster.connected(1)
        connection.pause_writing()
        deliveries = [await producer.send(TOPIC, b"waits") for _ in range(3)]
        # An answer to another request shows that the sender had its turn.
        await connection.call(ApiKey.METADATA, {"topics": []})
        assert len(broker.seen(ApiKey.PRODUCE)) == 1
        connection.resume_writing()
        await asyncio.gather(*deliveries)


async def test_no_request_is_larger_than_it_may_be_however_many_partitions_have_records() -> None:
    async with (
        ScriptedBroker(partitions=10) as broker,
        Producer(bootstrap_servers=broker.address, max_request_size=1_000, linger_ms=5) as producer,
    ):
        deliveries = [await producer.send(TOPIC, b"x" * 100, partition=number % 10) for number in range(20)]
        await asyncio.gather(*deliveries)
        sizes = [
            [len(partition.records) for partition in request.values.topic_data[0].partition_data]
            for request in broker.seen(ApiKey.PRODUCE)
        ]
    assert sum(map(len, sizes)) >= 10
    assert max(map(len, sizes)) > 1
    assert max(map(sum, sizes)) <= 1_000


async def test_zstd_is_not_sent_to_a_broker_that_cannot_know_it() -> None:
    async with (
        ScriptedBroker(Produce=(3, 6)) as broker,
        Producer(bootstrap_servers=broker.address, compression_type="zstd") as producer,
    ):
        with pytest.raises(DeliveryFailedError, match="UNSUPPORTED_VERSION"):
            await producer.send_and_wait(TOPIC, b"x" * 1_000)
        assert broker.seen(ApiKey.PRODUCE) == []
    async with (
        ScriptedBroker(Produce=(3, 6)) as broker,
        Producer(bootstrap_servers=broker.address, compression_type="lz4") as producer,
    ):
        await producer.send_and_wait(TOPIC, b"x" * 1_000)
        assert [request.version for request in broker.seen(ApiKey.PRODUCE)] == [6]


async def test_records_wait_while_the_metadata_names_no_broker() -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, failure: failures.append(failure))
    async with ScriptedBroker() as broker, Producer(bootstrap_servers=broker.address) as producer:
        await producer.send_and_wait(TOPIC, b"first")
        broker.scripts[ApiKey.METADATA] = lambda request: {**broker.metadata([TOPIC]), "brokers": []}
        await producer._cluster.refresh()
        delivery = await producer.send(TOPIC, b"second")
        await producer._cluster.refresh()
        del broker.scripts[ApiKey.METADATA]
        await producer._cluster.refresh()
        async with asyncio.timeout(DEADLINE_SECONDS):
            await delivery
    assert not failures
