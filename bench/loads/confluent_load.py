"""`python -m bench.loads.confluent_load PORT …`: confluent-kafka's idempotent producer at full speed.

A process of its own. Records go in by `produce_batch`, so that librdkafka and the server are measured rather
than Python's calls; the clock starts when a first record is acknowledged and stops when all are.
Prints one JSON line: records, records_with_first, seconds. Exit code 1 when a record was not delivered.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaError, Producer

from bench.wire import HOST, TOPIC

RECORDS_A_CALL = 1000
QUEUE_KILOBYTES = 65_536
FLUSH_TIMEOUT_S = 60


def run(
    port: int, value_bytes: int, seconds: float, security: Mapping[str, str]
) -> tuple[dict[str, float], list[str]]:
    """Produce for `seconds`, then wait for the rest; the result, and the errors met."""
    errors: list[str] = []

    def delivered(error: KafkaError | None, message: object) -> None:
        if error is not None:
            errors.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": f"{HOST}:{port}",
            "enable.idempotence": True,
            "queue.buffering.max.messages": 10_000_000,
            "queue.buffering.max.kbytes": QUEUE_KILOBYTES,
            "delivery.report.only.error": True,
            "error_cb": lambda error: errors.append(str(error)) if error.fatal() else None,
            "log_level": 0,
            **security,
        }
    )
    value = os.urandom(value_bytes)
    messages = [{"value": value} for _ in range(RECORDS_A_CALL)]
    # librdkafka asks for its producer id when it pleases; that wait is no part of the rate.
    producer.produce(TOPIC, value, partition=0, on_delivery=delivered)
    if producer.flush(FLUSH_TIMEOUT_S):
        errors.append(f"the first record was not acknowledged within {FLUSH_TIMEOUT_S} s")
    records = 0
    begin = time.perf_counter()
    end = begin + seconds
    while time.perf_counter() < end and not errors:
        queued = producer.produce_batch(TOPIC, messages, partition=0, on_delivery=delivered)
        records += queued
        # A full queue takes part of the messages: wait for the server rather than for Python.
        producer.poll(0 if queued == RECORDS_A_CALL else 0.005)
    left = producer.flush(FLUSH_TIMEOUT_S)
    taken = time.perf_counter() - begin
    if left:
        errors.append(f"{left} of {records} records were not acknowledged within {FLUSH_TIMEOUT_S} s")
    return {"records": records, "records_with_first": records + 1, "seconds": taken}, errors


def _properties(path: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in Path(path).read_text().splitlines())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.loads.confluent_load")
    parser.add_argument("port", type=int)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--security", type=_properties, default={}, help="a file of librdkafka's properties")
    given = parser.parse_args()
    result, errors = run(given.port, given.value_bytes, given.seconds, given.security)
    if errors:
        print(f"the load failed: {errors[0]} (and {len(errors) - 1} more)", file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
