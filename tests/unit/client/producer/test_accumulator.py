"""What waits to be sent, when it is ready, and within which memory."""

from itertools import pairwise

import pytest

from tidelog.client import TopicPartition
from tidelog.client.producer.accumulator import Accumulator, PartitionQueue
from tidelog.client.producer.batch import ProducerBatch
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode

KEY = TopicPartition("t", 0)


def accumulator(**settings: int) -> Accumulator:
    defaults = {"max_batch_size": 1_000, "linger_ms": 0, "buffer_memory": 10_000, "delivery_timeout_ms": 500}
    return Accumulator(**{**defaults, **settings})


def put(to: Accumulator, queue: PartitionQueue, size: int = 10, now_ms: int = 0) -> ProducerBatch:
    return to.open_batch(queue, size + 100, now_ms, 1_000, None, b"x" * size)


@pytest.fixture
def it() -> Accumulator:
    return accumulator()


def test_a_partition_has_one_queue(it: Accumulator) -> None:
    assert it.queue(KEY) is it.queue(TopicPartition("t", 0))
    assert it.queue(KEY) is not it.queue(TopicPartition("t", 1))


def test_batches_leave_in_the_order_of_their_opening(it: Accumulator) -> None:
    queue = it.queue(KEY)
    batches = [put(it, queue) for _ in range(3)]
    assert [it.drain(queue) for _ in range(3)] == batches
    assert it.is_empty


def test_a_drained_batch_takes_no_more_records(it: Accumulator) -> None:
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


def test_an_open_batch_holds_its_full_size_and_an_encoded_one_what_it_takes(it: Accumulator) -> None:
    queue = it.queue(KEY)
    batch = put(it, queue)
    assert it.used_bytes == 1_000
    it.drain(queue)
    it.shrink(batch, 80)
    assert it.used_bytes == 80
    it.release(batch)
    assert it.used_bytes == 0


def test_a_large_record_holds_as_much_as_it_needs(it: Accumulator) -> None:
    put(it, it.queue(KEY), size=5_000)
    assert it.used_bytes == 5_100


def test_memory_never_exceeds_the_bound() -> None:
    it = accumulator(buffer_memory=2_500)
    queue = it.queue(KEY)
    put(it, queue)
    put(it, queue)
    assert not it.can_hold(10)
    with pytest.raises(RuntimeError, match="can_hold"):
        put(it, queue)
    it.release(it.drain(queue))
    assert it.can_hold(10)


def test_a_record_that_never_fits_is_known_beforehand() -> None:
    it = accumulator(buffer_memory=2_500)
    assert it.can_ever_hold(2_500)
    assert not it.can_ever_hold(2_501)


def test_a_record_that_cannot_be_encoded_opens_nothing(it: Accumulator) -> None:
    queue = it.queue(KEY)
    with pytest.raises(ValueError, match="timestamp"):
        it.open_batch(queue, 100, 0, -5, None, b"x")
    assert it.is_empty
    assert it.used_bytes == 0


def test_batches_past_their_deadline_are_drained_and_the_others_stay(it: Accumulator) -> None:
    early, late = it.queue(KEY), it.queue(TopicPartition("t", 1))
    old = put(it, early, now_ms=0)
    put(it, early, now_ms=100)
    put(it, late, now_ms=200)
    assert it.expire(499) == []
    assert it.expire(500) == [old]
    assert [len(queue.batches) for queue in it.waiting_queues()] == [1, 1]


def test_queues_take_turns(it: Accumulator) -> None:
    first, second = it.queue(KEY), it.queue(TopicPartition("t", 1))
    put(it, first)
    put(it, first)
    put(it, second)
    it.drain(first)
    assert list(it.waiting_queues()) == [second, first]


def test_parts_take_over_the_memory_of_what_was_split(it: Accumulator) -> None:
    queue = it.queue(KEY)
    batch = put(it, queue)
    for _ in range(3):
        batch.builder.append(1_000, None, b"x" * 10)
    it.drain(queue)
    it.shrink(batch, len(batch.encode(Compression.NONE)))
    parts = batch.split()
    it.replace(batch, parts)
    assert it.used_bytes == sum(part.size_bytes for part in parts)
    for part in parts:
        it.release(part)
    assert it.used_bytes == 0


def grown(it: Accumulator, queue: PartitionQueue, record_size: int) -> list[int]:
    """What the open batch holds each time when it has to ask for more, until it gets no more."""
    sizes = []
    while queue.open is not None:
        if not queue.open.builder.append(1_000, None, b"x" * record_size):
            sizes.append(it.used_bytes)
            if not it.grow(queue, record_size + 100):
                break
    return sizes


def test_a_batch_that_is_not_drained_grows_to_its_largest_size_and_holds_memory_only_for_that() -> None:
    it = accumulator(max_batch_size=262_144, buffer_memory=1_000_000)
    queue = it.queue(KEY)
    put(it, queue)
    assert it.used_bytes < 40_000
    sizes = grown(it, queue, 1_000)
    assert sizes == sorted(sizes)
    assert len(sizes) > 3
    assert max(later - before for before, later in pairwise(sizes)) <= 66_000
    batch = it.drain(queue)
    assert 260_000 < batch.size_bytes <= 262_144 == batch.reserved_bytes
    it.release(batch)
    assert it.used_bytes == 0


def test_a_batch_grows_no_further_than_the_memory() -> None:
    it = accumulator(max_batch_size=262_144, buffer_memory=100_000)
    queue = it.queue(KEY)
    put(it, queue)
    grown(it, queue, 1_000)
    assert it.used_bytes <= 100_000
    assert it.drain(queue).size_bytes <= it.used_bytes


def test_a_batch_grows_for_a_record_that_is_larger_than_a_step() -> None:
    it = accumulator(max_batch_size=262_144, buffer_memory=1_000_000)
    queue = it.queue(KEY)
    put(it, queue)
    assert it.grow(queue, 200_100)
    assert queue.open is not None
    assert queue.open.builder.append(1_000, None, b"x" * 200_000)
    assert not it.grow(queue, 200_100)


def test_a_batch_that_a_broker_found_too_large_is_a_lesson_to_the_partition() -> None:
    it = accumulator(max_batch_size=262_144, buffer_memory=1_000_000)
    queue, other = it.queue(KEY), it.queue(TopicPartition("t", 1))
    put(it, queue)
    grown(it, queue, 1_000)
    batch = it.drain(queue)
    batch.encode(Compression.NONE)
    batch.last_code = ErrorCode.MESSAGE_TOO_LARGE
    it.replace(batch, batch.split())
    for each, largest in ((queue, 131_072), (other, 262_144)):
        put(it, each)
        grown(it, each, 1_000)
        assert largest - 2_000 < it.drain(each).size_bytes <= largest


def test_small_batches_await_more_while_a_send_only_pauses() -> None:
    it = accumulator(max_batch_size=262_144, buffer_memory=10_000_000)
    queue = it.queue(KEY)
    put(it, queue)
    assert not it.awaits_more()
    it.fillers += 1
    assert it.awaits_more()
    it.hurry()
    assert not it.awaits_more()
    it.relax()
    grown(it, queue, 1_000)
    assert not it.awaits_more()
    for number in range(1, 100):
        put(it, it.queue(TopicPartition("t", number)))
    # Together the batches are large, but each of them is small.
    assert it.awaits_more()
    assert not it.grow(queue, 300_000)
    queue.open = None
    assert not it.awaits_more()


def test_every_partition_can_have_an_open_batch() -> None:
    it = accumulator(max_batch_size=262_144, buffer_memory=2_000_000)
    queues = [it.queue(TopicPartition("t", number)) for number in range(400)]
    for queue in queues:
        assert it.can_hold(100)
        put(it, queue)
    assert all(it.grow(queue, 100) for queue in queues)
