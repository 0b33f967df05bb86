"""A delivery is awaited by many, or by none, and nobody's cancelling touches the others."""

import asyncio

import pytest

from tidelog.client import Delivery, DeliveryFailedError, RecordMetadata, TimestampType, TopicPartition
from tidelog.client.producer.batch import Identity, Outcome, ProducerBatch
from tidelog.client.producer.delivery import BatchDelivery
from tidelog.protocol.compression import Compression

KEY = TopicPartition("t", 3)


def batch(records: int = 3) -> ProducerBatch:
    made = ProducerBatch(KEY, 10_000, 0, 1_000)
    for number in range(records):
        made.builder.append(1_000 + number, None, b"%d" % number)
    made.number(Identity(7, 2), 40)
    return made


async def test_it_gives_each_records_own_offset_timestamp_and_sequence() -> None:
    made = batch()
    made.resolve(Outcome(100, -1))
    assert await Delivery.of(made, 2, 1_002) == RecordMetadata(
        "t", 3, 102, 1_002, TimestampType.CREATE_TIME, 7, 2, 42
    )


async def test_the_brokers_time_is_the_timestamp_where_the_topic_says_so() -> None:
    made = batch()
    made.resolve(Outcome(100, 5_000))
    metadata = await Delivery.of(made, 1, 1_001)
    assert (metadata.timestamp, metadata.timestamp_type) == (5_000, TimestampType.LOG_APPEND_TIME)


async def test_stored_at_an_unknown_place_has_no_offset() -> None:
    made = batch()
    made.resolve(Outcome(-1, -1))
    assert (await Delivery.of(made, 1, 1_001)).offset == -1


async def test_it_may_be_awaited_before_and_after_and_more_than_once() -> None:
    made = batch()
    delivery = Delivery.of(made, 0, 1_000)
    tasks = [asyncio.ensure_future(_await(delivery)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not delivery.done()
    made.resolve(Outcome(9, -1))
    assert {(await task).offset for task in tasks} == {9}
    assert (await delivery).offset == 9


async def test_a_callback_is_called_once_when_the_outcome_is_known_also_of_a_split_batch() -> None:
    whole, known = batch(), batch()
    called: asyncio.Queue[RecordMetadata] = asyncio.Queue()
    Delivery.of(whole, 2, 1_002).add_done_callback(lambda done: called.put_nowait(done.result()))
    whole.encode(Compression.NONE)
    parts = whole.split()
    await asyncio.sleep(0)
    assert called.empty()
    for number, part in enumerate(parts):
        part.resolve(Outcome(100 * number, -1))
    assert (await called.get()).offset == 100 * (len(parts) - 1)
    known.resolve(Outcome(9, -1))
    Delivery.of(known, 0, 1_000).add_done_callback(lambda done: called.put_nowait(done.result()))
    assert (await called.get()).offset == 9
    assert called.empty()


async def test_a_result_raises_the_error_or_that_it_is_not_known_yet() -> None:
    first, second = batch(), batch()
    one = Delivery.of(first, 0, 1_000)
    both = BatchDelivery.of_records([one, Delivery.of(second, 0, 1_000)])
    with pytest.raises(asyncio.InvalidStateError):
        one.result()
    first.resolve(Outcome(9, -1))
    assert one.result().offset == 9
    with pytest.raises(asyncio.InvalidStateError):
        both.result()
    second.resolve(Outcome(-1, -1, DeliveryFailedError("gone", *KEY)))
    with pytest.raises(DeliveryFailedError, match="gone"):
        both.result()


async def test_cancelling_one_that_waits_leaves_the_others_waiting() -> None:
    made = batch()
    delivery = Delivery.of(made, 0, 1_000)
    cancelled, kept = asyncio.ensure_future(_await(delivery)), asyncio.ensure_future(_await(delivery))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert not kept.done()
    made.resolve(Outcome(9, -1))
    assert (await kept).offset == 9


async def test_every_awaiting_raises_the_batchs_error() -> None:
    made = batch()
    error = DeliveryFailedError("no", *KEY)
    made.resolve(Outcome(-1, -1, error))
    for index in range(3):
        with pytest.raises(DeliveryFailedError) as caught:
            await Delivery.of(made, index, 1_000)
        assert caught.value is error


async def test_after_a_split_it_follows_its_record() -> None:
    made = batch(4)
    deliveries = [Delivery.of(made, index, 1_000) for index in range(4)]
    waiting = asyncio.ensure_future(_await(deliveries[3]))
    await asyncio.sleep(0)
    made.encode(Compression.NONE)
    parts = made.split()
    sequence = 40
    for number, part in enumerate(parts):
        part.number(Identity(7, 2), sequence)
        sequence += part.record_count
        part.resolve(Outcome(100 * (number + 1), -1))
    found = [await delivery for delivery in deliveries]
    assert [metadata.sequence for metadata in found] == [40, 41, 42, 43]
    assert len({metadata.offset for metadata in found}) == 4
    assert await waiting == found[3]


async def _await(delivery: Delivery) -> RecordMetadata:
    return await delivery
