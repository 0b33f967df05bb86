"""What waits to be sent, when it is ready, and within which memory."""

import pytest

from client.accumulator import Accumulator, PartitionQueue
from client.batch import ProducerBatch
from client.types import TopicPartition

KEY = TopicPartition("t", 0)


def accumulator(**settings: int) -> Accumulator:
    defaults = {"max_batch_size": 1_000, "linger_ms": 0, "buffer_memory": 10_000, "delivery_timeout_ms": 500}
    return Accumulator(**{**defaults, **settings})


def put(to: Accumulator, queue: PartitionQueue, size: int = 10, now_ms: int = 0) -> ProducerBatch:
    return to.open_batch(queue, size + 100, now_ms, 1_000, None, b"x" * size)


def test_a_partition_has_one_queue() -> None:
    it = accumulator()
    assert it.queue(KEY) is it.queue(TopicPartition("t", 0))
    assert it.queue(KEY) is not it.queue(TopicPartition("t", 1))


def test_batches_leave_in_the_order_of_their_opening() -> None:
    it = accumulator()
    queue = it.queue(KEY)
    batches = [put(it, queue) for _ in range(3)]
    assert [it.drain(queue) for _ in range(3)] == batches
    assert it.is_empty


def test_a_drained_batch_takes_no_more_records() -> None:
    it = accumulator()
    queue = it.queue(KEY)
    put(it, queue)
    it.drain(queue)
    assert queue.open is None


def test_only_the_last_batch_lingers() -> None:
    it = accumulator(linger_ms=20)
    queue = it.queue(KEY)
    put(it, queue, now_ms=5)
    assert it.ready_at_ms(queue) == 25
    put(it, queue, now_ms=6)
    assert it.ready_at_ms(queue) == 5
    it.drain(queue)
    assert it.ready_at_ms(queue) == 26


def test_nothing_lingers_while_somebody_hurries() -> None:
    it = accumulator(linger_ms=20)
    queue = it.queue(KEY)
    put(it, queue, now_ms=5)
    it.hurry()
    it.hurry()
    it.relax()
    assert it.ready_at_ms(queue) == 5
    it.relax()
    assert it.ready_at_ms(queue) == 25


def test_an_open_batch_holds_its_full_size_and_an_encoded_one_what_it_takes() -> None:
    it = accumulator()
    queue = it.queue(KEY)
    batch = put(it, queue)
    assert it.used_bytes == 1_000
    it.drain(queue)
    it.shrink(batch, 80)
    assert it.used_bytes == 80
    it.release(batch)
    assert it.used_bytes == 0


def test_a_large_record_holds_as_much_as_it_needs() -> None:
    it = accumulator()
    put(it, it.queue(KEY), size=5_000)
    assert it.used_bytes == 5_100


def test_memory_never_exceeds_the_bound() -> None:
    it = accumulator(buffer_memory=2_500)
    queue = it.queue(KEY)
    put(it, queue)
    put(it, queue)
    assert not it.has_room(10)
    with pytest.raises(RuntimeError, match="has_room"):
        put(it, queue)
    it.release(it.drain(queue))
    assert it.has_room(10)


def test_a_record_that_never_fits_is_known_beforehand() -> None:
    it = accumulator(buffer_memory=2_500)
    assert it.can_ever_hold(2_500)
    assert not it.can_ever_hold(2_501)


def test_a_record_that_cannot_be_encoded_opens_nothing() -> None:
    it = accumulator()
    queue = it.queue(KEY)
    with pytest.raises(ValueError, match="timestamp"):
        it.open_batch(queue, 100, 0, -5, None, b"x")
    assert it.is_empty
    assert it.used_bytes == 0


def test_batches_past_their_deadline_are_drained_and_the_others_stay() -> None:
    it = accumulator()
    early, late = it.queue(KEY), it.queue(TopicPartition("t", 1))
    old = put(it, early, now_ms=0)
    put(it, early, now_ms=100)
    put(it, late, now_ms=200)
    assert it.expire(499) == []
    assert it.expire(500) == [old]
    assert [len(queue.batches) for queue in it.waiting_queues()] == [1, 1]


def test_queues_take_turns() -> None:
    it = accumulator()
    first, second = it.queue(KEY), it.queue(TopicPartition("t", 1))
    put(it, first)
    put(it, first)
    put(it, second)
    it.drain(first)
    assert list(it.waiting_queues()) == [second, first]


def test_parts_take_over_the_memory_of_what_was_split() -> None:
    it = accumulator()
    queue = it.queue(KEY)
    batch = put(it, queue)
    for _ in range(3):
        batch.builder.append(1_000, None, b"x" * 10)
    it.drain(queue)
    from protocol.compression import Compression

    it.shrink(batch, len(batch.encode(Compression.NONE)))
    parts = batch.split()
    it.replace(batch, parts)
    assert it.used_bytes == sum(part.size_bytes for part in parts)
    for part in parts:
        it.release(part)
    assert it.used_bytes == 0
