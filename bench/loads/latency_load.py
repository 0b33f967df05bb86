"""`python -m bench.loads.latency_load PORT CLIENT …`: from send to the consumer's hands, at a steady rate.

A process of its own, in which producer and consumer of one client share a loop and so a clock. A record goes
out when it is due; when the loop is late, the records that are overdue go out at once and their time counts
from when they were due, so that a stall is not hidden by sending less. Prints one JSON line: records, p50_ms,
p99_ms.
"""

import argparse
import asyncio
import gc
import json
import sys
import time
from struct import Struct
from typing import Any

import uvloop

from bench.clients.consumers import open_consumer
from bench.clients.producers import Settings, open_producer
from bench.statistics import percentile

_DUE = Struct(">d")
_WARM_UP_RECORDS = 300
_TICK_S = 0.001


async def _receive(consumer: Any, wanted: int) -> list[float]:
    """Seconds that each record was under way."""
    taken: list[float] = []
    while len(taken) < wanted:
        for batch in (await consumer.getmany(timeout_ms=1000)).values():
            now = time.perf_counter()
            taken += [now - _DUE.unpack_from(record.value)[0] for record in batch]
    return taken


async def run(given: argparse.Namespace) -> dict[str, float]:
    """Send for `seconds` at `rate` records a second; latencies of all but the first."""
    sending = await open_producer(given.client, given.port, Settings())
    consumer = await open_consumer(given.client, given.port, given.topic)
    records = _WARM_UP_RECORDS + int(given.rate * given.seconds)
    padding = bytes(given.value_bytes - _DUE.size)
    gc.disable()
    received = asyncio.create_task(_receive(consumer, records))
    begin = time.perf_counter()
    number = 0
    while number < records:
        due = begin + number / given.rate
        if due <= time.perf_counter():
            await sending.send(given.topic, _DUE.pack(due) + padding)
            number += 1
        else:
            await asyncio.sleep(_TICK_S)
    taken = sorted((await received)[_WARM_UP_RECORDS:])
    await sending.close()
    await consumer.stop()
    return {
        "records": len(taken),
        "p50_ms": percentile(taken, 0.50) * 1000,
        "p99_ms": percentile(taken, 0.99) * 1000,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.loads.latency_load")
    parser.add_argument("port", type=int)
    parser.add_argument("client")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--rate", type=float, default=1000.0, help="records a second")
    parser.add_argument("--seconds", type=float, default=2.0)
    print(json.dumps(uvloop.run(run(parser.parse_args()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
