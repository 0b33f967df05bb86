"""Markers of a decided transaction: only those that are needed, and which could not be written."""

import asyncio
import gc

import pytest

from tests.unit.broker.conftest import OpenServices
from tidelog.broker.cluster.catalog import OFFSETS_TOPIC
from tidelog.broker.services import Services
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import TransactionMarker
from tidelog.protocol.steps import ELEMENTS_PER_STEP
from tidelog.protocol.types import TopicPartition

MARKER = TransactionMarker(7, 0, 0, is_commit=True)


@pytest.fixture
async def services(open_here: OpenServices) -> Services:
    opened = await open_here(num_partitions=2)
    await opened.topics.create("t")
    await opened.groups.make_topic()
    return opened


async def test_a_partition_that_fails_is_named_and_one_that_is_gone_needs_no_marker(
    services: Services,
) -> None:
    writer = services.transactions._markers
    wanted = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 9), TopicPartition("u", 0)]
    services.replicas["t", 1].fail(OSError("the disk is gone"))
    offsets = TopicPartition(OFFSETS_TOPIC, 3)
    failed = await writer.write(MARKER, [*wanted, offsets])
    assert {where: error.code for where, error in failed.items()} == {
        wanted[1]: ErrorCode.KAFKA_STORAGE_ERROR
    }
    assert services.replicas["t", 0].high_watermark == services.replicas[offsets].high_watermark == 1


async def test_a_write_that_is_cancelled_at_a_pause_drops_no_work_that_was_made(services: Services) -> None:
    gone = [TopicPartition("u", index) for index in range(ELEMENTS_PER_STEP)]
    write = services.transactions._markers.write(MARKER, [TopicPartition(OFFSETS_TOPIC, 3), *gone])
    task = asyncio.create_task(write)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # pytest fails if a coroutine was made that is never awaited.
    gc.collect()
