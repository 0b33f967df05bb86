"""Eight workers of one process take jobs from a queue, for five seconds."""

import asyncio
from contextlib import suppress

from tidelog import ShareConsumer


async def work(consumer: ShareConsumer) -> None:
    async for record in consumer:
        async with record.processing(reject=ValueError, release=ConnectionError):
            print(f"attempt {record.delivery_count} of {record.value!r}")


async def main() -> None:
    async with ShareConsumer(
        "jobs", group_id="workers", bootstrap_servers="127.0.0.1:9092", max_poll_records=8
    ) as consumer:
        with suppress(TimeoutError):
            async with asyncio.timeout(5), asyncio.TaskGroup() as workers:
                for _ in range(8):
                    workers.create_task(work(consumer))


asyncio.run(main())
