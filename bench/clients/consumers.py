"""The consumers that are compared: by partition, from the beginning, with their defaults.

By default, confluent-kafka's would fetch nothing for a second whenever its queue is full, as it is of small
records.
"""

from typing import Any

from bench.wire import HOST

CLIENTS = ("tidelog", "aiokafka")
"""Those of asyncio."""
CONFLUENT = "confluent-kafka"
FETCH_BYTES = 1 << 20
MOST_RECORDS = 500
"""Of one getmany; aiokafka's and the Java client's max.poll.records."""


async def open_consumer(name: str, port: int, topic: str) -> Any:
    """Connect the client of this name and assign it partition 0 of `topic`, at its beginning.

    Gives an object with aiokafka's verbs: getone, getmany, async for, stop.
    """
    servers = f"{HOST}:{port}"
    consumer: Any
    partition: Any
    if name == "tidelog":
        from tidelog.client import Consumer, TopicPartition

        consumer = Consumer(bootstrap_servers=servers, max_partition_fetch_bytes=FETCH_BYTES)
        partition = TopicPartition(topic, 0)
    else:
        import aiokafka

        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, max_partition_fetch_bytes=FETCH_BYTES, enable_auto_commit=False
        )
        partition = aiokafka.TopicPartition(topic, 0)
    await consumer.start()
    consumer.assign([partition])
    consumer.seek(partition, 0)
    return consumer


def open_confluent(port: int, topic: str) -> Any:
    """confluent-kafka's consumer, assigned as those of `open_consumer`."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": f"{HOST}:{port}",
            "group.id": "unused",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": FETCH_BYTES,
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    return consumer
