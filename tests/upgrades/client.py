"""A program for any version: until its input ends, it writes numbers, reads them in a group, and prints them.

The tests run it with the package of an older version, so it uses what every version has. Arguments: the
servers and the topic.
"""

import asyncio
import json
import sys

from tidelog import Consumer, Producer


async def main(address: str, topic: str) -> None:
    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.read)
    written = 0
    read: list[int] = []
    async with (
        Producer(bootstrap_servers=address, transactional_id=topic) as producer,
        Consumer(
            topic,
            bootstrap_servers=address,
            group_id=topic,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer,
    ):
        while not ended.done() or len(read) < written:
            if not ended.done():
                await producer.begin_transaction()
                await producer.send_and_wait(topic, b"%d" % written)
                await producer.commit_transaction()
                written += 1
                print(written, flush=True)
            for records in (await consumer.getmany(timeout_ms=20)).values():
                read += [int(record.value or b"") for record in records]
            await consumer.commit()
    print(json.dumps(read))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
