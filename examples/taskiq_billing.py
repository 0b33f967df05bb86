"""Taskiq over Kafka: `taskiq worker taskiq_billing:broker`."""

import os

from kafka.admin import NewTopic
from taskiq_aio_kafka import AioKafkaBroker

orders = NewTopic("taskiq-orders", num_partitions=2, replication_factor=1)
broker = AioKafkaBroker(os.environ["KAFKA"], kafka_topic=orders)
broker.configure_producer(enable_idempotence=True, acks="all")
broker.configure_consumer(group_id="taskiq", auto_offset_reset="earliest", auto_commit_interval_ms=500)


@broker.task
async def bill(order: int) -> None:
    print("billed", order, flush=True)
