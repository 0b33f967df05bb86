"""aiokafka as a peer; each call runs on an event loop of its own."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.conformance.peers import Message, Stored
from tests.waiting import DEADLINE_SECONDS

_PATIENCE_S = DEADLINE_SECONDS


class AioKafka:
    name = "aiokafka"

    def can_write(self, message: Message) -> bool:
        return message.key is not None or message.value is not None

    def create_topics(self, address: str, partitions: Mapping[str, int]) -> None:
        asyncio.run(self._create_topics(address, partitions))

    async def _create_topics(self, address: str, partitions: Mapping[str, int]) -> None:
        async with _started(AIOKafkaAdminClient(bootstrap_servers=address)) as admin:
            wanted = [NewTopic(name, count, 1) for name, count in partitions.items()]
            answer = await admin.create_topics(wanted)
            assert [error[1] for error in answer.topic_errors] == [0] * len(wanted)

    def delete_topic(self, address: str, topic: str) -> None:
        asyncio.run(self._delete_topic(address, topic))

    async def _delete_topic(self, address: str, topic: str) -> None:
        async with _started(AIOKafkaAdminClient(bootstrap_servers=address)) as admin:
            answer = await admin.delete_topics([topic])
            assert [tuple(error) for error in answer.topic_error_codes] == [(topic, 0)]

    def producer(self, address: str, **settings: object) -> AIOKafkaProducer:
        """An idempotent producer; must be made on a running loop."""
        return AIOKafkaProducer(
            bootstrap_servers=address, enable_idempotence=True, acks="all", linger_ms=2, **settings
        )

    def write(
        self, address: str, topics: Mapping[str, tuple[str, Sequence[Message]]]
    ) -> dict[str, list[tuple[int, int, int]]]:
        async def write_all() -> dict[str, list[tuple[int, int, int]]]:
            return {
                topic: await self._write(address, topic, codec, messages)
                for topic, (codec, messages) in topics.items()
            }

        return asyncio.run(write_all())

    async def _write(
        self, address: str, topic: str, codec: str, messages: Sequence[Message]
    ) -> list[tuple[int, int, int]]:
        async with self.producer(address, compression_type=None if codec == "none" else codec) as producer:
            deliveries = [
                await producer.send(
                    topic,
                    message.value,
                    message.key,
                    message.partition,
                    timestamp_ms=message.timestamp,
                    headers=list(message.headers),
                )
                for message in messages
            ]
            answers = await asyncio.wait_for(asyncio.gather(*deliveries), _PATIENCE_S)
        # aiokafka names the timestamp of a batch's first record for all of it, so what it says is left out.
        return [
            (answer.partition, answer.offset, message.timestamp)
            for answer, message in zip(answers, messages, strict=True)
        ]

    def read(self, address: str, ends: Mapping[tuple[str, int], int]) -> dict[str, list[Stored]]:
        return asyncio.run(asyncio.wait_for(self._read(address, ends), _PATIENCE_S))

    async def _read(self, address: str, ends: Mapping[tuple[str, int], int]) -> dict[str, list[Stored]]:
        found: dict[str, list[Stored]] = {topic: [] for topic, _ in ends}
        left = {TopicPartition(*partition): end for partition, end in ends.items() if end}
        async with _consumer(address) as consumer:
            consumer.assign(list(left))
            await consumer.seek_to_beginning(*left)
            while left:
                batches = await consumer.getmany(timeout_ms=1000)
                for partition, records in batches.items():
                    found[partition.topic] += map(_stored, records)
                    if records[-1].offset + 1 >= left[partition]:
                        del left[partition]
                        consumer.pause(partition)
        return found

    def offsets(
        self, address: str, topic: str, partition: int, timestamp: int
    ) -> tuple[int, int, int | None]:
        return asyncio.run(self._offsets(address, TopicPartition(topic, partition), timestamp))

    async def _offsets(
        self, address: str, partition: TopicPartition, timestamp: int
    ) -> tuple[int, int, int | None]:
        async with _consumer(address) as consumer:
            first = await consumer.beginning_offsets([partition])
            end = await consumer.end_offsets([partition])
            found = (await consumer.offsets_for_times({partition: timestamp}))[partition]
        return first[partition], end[partition], None if found is None else found.offset


class _started:  # noqa: N801
    """`async with` for the admin client, which has none."""

    def __init__(self, client: AIOKafkaAdminClient) -> None:
        self._client = client

    async def __aenter__(self) -> AIOKafkaAdminClient:
        await self._client.start()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()


def _consumer(address: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="none", fetch_max_wait_ms=100)


def _stored(record: Any) -> Stored:
    message = Message(record.partition, record.timestamp, record.key, record.value, tuple(record.headers))
    return Stored(record.offset, message)
