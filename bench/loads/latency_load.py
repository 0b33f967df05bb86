"""The time from send to the consumer at a steady rate, with producer and consumer on one loop and one clock.

A record is sent when it is due. If the loop is late, the overdue records are sent at once and their time
counts from when they were due, so that a stall is not hidden by sending less.
"""

import asyncio
import gc
import time
from struct import Struct
from typing import Any

from bench.clients.consumers import open_consumer
from bench.clients.producers import Settings, open_producer
from tidelog.cli.bench import percentile

_DUE = Struct(">d")
_WARM_UP_RECORDS = 300
_TICK_S = 0.001


async def _receive(consumer: Any, wanted: int) -> list[float]:
    """Latency of each record in seconds."""
    taken: list[float] = []
    while len(taken) < wanted:
        for batch in (await consumer.getmany(timeout_ms=1000)).values():
            now = time.perf_counter()
            taken += [now - _DUE.unpack_from(record.value)[0] for record in batch]
    return taken


async def run(
    port: int, client: str, topic: str, seconds: float, value_bytes: int = 100, rate: float = 1000.0
) -> dict[str, float]:
    """Send for `seconds` at `rate` records per second; latencies of all but the first."""
    sending = await open_producer(client, port, Settings())
    consumer = await open_consumer(client, port, topic)
    records = _WARM_UP_RECORDS + int(rate * seconds)
    padding = bytes(value_bytes - _DUE.size)
    gc.disable()
    received = asyncio.create_task(_receive(consumer, records))
    begin = time.perf_counter()
    number = 0
    while number < records:
        due = begin + number / rate
        if due <= time.perf_counter():
            await sending.send(topic, _DUE.pack(due) + padding)
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
