"""librdkafka's consumer at full speed: one partition from its beginning to its end, an object per record.

By default librdkafka fetches nothing for a second once it holds 100,000 records, so a short run would
measure how few records a server gives in its first answers. Here it waits for ten milliseconds.
"""

import gc
import time

from confluent_kafka import Consumer, TopicPartition

from bench.loads.librdkafka import RoundTrips, settings
from bench.wire import WireError

_RECORDS_PER_CALL = 10_000
_TIMEOUT_S = 60.0


def run(port: int, topic: str) -> dict[str, float]:
    """Read everything; the clock starts at the first record. Raises WireError for an offset out of turn."""
    errors: list[str] = []
    round_trips = RoundTrips()
    asked = {"group.id": "unused", "enable.auto.commit": False, "fetch.queue.backoff.ms": 10}
    consumer = Consumer({**settings(port, round_trips, errors), **asked})
    beginning = TopicPartition(topic, 0, 0)
    _, end_offset = consumer.get_watermark_offsets(beginning, timeout=_TIMEOUT_S)
    consumer.assign([beginning])
    gc.disable()
    position = len(consumer.consume(1, _TIMEOUT_S))
    begin = time.perf_counter()
    while position < end_offset and time.perf_counter() < begin + _TIMEOUT_S:
        messages = consumer.consume(_RECORDS_PER_CALL, 0.05)
        if messages and (messages[0].error() or messages[0].offset() != position):
            found = messages[0].error() or f"offset {messages[0].offset()}"
            raise WireError(f"expected offset {position}, got {found}; errors: {errors[:1]}")
        position += len(messages)
    taken = time.perf_counter() - begin
    if position < end_offset:
        raise WireError(
            f"expected {end_offset} records within {taken:.0f} s, got {position}; errors: {errors[:1]}"
        )
    consumer.close()
    return {"records": position - 1, "seconds": taken, "p99_ms": round_trips.p99_ms()}
