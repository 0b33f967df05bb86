"""Our client and a broker process that stops answering."""

import asyncio
from pathlib import Path

import pytest

from tests.conformance.several import BrokerProcess
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.client import Admin, BrokerUnavailableError, Consumer, NewTopic, Producer, TopicPartition

TOPIC = "events"


async def test_a_broker_that_stops_answering_is_left_after_the_request_timeout_and_found_again(
    tmp_path: Path,
) -> None:
    async with BrokerProcess(tmp_path / "data") as process:
        servers = f"127.0.0.1:{process.port}"
        async with Admin(bootstrap_servers=servers) as admin:
            await admin.create_topics([NewTopic(TOPIC, 1, 1)])
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            Producer(bootstrap_servers=servers, request_timeout_ms=4_000) as producer,
            Consumer(TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
        ):
            await producer.send_and_wait(TOPIC, b"before")
            silent = await producer._cluster.connected(1)
            process.pause()
            deliveries = [await producer.send(TOPIC, b"meanwhile") for _ in range(3)]
            await until(lambda: not silent.is_open)
            with pytest.raises(
                BrokerUnavailableError, match=f"no broker of {servers} answered within 200 ms"
            ):
                await Admin(bootstrap_servers=servers, request_timeout_ms=200).start()
            assert not any(delivery.done() for delivery in deliveries)
            process.resume()
            assert [(await delivery).offset for delivery in deliveries] == [1, 2, 3]
            assert [(await consumer.getone()).value for _ in range(4)] == [b"before", *[b"meanwhile"] * 3]
            assert await consumer.end_offsets([TopicPartition(TOPIC, 0)]) == {TopicPartition(TOPIC, 0): 4}
