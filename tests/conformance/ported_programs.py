"""Programs as users of aiokafka write them, with what its documentation shows.

`test_ported_programs` runs each as it is, and once more with our names in the imports.
"""

import asyncio
import json
import random
from collections import Counter
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from aiokafka.helpers import create_ssl_context


class Site(NamedTuple):
    """Where a program runs. `topic` has three partitions, `absent` does not exist."""

    servers: str
    tls_servers: str
    authority: str
    topic: str
    absent: str


async def fill(site: Site, count: int, topic: str = "") -> None:
    producer = AIOKafkaProducer(bootstrap_servers=site.servers)
    await producer.start()
    try:
        for number in range(count):
            await producer.send_and_wait(topic or site.topic, b"%d" % number, key=b"%d" % (number % 4))
    finally:
        await producer.stop()


async def waits_for_an_absent_topic(site: Site) -> None:
    consumer = AIOKafkaConsumer(site.absent, bootstrap_servers=site.servers, auto_offset_reset="earliest")
    await consumer.start()
    filling = asyncio.create_task(fill(site, 3, site.absent))
    try:
        async for msg in consumer:
            print(msg.topic == site.absent, msg.partition, msg.offset, msg.key, msg.value, msg.timestamp > 0)
            if msg.offset == 2:
                break
        print(consumer.partitions_for_topic(site.absent), consumer.partitions_for_topic("nothing"))
    finally:
        await consumer.stop()
        await filling


async def fills_batches(site: Site) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=site.servers, max_batch_size=1_000)
    await producer.start()
    batch = producer.create_batch()
    total = number = 0
    while number < 200:
        metadata = batch.append(key=None, value=b"message %d" % number, timestamp=None)
        if metadata is None:
            partition = random.choice(tuple(await producer.partitions_for(site.topic)))
            await producer.send_batch(batch, site.topic, partition=partition)
            total += batch.record_count()
            batch = producer.create_batch()
            continue
        number += 1
    sent = await (await producer.send_batch(batch, site.topic, partition=0))
    print(total + batch.record_count(), sent.topic_partition == TopicPartition(site.topic, 0))
    await producer.stop()
    consumer = AIOKafkaConsumer(
        site.topic, bootstrap_servers=site.servers, auto_offset_reset="earliest", group_id=None
    )
    await consumer.start()
    print(len({(await consumer.getone()).value for _ in range(200)}))
    await consumer.stop()


async def chooses_partitions(site: Site) -> None:
    def partitioner(key: bytes, all_partitions: list[int], available_partitions: list[int]) -> int:
        return all_partitions[0] if key == b"first" else all_partitions[-1]

    async with AIOKafkaProducer(bootstrap_servers=site.servers, partitioner=partitioner) as producer:
        for key in (b"last", b"first"):
            future = await producer.send(site.topic, b"value", key=key)
            print(key, (await future).partition)


async def shares_work_in_a_group(site: Site) -> None:
    await fill(site, 8)
    for count in (5, 3):
        consumer = AIOKafkaConsumer(
            site.topic,
            group_id=f"group-of-{site.topic}",
            bootstrap_servers=site.servers,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=2,
        )
        await consumer.start()
        values = [(await consumer.getone()).value for _ in range(count)]
        await consumer.commit()
        places = [TopicPartition(site.topic, number) for number in range(3)]
        print(len(values), sum([await consumer.committed(place) or 0 for place in places]))
        await consumer.stop()


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, consumer: Any, offsets: dict[Any, int]) -> None:
        self.consumer, self.offsets = consumer, offsets

    async def on_partitions_revoked(self, revoked: Any) -> None: ...

    async def on_partitions_assigned(self, assigned: Any) -> None:
        for tp in assigned:
            self.consumer.seek(tp, self.offsets.get(tp, -1) + 1)


async def keeps_its_own_offsets(site: Site) -> None:
    await fill(site, 8)
    saved = {TopicPartition(site.topic, 0): 5_000}
    consumer = AIOKafkaConsumer(
        bootstrap_servers=site.servers,
        group_id=f"group-of-{site.topic}",
        enable_auto_commit=False,
        auto_offset_reset="none",
        key_deserializer=lambda key: key.decode() if key else "",
    )
    await consumer.start()
    consumer.subscribe([site.topic], None, Listener(consumer, saved))
    counts: Counter[str] = Counter()
    while counts.total() < 8:
        try:
            found = await consumer.getmany(timeout_ms=1_000)
        except OffsetOutOfRangeError as error:
            lost = error.args[0]
            print([(tp == TopicPartition(site.topic, 0), offset) for tp, offset in lost.items()])
            await consumer.seek_to_beginning(*lost.keys())
            continue
        for tp, messages in found.items():
            counts.update(message.key for message in messages)
            saved[tp] = messages[-1].offset
    print(sorted(counts.items()), sum(offset + 1 for offset in saved.values()))
    await consumer.seek_to_end()
    print(await consumer.getmany(timeout_ms=10))
    await consumer.stop()


async def serializes_and_compresses(site: Site) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=site.servers,
        value_serializer=lambda value: json.dumps(value).encode(),
        compression_type="gzip",
    )
    await producer.start()
    for data in ({"a": 123.4, "b": "text"}, [1, 2, 3]):
        await producer.send(site.topic, data, partition=0, timestamp_ms=5, headers=[("h", b"x")])
    batch = producer.create_batch()
    batch.append(key=None, value="in a batch", timestamp=7)
    await producer.send_batch(batch, site.topic, partition=0)
    await producer.stop()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=site.servers, value_deserializer=json.loads, auto_offset_reset="earliest"
    )
    await consumer.start()
    consumer.assign([TopicPartition(site.topic, 0)])
    for _ in range(3):
        msg = await consumer.getone()
        print(msg.value, msg.timestamp, tuple(msg.headers))
    await consumer.stop()


async def goes_through_tls(site: Site) -> None:
    security = {
        "bootstrap_servers": site.tls_servers,
        "security_protocol": "SSL",
        "ssl_context": create_ssl_context(cafile=site.authority),
    }
    async with AIOKafkaProducer(**security) as producer:
        stored = await producer.send_and_wait(site.topic, b"secret", partition=1)
    consumer = AIOKafkaConsumer(site.topic, **security)
    await consumer.start()
    try:
        consumer.seek(TopicPartition(site.topic, 1), stored.offset)
        print((await consumer.getone()).value)
    finally:
        await consumer.stop()


async def processes_in_transactions(site: Site) -> None:
    await fill(site, 8)
    group_id, out = f"group-of-{site.topic}", f"{site.topic}-out"
    consumer = AIOKafkaConsumer(
        site.topic,
        bootstrap_servers=site.servers,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        group_id=group_id,
        isolation_level="read_committed",
    )
    await consumer.start()
    producer = AIOKafkaProducer(bootstrap_servers=site.servers, transactional_id=site.topic)
    await producer.start()
    try:
        async with producer.transaction():
            await producer.send_and_wait(out, b"aborted", partition=0)
            raise KeyError
    except (KeyError, KafkaError) as error:
        print(type(error).__name__)
    count = 0
    while count < 8:
        found = await consumer.getmany(timeout_ms=1_000)
        if not found:
            continue
        async with producer.transaction():
            offsets = {}
            for tp, messages in found.items():
                for message in messages:
                    await producer.send(out, value=message.value, key=message.key, timestamp_ms=5)
                offsets[tp] = messages[-1].offset + 1
                count += len(messages)
            await producer.send_offsets_to_transaction(offsets, group_id)
    await producer.stop()
    await consumer.stop()
    consumer = AIOKafkaConsumer(
        out,
        bootstrap_servers=site.servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    print(sorted([(await consumer.getone()).value for _ in range(8)]))
    await consumer.stop()
