"""Whole batches in a session: sent in one piece, and trimmed to the record where the log holds a part."""

import pytest

from tests.conformance.client_site import FIRST, TOPIC, Site
from tidelog.client import BatchBuilder, Producer, ProducerSession, SessionPartition
from tidelog.protocol.records import RecordBatchBuilder


def values(first: int, end: int) -> list[bytes]:
    return [b"%04d" % number for number in range(first, end)]


async def send(producer: Producer, first: int, end: int) -> None:
    builder = RecordBatchBuilder()
    for value in values(first, end):
        builder.append(1_700_000_000_000, None, value)
    await (await producer.send_batch(BatchBuilder.of(builder), TOPIC, partition=0))


async def test_whole_batches_go_on_behind_what_the_log_holds(site: Site) -> None:
    await site.create()
    async with site.producer() as producer:
        saved = await producer.session()
        await send(producer, 0, 10)
        await send(producer, 10, 25)
        assert (await producer.session()).partitions[FIRST] == SessionPartition(0, 25, 25)
    async with site.producer(session=saved) as producer:
        await send(producer, 0, 20)
        await send(producer, 20, 40)
    assert await site.stored() == values(0, 40)


async def test_late_batches_of_another_process_are_trimmed_to_the_record(site: Site) -> None:
    await site.create()
    async with site.producer() as zombie:
        saved = await zombie.session()
        await send(zombie, 0, 10)
        saved = await zombie.session()
        async with site.producer(session=saved) as successor:
            await send(successor, 10, 23)
            await send(zombie, 10, 30)
            await send(successor, 23, 45)
        await send(zombie, 30, 45)
    assert await site.stored() == values(0, 45)


async def test_a_session_may_begin_a_new_epoch_which_fences_the_old(site: Site) -> None:
    await site.create()
    async with site.producer() as old:
        begun = await old.session()
        await send(old, 0, 10)
        partitions = {FIRST: SessionPartition(1, 0, 10)}
        later = ProducerSession(begun.producer_id, 1, begun.saved_at_ms, {}, partitions)
        async with site.producer(session=later) as successor:
            await send(successor, 10, 20)
        with pytest.raises(Exception, match="47"):
            await send(old, 10, 20)
    assert await site.stored() == values(0, 20)
