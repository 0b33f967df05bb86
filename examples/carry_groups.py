"""Carries what consumer groups committed from one cluster to the copies that a mirror made on another.

`python carry_groups.py billing shipping` commits for these groups on the cluster $TO what they committed on
the cluster $FROM, for all topics that both have. Stop the groups first, and run the mirror to its end.
"""

import asyncio
import os
import sys

from tidelog import Admin, Consumer, TopicPartition


async def carry(source: Admin, target: Admin, consumer: Consumer, group: str) -> None:
    copies = set(await target.list_topics())
    committed = await source.groups.offsets(group)
    places = [place for place in committed if place.topic in copies]
    consumer.assign(places)
    offsets = {place: await offset_in_copy(consumer, place, committed[place].offset) for place in places}
    await target.groups.commit(group, offsets)
    for place, offset in offsets.items():
        print(f"{group} {place.topic}-{place.partition}: {committed[place].offset} is {offset}")


async def offset_in_copy(consumer: Consumer, place: TopicPartition, committed: int) -> int:
    """The offset in the copy of the first record that the group has not read."""
    low = (await consumer.beginning_offsets([place]))[place]
    high = (await consumer.end_offsets([place]))[place]
    while low < high:
        middle = (low + high) // 2
        consumer.seek(place, middle)
        record = await consumer.getone(place)
        # The mirror's header names the record that this one copies: TOPIC-PARTITION@OFFSET.
        source = next(value for name, value in record.headers if name == "tidelog.source")
        if int(source.rpartition(b"@")[2]) < committed:
            low = record.offset + 1
        else:
            high = middle
    return low


async def main() -> None:
    async with (
        Admin(bootstrap_servers=os.environ["FROM"]) as source,
        Admin(bootstrap_servers=os.environ["TO"]) as target,
        # A seek waits for the fetch under way, which would wait for records behind the end.
        Consumer(bootstrap_servers=os.environ["TO"], fetch_max_wait_ms=10) as consumer,
    ):
        for group in sys.argv[1:]:
            await carry(source, target, consumer, group)


asyncio.run(main())
