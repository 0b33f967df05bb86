"""Quotas that `tidelog quota` sets hold for clients of others, which neither fail nor lose anything."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from tests.conformance.commands import Type
from tests.conformance.conftest import RunningBroker, broker_with
from tests.conformance.raw import connected
from tests.waiting import DEADLINE_SECONDS, wait_for
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

RATE = 100_000
RECORDS = 8
VALUE = b"x" * 25_000
LIMITED = "limited"


broker = broker_with(quota_window_num=2)
"""Its quotas allow one second of use at once."""


@pytest.fixture
def limited(tidelog: Type) -> Iterator[None]:
    quotas = (f"producer_byte_rate={RATE}", f"consumer_byte_rate={RATE}")
    assert tidelog("quota", "set", *quotas, "--client-id", LIMITED)[0] == 0
    yield
    assert tidelog("quota", "delete", "--client-id", LIMITED)[0] == 0


@pytest.mark.usefixtures("limited")
def test_librdkafka_above_its_quotas_is_slowed_down_and_loses_nothing(broker: RunningBroker) -> None:
    throttled: list[float] = []
    config = {
        "bootstrap.servers": broker.address,
        "client.id": LIMITED,
        "enable.idempotence": True,
        "batch.num.messages": 1,
        "throttle_cb": lambda event: throttled.append(event.throttle_time),
    }
    offsets: list[int | None] = []

    def stored(error: KafkaError | None, message: Message) -> None:
        assert error is None
        offsets.append(message.offset())

    producer = Producer(config)
    began = time.monotonic()
    for _ in range(RECORDS):
        producer.produce("limited", VALUE, on_delivery=stored)
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert offsets == list(range(RECORDS))
    # The last request is answered at once, and those before it waited for what was beyond the first second.
    assert time.monotonic() - began >= (RECORDS - 1) * len(VALUE) / RATE - 1
    assert any(throttled)

    consumer = Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["limited"])
        read: list[Message] = []

        def all_read() -> bool:
            read.extend(consumer.consume(1, 0.1))
            return len(read) == RECORDS

        wait_for(all_read, "all records", DEADLINE_SECONDS)
        assert [message.offset() for message in read] == offsets
    finally:
        consumer.close()


@pytest.mark.one_broker("raw requests to one broker")
async def test_changes_of_topics_above_the_quota_are_refused_or_throttled_by_version(
    broker: RunningBroker, tidelog: Type
) -> None:
    """A partition in ten seconds: after the first topic the client is in debt."""
    asked = ("controller_mutation_rate=0.1", "--user", "<default>")
    assert (await asyncio.to_thread(tidelog, "quota", "set", *asked))[0] == 0
    codes = []
    for key, version, values in (
        (ApiKey.CREATE_TOPICS, 7, {"topics": [new_topic("accepted"), new_topic("refused")]}),
        (ApiKey.CREATE_PARTITIONS, 3, {"topics": [{"name": "accepted", "count": 3, "assignments": None}]}),
        (ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": "accepted"}]}),
        (ApiKey.CREATE_TOPICS, 5, {"topics": [new_topic("old version")]}),
        (ApiKey.CREATE_TOPICS, 5, {"topics": [new_topic("old-version")]}),
        (ApiKey.CREATE_TOPICS, 7, {"topics": [new_topic("validated")], "validate_only": True}),
    ):
        # Another connection each time: that of the last request is not served for some seconds.
        async with connected(broker.broker.port) as client:
            await client.send_request(key, version, {"timeout_ms": 60_000, **values})
            answer = await client.receive()
        results = getattr(
            answer,
            {ApiKey.CREATE_PARTITIONS: "results", ApiKey.DELETE_TOPICS: "responses"}.get(key, "topics"),
        )
        codes.append(([each.error_code for each in results], answer.throttle_time_ms > 0))
    assert codes == [
        ([0, ErrorCode.THROTTLING_QUOTA_EXCEEDED], True),
        ([ErrorCode.THROTTLING_QUOTA_EXCEEDED], True),
        ([ErrorCode.THROTTLING_QUOTA_EXCEEDED], True),
        ([ErrorCode.INVALID_TOPIC_EXCEPTION], False),
        ([0], True),
        ([0], False),
    ]
    assert (await asyncio.to_thread(tidelog, "quota", "delete", "--user", "<default>"))[0] == 0
    catalog = broker.broker.services.catalog
    counts = {topic.name: len(topic.partitions) for topic in catalog.topics()}
    assert counts.items() >= {"accepted": 2, "old-version": 2}.items()
    assert not counts.keys() & {"refused", "validated"}


def new_topic(name: str) -> dict[str, object]:
    return {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
