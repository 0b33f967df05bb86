"""A client's producer for a Spark task: its event loop in a thread, whole batches in, failures out.

Owns the bridge between Spark's synchronous tasks and the asynchronous client, so that batches are on the wire
and stored while the task reads and encodes the next rows.

Invariants: `finish` returns only when every sent batch is stored. The first batch that is not stored raises,
in `send` or in `finish`. The producer bounds the memory: `send` waits for free memory.
"""

import asyncio
import random
import threading
from collections import deque
from collections.abc import Coroutine
from typing import Any, NamedTuple, Self, TypeVar

from tidelog.client import BatchBuilder, Delivery, Producer, ProducerSession
from tidelog.pipeline.arrow.encoding import EncodedBatch, encode
from tidelog.pipeline.options.sink import SinkOptions
from tidelog.pipeline.sink.rows import choose_partitions, groups, read_rows

_BUFFER_BYTES = 32 * 1024 * 1024

_Result = TypeVar("_Result")


class LoopThread:
    """An event loop in a thread of its own, for as long as the block lasts."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tidelog-sink", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Wait for `work` on the loop. Raises what it raises."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def make_producer(
    options: SinkOptions, session: ProducerSession | None = None, transactional_id: str | None = None
) -> Producer:
    """An idempotent producer for large batches; with a transactional id, its transactions can be prepared."""
    largest = max(options.batch_bytes, options.request_bytes)
    return Producer(
        cluster=options.cluster,
        compression_type=options.compression_type,
        max_batch_size=options.batch_bytes,
        max_request_size=largest,
        buffer_memory=max(2 * options.batch_bytes, largest, _BUFFER_BYTES),
        delivery_timeout_ms=options.delivery_timeout_ms,
        session=session,
        transactional_id=transactional_id,
        transaction_two_phase_commit_enable=transactional_id is not None,
        enable_metrics_push=False,
    )


class SinkTopic(NamedTuple):
    """How many partitions rows are spread over, and the topic's id."""

    partitions: int
    topic_id: str


class BatchSender:
    """Sends batches with one producer. Every method runs on the producer's loop."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.topics: dict[str, SinkTopic] = {}
        self._deliveries: deque[Delivery] = deque()

    async def look_up(self, topic: str) -> None:
        """Note the topic in `topics`, as it is before the first row. Raises UnknownTopicError."""
        if topic not in self.topics:
            count = len(await self.producer.partitions_for(topic))
            self.topics[topic] = SinkTopic(count, await self.producer.topic_id(topic))

    async def send(self, topic: str, partition: int, batch: EncodedBatch) -> None:
        """Raises UnknownTopicError, ValueError for a partition that the topic does not have, and the
        DeliveryError of any batch sent before."""
        while self._deliveries and self._deliveries[0].done():
            await self._deliveries.popleft()
        ready = BatchBuilder.of(batch.builder())
        self._deliveries.append(await self.producer.send_batch(ready, topic, partition=partition))

    async def finish(self) -> None:
        """Wait until all is stored. Raises the first DeliveryError."""
        while self._deliveries:
            await self._deliveries.popleft()


def send_rows(options: SinkOptions, sender: BatchSender, loop: LoopThread, table: Any) -> int:
    """Send the rows of one Arrow table with the sink's columns. Returns their number."""
    rows = read_rows(table, options.topic)
    for topic in rows.topics:
        loop.run(sender.look_up(topic))
    counts = {topic: sender.topics[topic].partitions for topic in rows.topics}
    partitions = choose_partitions(rows, counts, options.batch_bytes, random.randrange(2**16))
    for place, chosen in groups(rows, partitions):
        columns = rows.columns if chosen is None else rows.columns.take(chosen)
        for batch in encode(columns, options.batch_bytes):
            loop.run(sender.send(*place, batch))
    return len(rows)
