"""What Spark's planner asks of a stream over a topic that grows meanwhile, asked without Spark."""

import asyncio

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.conformance.client_site import TOPIC, Site
from tidelog.pipeline.offsets import OptionError, Place, to_json
from tidelog.pipeline.options.source import parse_stream_options
from tidelog.pipeline.source.micro_batches import from_json
from tidelog.pipeline.source.stream_source import TidelogStreamReader

NOON = 1_700_000_000_000


def reader(site: Site, **options: str) -> TidelogStreamReader:
    return TidelogStreamReader(
        parse_stream_options({"bootstrap.servers": site.address, "subscribe": TOPIC} | options)
    )


async def grow(site: Site, count: int) -> None:
    async with site.producer() as producer:
        for _ in range(count):
            await producer.send(TOPIC, b"x", partition=0, timestamp_ms=NOON)


def up_to(offset: int) -> dict[Place, int]:
    return {Place(TOPIC, 0): offset}


async def test_a_stream_does_not_begin_behind_its_end_where_the_topic_grew_in_between(site: Site) -> None:
    await site.create()
    await grow(site, 10)
    stream = reader(site)
    await asyncio.to_thread(stream.prepareForTriggerAvailableNow)
    await grow(site, 10)
    assert from_json(await asyncio.to_thread(stream.initialOffset)) == up_to(20)
    await grow(site, 10)
    latest = await asyncio.to_thread(stream.latestOffset, to_json(up_to(20)), ReadAllAvailable())
    assert from_json(latest) == up_to(20)


async def test_a_stream_begins_where_it_did_when_it_is_asked_again(site: Site) -> None:
    await site.create()
    stream = reader(site)
    assert from_json(await asyncio.to_thread(stream.initialOffset)) == up_to(0)
    await grow(site, 10)
    assert from_json(await asyncio.to_thread(stream.initialOffset)) == up_to(0)


async def test_a_partition_without_a_record_as_young_is_an_error_or_read_from_its_end_on(site: Site) -> None:
    await site.create(2)
    await grow(site, 10)
    given = {"startingTimestamp": str(NOON)}
    with pytest.raises(OptionError, match="events-1 holds no record at or after"):
        await asyncio.to_thread(reader(site, **given).initialOffset)
    stream = reader(site, startingOffsetsByTimestampStrategy="latest", **given)
    initial = from_json(await asyncio.to_thread(stream.initialOffset))
    assert initial == {Place(TOPIC, 0): 0, Place(TOPIC, 1): 0}
