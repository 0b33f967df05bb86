"""`python -m bench.loads.client_load PORT WORK CLIENT …`: one Python client at one kind of work.

A process of its own. WORK is `produce` (send without pause for some seconds, then flush), `consume` (read
what a topic holds, by getmany, as columns if the client has them, or by async for) or `memory` (what records
take that wait unsent, and the deliveries that stand for them). Prints one JSON line: records and seconds, or
bytes_a_record.
"""

import argparse
import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from bench.clients.consumers import CONFLUENT, MOST_RECORDS, open_confluent, open_consumer
from bench.clients.producers import Settings, open_producer
from bench.wire import TOPIC, WireError

_BURST = 500
_UNSENT_RECORDS = 100_000
_UNSENT_BATCH_BYTES = 64 << 20
_NEVER_MS = 3_600_000
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


async def produce(given: argparse.Namespace) -> dict[str, float]:
    """Send for `seconds`; the time runs until the last record is stored.

    `cpu_seconds` is this process's share of it.
    """
    sending = await open_producer(given.client, given.port, Settings(batch_bytes=given.batch_bytes))
    value, topic, send = os.urandom(given.value_bytes), given.topic, sending.send
    # The first record waits for metadata and for the producer id, which is not what is measured.
    first = send(topic, value)
    if sending.is_async:
        await first
    await sending.flush()
    records = 0
    begin, cpu_begin = time.perf_counter(), time.process_time()
    end = begin + given.seconds
    while time.perf_counter() < end and records < given.records:
        if sending.is_async:
            for _ in range(_BURST):
                await send(topic, value)
        else:
            for _ in range(_BURST):
                send(topic, value)
        records += _BURST
    await sending.flush()
    taken, cpu_taken = time.perf_counter() - begin, time.process_time() - cpu_begin
    await sending.close()
    return {"records": records, "seconds": taken, "cpu_seconds": cpu_taken}


async def consume(given: argparse.Namespace) -> dict[str, float]:
    """Read `records`, each of which is looked at; the time runs from the first call to the last record.

    `cpu_seconds` is this process's share of it.
    """
    if given.client == CONFLUENT:
        confluent = open_confluent(given.port, given.topic)
        begin, cpu_begin = time.perf_counter(), time.process_time()
        records = _by_consume(confluent, given.records)
        taken, cpu_taken = time.perf_counter() - begin, time.process_time() - cpu_begin
        confluent.close()
        return {"records": records, "seconds": taken, "cpu_seconds": cpu_taken}
    consumer = await open_consumer(given.client, given.port, given.topic)
    has_columns = given.way == "columns" and hasattr(consumer, "getmany_columns")
    read = _by_columns if has_columns else _by_iteration if given.way == "async for" else _by_getmany
    begin, cpu_begin = time.perf_counter(), time.process_time()
    records = await read(consumer, given.records)
    taken, cpu_taken = time.perf_counter() - begin, time.process_time() - cpu_begin
    await consumer.stop()
    return {"records": records, "seconds": taken, "cpu_seconds": cpu_taken}


def _by_consume(consumer: Any, wanted: int) -> int:
    records = 0
    while records < wanted:
        for message in consumer.consume(MOST_RECORDS, 1.0):
            if message.offset() != records or message.value() is None:
                raise WireError(f"offset {records} was to come, {message.offset()} came ({message.error()})")
            records += 1
    return records


async def _by_columns(consumer: Any, wanted: int) -> int:
    records = 0
    while records < wanted:
        found = await consumer.getmany_columns(timeout_ms=1000, max_records=MOST_RECORDS)
        for columns in (each for batches in found.values() for each in batches):
            for offset, value in zip(columns.offsets, columns.values, strict=True):
                if offset != records or value is None:
                    raise WireError(f"offset {records} was to come, {offset} came")
                records += 1
    return records


async def _by_getmany(consumer: Any, wanted: int) -> int:
    records = 0
    while records < wanted:
        for batch in (await consumer.getmany(timeout_ms=1000, max_records=MOST_RECORDS)).values():
            for record in batch:
                if record.offset != records or record.value is None:
                    raise WireError(f"offset {records} was to come, {record.offset} came")
                records += 1
    return records


async def _by_iteration(consumer: Any, wanted: int) -> int:
    records = 0
    async for record in consumer:
        if record.offset != records or record.value is None:
            raise WireError(f"offset {records} was to come, {record.offset} came")
        records += 1
        if records >= wanted:
            break
    return records


async def memory(given: argparse.Namespace) -> dict[str, float]:
    """Resident memory of records that were given to `send` and are not on their way, deliveries held.

    Each value is an object of its own, for a client may keep it until it encodes the record.
    """
    settings = Settings(
        batch_bytes=_UNSENT_BATCH_BYTES, linger_ms=_NEVER_MS, buffer_bytes=2 * _UNSENT_BATCH_BYTES
    )
    sending = await open_producer(given.client, given.port, settings)
    value_bytes, topic = given.value_bytes, given.topic
    deliveries: list[object] = [None] * _UNSENT_RECORDS
    deliveries[0] = await sending.send(topic, bytes(value_bytes))
    gc.collect()
    before = _resident_bytes()
    for number in range(1, _UNSENT_RECORDS):
        deliveries[number] = await sending.send(topic, bytes(value_bytes))
    taken = _resident_bytes() - before
    print(json.dumps({"bytes_a_record": taken / _UNSENT_RECORDS}), flush=True)
    # Nothing is to be sent any more.
    os._exit(0)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def main() -> int:
    works = {"produce": produce, "consume": consume, "memory": memory}
    parser = argparse.ArgumentParser(prog="python -m bench.loads.client_load")
    parser.add_argument("port", type=int)
    parser.add_argument("work", choices=works)
    parser.add_argument("client")
    parser.add_argument("--topic", default=TOPIC)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--batch-bytes", type=int, help="by default the client's own")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--records", type=int, default=2**62)
    parser.add_argument("--way", choices=("getmany", "columns", "async for"), default="getmany")
    given = parser.parse_args()
    try:
        result = uvloop.run(works[given.work](given))
    except (WireError, OSError) as error:
        print(f"the load failed: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
