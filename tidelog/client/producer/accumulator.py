"""Records that wait to be sent: one queue of batches per partition, within one bound on memory.

Owns: the queues, linger and batch size, the memory account, and the expiry of batches that were never sent.
Pure: it takes facts and now_ms and returns answers. Invariants: a queue's batches are in the order of `send`.
Only the last one may take more records; it is then `queue.open`. Memory in use is the sum over all batches
that are not released: a batch that takes records counts with its present limit, an encoded batch with its
encoded bytes. The sum never exceeds `buffer_memory`. A batch that was drained never returns: retries wait in
producer_state.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.client.producer.batch import ProducerBatch
from tidelog.client.producer.verdicts import SPLITTABLE
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.types import TopicPartition

# A batch's first limit, which is reserved for it. A larger one makes fewer and cheaper requests of a producer
# that never waits. With a smaller one other tasks run sooner, and more partitions fit in memory.
_FIRST_STEP_BYTES: Final = 32_768
# Then the limit doubles, but it grows by at most this much before other tasks run.
_MAX_STEP_BYTES: Final = 65_536
# A first limit takes at most this part of the memory, shared with the other partitions whose batches wait.
_FIRST_STEPS_PART: Final = 8
_LEAST_STEP_BYTES: Final = 1_024
# Below these a request, and each batch in it on average, costs both sides more than the records in it. But
# the batches that wait may take this part of the memory only, for others are on their way.
_WORTHWHILE_BYTES: Final = 100_000
_WORTHWHILE_BATCH_BYTES: Final = 16_384
_WORTHWHILE_PART: Final = 4


class PartitionQueue:
    """One partition's unsent batches, oldest first. Public for the producer's fast path."""

    __slots__ = ("batches", "key", "max_batch_size", "open")

    def __init__(self, key: TopicPartition, max_batch_size: int = 0) -> None:
        self.key = key
        self.max_batch_size = max_batch_size
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None


class Accumulator:
    """The machine; one per producer. Sizes are bytes, times milliseconds of the client's monotonic clock."""

    def __init__(
        self, *, max_batch_size: int, linger_ms: int, buffer_memory: int, delivery_timeout_ms: int
    ) -> None:
        self._max_batch_size = max_batch_size
        self._largest_first_step = min(_FIRST_STEP_BYTES, max_batch_size)
        self._linger_ms = linger_ms
        self._buffer_memory = buffer_memory
        self._delivery_timeout_ms = delivery_timeout_ms
        self._used_bytes = 0
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        # Queues are served in insertion order. A queue that was served goes to the end.
        self._waiting: dict[PartitionQueue, None] = {}
        self._hurries = 0
        # All bytes that were ever reserved, and the sum below which `awaits_more` looks at no batch.
        self._granted_bytes = 0
        self._enough_at_bytes = 0
        # Sends that only pause for other tasks. They append to a queue in the loop's next turn.
        self.fillers = 0

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits unsent."""
        return not self._waiting

    def queue(self, key: TopicPartition) -> PartitionQueue:
        """The partition's queue, the same object each time."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = PartitionQueue(key, self._max_batch_size)
        return queue

    def waiting_queues(self) -> Iterable[PartitionQueue]:
        """A copy of the list of queues that hold batches, in the order in which to serve them."""
        return list(self._waiting)

    @property
    def _first_step(self) -> int:
        """The limit of a batch that is opened now."""
        share = self._buffer_memory // (_FIRST_STEPS_PART * (len(self._waiting) + 1))
        return min(self._largest_first_step, max(share, _LEAST_STEP_BYTES))

    def room_needed(self, record_size_bytes: int) -> int:
        """Bytes to reserve for a new batch whose first record needs at most `record_size_bytes`."""
        return max(self._first_step, record_size_bytes)

    def can_ever_hold(self, record_size_bytes: int) -> bool:
        """Whether a batch for such a record fits if no other batch is held."""
        return max(self._largest_first_step, record_size_bytes) <= self._buffer_memory

    def can_hold(self, record_size_bytes: int) -> bool:
        """Whether a batch for such a record can be opened now."""
        return self._used_bytes + self.room_needed(record_size_bytes) <= self._buffer_memory

    def open_batch(
        self,
        queue: PartitionQueue,
        record_size_bytes: int,
        now_ms: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> ProducerBatch:
        """Add a new batch with this record to `queue` as its `open` batch. Only if `can_hold` is true.

        Raises as RecordBatchBuilder.append does for values that no record can have; no batch is opened then.
        """
        step_bytes = self._first_step
        room_bytes = max(step_bytes, record_size_bytes)
        if self._used_bytes + room_bytes > self._buffer_memory:
            raise RuntimeError(f"buffer_memory has no {record_size_bytes} bytes free: call can_hold first")
        size_bytes = min(step_bytes, queue.max_batch_size)
        batch = ProducerBatch(queue.key, size_bytes, now_ms, now_ms + self._delivery_timeout_ms)
        batch.builder.append(timestamp_ms, key, value, headers)
        self._reserve(batch, room_bytes)
        queue.batches.append(batch)
        queue.open = batch
        self._waiting[queue] = None
        return batch

    def add_batch(self, queue: PartitionQueue, builder: RecordBatchBuilder, now_ms: int) -> ProducerBatch:
        """Add a batch that the application filled to `queue`. It takes no more records. Only if `can_hold` is
        true for its size."""
        batch = ProducerBatch(queue.key, self._max_batch_size, now_ms, now_ms + self._delivery_timeout_ms)
        batch.builder = builder
        self._reserve(batch, self.room_needed(builder.size_bytes))
        queue.batches.append(batch)
        queue.open = None
        self._waiting[queue] = None
        self._enough_at_bytes = 0
        return batch

    def grow(self, queue: PartitionQueue, record_size_bytes: int) -> bool:
        """Raise the limit of the `open` batch so that it can take such a record. False if no batch is open,
        or the largest size or the memory does not allow it."""
        batch = queue.open
        if batch is None:
            return False
        size_bytes = batch.size_bytes
        least = size_bytes + record_size_bytes
        limit = max(least, min(size_bytes + min(size_bytes, _MAX_STEP_BYTES), queue.max_batch_size))
        more = max(limit - batch.reserved_bytes, 0)
        if least > queue.max_batch_size or self._used_bytes + more > self._buffer_memory:
            self._enough_at_bytes = 0
            return False
        batch.builder.extend(limit)
        self._reserve(batch, more)
        return True

    def _reserve(self, batch: ProducerBatch, more_bytes: int) -> None:
        batch.reserved_bytes += more_bytes
        self._used_bytes += more_bytes
        self._granted_bytes += more_bytes

    def ready_at_ms(self, queue: PartitionQueue) -> int | None:
        """When the queue's oldest batch may be sent: at once (its creation) if it takes no more records or
        after `hurry`, else after the linger time. None for an empty queue."""
        if not queue.batches:
            return None
        batch = queue.batches[0]
        if batch is not queue.open or self._hurries:
            return batch.created_ms
        return batch.created_ms + self._linger_ms

    def awaits_more(self) -> bool:
        """Whether the batches that wait are small yet, and a send continues in the loop's next turn.

        False if one of them takes no more records.
        """
        if not self.fillers or self._hurries:
            return False
        if self._granted_bytes < self._enough_at_bytes:
            return True
        size_bytes = 0
        for queue in self._waiting:
            batch = queue.batches[0]
            if batch is not queue.open:
                return False
            size_bytes += batch.builder.size_bytes
        enough = min(_WORTHWHILE_BATCH_BYTES * len(self._waiting), self._buffer_memory // _WORTHWHILE_PART)
        missing = max(_WORTHWHILE_BYTES, enough) - size_bytes
        self._enough_at_bytes = self._granted_bytes + missing
        return missing > 0

    def drain(self, queue: PartitionQueue) -> ProducerBatch:
        """Remove the oldest batch permanently; it takes no more records."""
        batch = queue.batches.popleft()
        if batch is queue.open:
            queue.open = None
        self._waiting.pop(queue, None)
        if queue.batches:
            self._waiting[queue] = None
        return batch

    def hurry(self) -> None:
        """From now on batches do not linger, until `relax` was called as often."""
        self._hurries += 1

    def relax(self) -> None:
        self._hurries -= 1

    def shrink(self, batch: ProducerBatch, size_bytes: int) -> None:
        """The batch is encoded and holds only `size_bytes` from now on."""
        self._used_bytes += size_bytes - batch.reserved_bytes
        batch.reserved_bytes = size_bytes

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace `batch` by `parts`, which hold its records, and release it.

        Until they are released, the bound may be exceeded by that. If a broker found `batch` too large, the
        partition's next batches stay smaller.
        """
        if batch.last_code in SPLITTABLE:
            queue = self.queue(batch.key)
            queue.max_batch_size = min(queue.max_batch_size, max(part.reserved_bytes for part in parts))
        self._used_bytes += sum(part.reserved_bytes for part in parts)
        self.release(batch)

    def release(self, batch: ProducerBatch) -> None:
        """Free the batch's memory. The batch is settled."""
        self._used_bytes -= batch.reserved_bytes
        batch.reserved_bytes = 0
        batch.release()

    def expire(self, now_ms: int) -> list[ProducerBatch]:
        """Drain the batches whose delivery deadline has passed; they were never sent."""
        late: list[ProducerBatch] = []
        for queue in list(self._waiting):
            while queue.batches and queue.batches[0].deadline_ms <= now_ms:
                late.append(self.drain(queue))
        return late

    def drain_all(self) -> list[ProducerBatch]:
        """Drain every waiting batch, because the producer is being closed."""
        return [self.drain(queue) for queue in list(self._waiting) for _ in range(len(queue.batches))]
