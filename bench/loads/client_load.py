"""One Python client that does one kind of work, in a process of its own.

Work is `produce` (send without pause for some seconds, then flush; with `keys` different keys, and with
`varied` sizes from half to one and a half times `value_bytes`), `consume` (read what a topic contains, by
getmany, as columns if the client has them, or by async for) or `memory` (the memory of records that wait
unsent, and of their deliveries).
"""

import gc
import json
import os
import random
import time
from collections.abc import Awaitable, Callable
from itertools import cycle
from types import SimpleNamespace
from typing import Any

from bench.clients.consumers import CONFLUENT, MOST_RECORDS, open_confluent, open_consumer
from bench.clients.producers import Settings, open_producer
from bench.targets.process import resident_bytes
from bench.wire import TOPIC, WireError

_BURST = 500
_BURSTS = 40
_UNSENT_RECORDS = 100_000
_UNSENT_BATCH_BYTES = 64 << 20
_NEVER_MS = 3_600_000


async def produce(given: SimpleNamespace) -> dict[str, float]:
    """Send for `seconds`; the time runs until the last record is stored.

    `cpu_seconds` is this process's share of it.
    """
    sending = await open_producer(given.client, given.port, Settings(batch_bytes=given.batch_bytes))
    topic, send, bursts = given.topic, sending.send, cycle(_bursts(given))
    # The first record waits for metadata and for the producer id, which is not what is measured.
    first = send(topic, bytes(given.value_bytes))
    if sending.is_async:
        await first
    await sending.flush()
    records = 0
    begin, cpu_begin = time.perf_counter(), time.process_time()
    end = begin + given.seconds
    while time.perf_counter() < end and records < given.records:
        if sending.is_async:
            for value, key in next(bursts):
                await send(topic, value, key)
        else:
            for value, key in next(bursts):
                send(topic, value, key)
        records += _BURST
    await sending.flush()
    taken, cpu_taken = time.perf_counter() - begin, time.process_time() - cpu_begin
    await sending.close()
    return {"records": records, "seconds": taken, "cpu_seconds": cpu_taken}


def _bursts(given: SimpleNamespace) -> list[list[tuple[bytes, bytes | None]]]:
    """Values with their keys. Each key is an object of its own, as if the application had just made it."""
    chance, size = random.Random(given.value_bytes), given.value_bytes
    content = chance.randbytes(2 * size)
    sizes = [chance.randint(size // 2, size * 3 // 2) for _ in range(_BURST)] if given.varied else [size]
    values = [content[:each] for each in sizes]
    return [
        [
            (chance.choice(values), b"key-%08d" % chance.randrange(given.keys) if given.keys else None)
            for _ in range(_BURST)
        ]
        for _ in range(_BURSTS)
    ]


async def consume(given: SimpleNamespace) -> dict[str, float]:
    """Read `records`, each of which is looked at.

    The time runs from the end of the first read, which waits for connections, metadata and codecs, to the
    last record, and counts the records between.
    """
    read: Callable[[Any, int, int], Awaitable[int]]
    if given.client == CONFLUENT:
        consumer, read = open_confluent(given.port, given.topic), _by_consume
    else:
        consumer = await open_consumer(given.client, given.port, given.topic)
        has_columns = given.way == "columns" and hasattr(consumer, "getmany_columns")
        read = _by_columns if has_columns else _by_iteration if given.way == "async for" else _by_getmany
    first = await read(consumer, 0, 1)
    begin, cpu_begin = time.perf_counter(), time.process_time()
    records = await read(consumer, first, given.records) - first
    taken, cpu_taken = time.perf_counter() - begin, time.process_time() - cpu_begin
    if given.client == CONFLUENT:
        consumer.close()
    else:
        await consumer.stop()
    return {"records": records, "seconds": taken, "cpu_seconds": cpu_taken}


async def _by_consume(consumer: Any, records: int, wanted: int) -> int:
    """Read on until there are `wanted` or more. `records` were read before; returns how many there are."""
    while records < wanted:
        for message in consumer.consume(MOST_RECORDS, 1.0):
            if message.offset() != records or message.value() is None:
                raise WireError(f"expected offset {records}, got {message.offset()} ({message.error()})")
            records += 1
    return records


async def _by_columns(consumer: Any, records: int, wanted: int) -> int:
    while records < wanted:
        found = await consumer.getmany_columns(timeout_ms=1000, max_records=MOST_RECORDS)
        for columns in (each for batches in found.values() for each in batches):
            for offset, value in zip(columns.offsets, columns.values, strict=True):
                if offset != records or value is None:
                    raise WireError(f"expected offset {records}, got {offset}")
                records += 1
    return records


async def _by_getmany(consumer: Any, records: int, wanted: int) -> int:
    while records < wanted:
        for batch in (await consumer.getmany(timeout_ms=1000, max_records=MOST_RECORDS)).values():
            for record in batch:
                if record.offset != records or record.value is None:
                    raise WireError(f"expected offset {records}, got {record.offset}")
                records += 1
    return records


async def _by_iteration(consumer: Any, records: int, wanted: int) -> int:
    async for record in consumer:
        if record.offset != records or record.value is None:
            raise WireError(f"expected offset {records}, got {record.offset}")
        records += 1
        if records >= wanted:
            break
    return records


async def memory(given: SimpleNamespace) -> dict[str, float]:
    """Resident memory of records that were given to `send` and are not on their way, deliveries held."""
    settings = Settings(
        batch_bytes=_UNSENT_BATCH_BYTES, linger_ms=_NEVER_MS, buffer_bytes=2 * _UNSENT_BATCH_BYTES
    )
    sending = await open_producer(given.client, given.port, settings)
    value_bytes, topic = given.value_bytes, given.topic
    deliveries: list[object] = [None] * _UNSENT_RECORDS
    deliveries[0] = await sending.send(topic, bytes(value_bytes))
    gc.collect()
    before = resident_bytes("self")
    for number in range(1, _UNSENT_RECORDS):
        deliveries[number] = await sending.send(topic, bytes(value_bytes))
    taken = resident_bytes("self") - before
    print(json.dumps({"bytes_a_record": taken / _UNSENT_RECORDS}), flush=True)
    # Nothing is to be sent any more.
    os._exit(0)


async def run(
    port: int,
    work: str,
    client: str,
    topic: str = TOPIC,
    value_bytes: int = 100,
    batch_bytes: int | None = None,
    keys: int = 0,
    varied: bool = False,
    seconds: float = 1.0,
    records: int = 2**62,
    way: str = "getmany",
) -> dict[str, float]:
    """Do the work; without `batch_bytes` batches are as large as the client has them. Raises WireError."""
    given = SimpleNamespace(**locals())
    works = {"produce": produce, "consume": consume, "memory": memory}
    return await works[work](given)
