"""librdkafka's consumer at full speed, through one partition from its beginning; each record becomes
an object.
"""

import time

from confluent_kafka import Consumer, TopicPartition

from bench.loads.librdkafka import RoundTrips, settings
from bench.wire import WireError

_RECORDS_A_CALL = 10_000
_TIMEOUT_S = 30.0


def run(port: int, topic: str, seconds: float) -> dict[str, float]:
    """Read for `seconds`, from the beginning again at the end. Raises WireError for an offset out of turn."""
    errors: list[str] = []
    round_trips = RoundTrips()
    consumer = Consumer(
        {
            **settings(port, round_trips, errors, {}),
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
        }
    )
    beginning = TopicPartition(topic, 0, 0)
    _, end_offset = consumer.get_watermark_offsets(beginning, timeout=_TIMEOUT_S)
    consumer.assign([beginning])
    position = records = 0
    position += len(consumer.consume(1, _TIMEOUT_S))
    begin = time.perf_counter()
    while time.perf_counter() < begin + seconds:
        messages = consumer.consume(_RECORDS_A_CALL, 0.05)
        if messages and (messages[0].error() or messages[0].offset() != position):
            found = messages[0].error() or f"offset {messages[0].offset()}"
            raise WireError(f"offset {position} was to come, {found} came; errors: {errors[:1]}")
        position += len(messages)
        records += len(messages)
        if position >= end_offset:
            consumer.seek(beginning)
            position = 0
    taken = time.perf_counter() - begin
    consumer.close()
    if not records:
        raise WireError(f"no record came within {taken:.1f} s; errors: {errors[:1]}")
    return {"records": records, "seconds": taken, "p99_ms": round_trips.p99_ms()}
