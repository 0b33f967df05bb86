"""How the sender treats brokers: it pauses when asked to, and renews an identity that has been idle."""

import asyncio

from client import Producer
from protocol.records import read_batch_header
from protocol.schema import ApiKey
from tests.unit.client.scripted import TOPIC, Request, ScriptedBroker


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
