"""librdkafka's idempotent producer at full speed.

The clock starts when a first record is acknowledged and stops when all are.
"""

import os
import time

from confluent_kafka import KafkaError, Producer

from bench.loads.librdkafka import RoundTrips, settings
from bench.wire import WireError

RECORDS_PER_CALL = 1000
QUEUE_KILOBYTES = 65_536
FLUSH_TIMEOUT_S = 60


def run(port: int, topic: str, value_bytes: int, seconds: float) -> dict[str, float]:
    """Produce for `seconds`, then wait for the rest. Raises WireError when a record was not delivered."""
    errors: list[str] = []
    round_trips = RoundTrips()

    def delivered(error: KafkaError | None, message: object) -> None:
        if error is not None:
            errors.append(str(error))

    producer = Producer(
        {
            **settings(port, round_trips, errors),
            "enable.idempotence": True,
            "queue.buffering.max.messages": 10_000_000,
            "queue.buffering.max.kbytes": QUEUE_KILOBYTES,
            "delivery.report.only.error": True,
        }
    )
    value = os.urandom(value_bytes)
    messages = [{"value": value} for _ in range(RECORDS_PER_CALL)]
    # librdkafka asks for its producer id when it pleases; that wait is no part of the rate.
    producer.produce(topic, value, partition=0, on_delivery=delivered)
    left = producer.flush(FLUSH_TIMEOUT_S)
    records = 0
    begin = time.perf_counter()
    end = begin + seconds
    while time.perf_counter() < end and not errors and not left:
        queued = producer.produce_batch(topic, messages, partition=0, on_delivery=delivered)
        records += queued
        # A full queue takes part of the messages: wait for the server rather than for Python.
        producer.poll(0 if queued == RECORDS_PER_CALL else 0.005)
    left += producer.flush(FLUSH_TIMEOUT_S)
    taken = time.perf_counter() - begin
    if left or errors:
        raise WireError(f"{left} of {records + 1} records were not acknowledged; errors: {errors[:1]}")
    return {"records": records, "acknowledged": records + 1, "seconds": taken, "p99_ms": round_trips.p99_ms()}
