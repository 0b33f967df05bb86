"""Copies orders to bills: the copies and the position in orders are stored together, or not at all."""

import asyncio

from tidelog import Consumer, Producer, TopicPartition

SERVERS = "127.0.0.1:9092"
SOURCE = TopicPartition("orders", 0)


async def copy() -> None:
    reader = Consumer(
        bootstrap_servers=SERVERS,
        group_id="billing",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    async with reader, Producer(bootstrap_servers=SERVERS, transactional_id="billing-0") as producer:
        reader.assign([SOURCE])
        records = await reader.getmany(timeout_ms=5_000)
        for taken in records.values():
            async with producer.transaction():
                for record in taken:
                    await producer.send("bills", record.value)
                offsets = {SOURCE: taken[-1].offset + 1}
                await producer.send_offsets_to_transaction(offsets, reader.group_metadata())


asyncio.run(copy())
