"""Reads the stored records with other projects' clients: confluent-kafka, aiokafka and kafka-python, each
with assign and seek, without groups.

Owns how each client is used. Invariant: a reader returns every record from the first offset to the end that
the caller names, or raises its library's error, or TimeoutError with the number of records that it read.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from faults.checker import Finding, Kind, Stored, compare
from faults.marks import mark_of
from faults.readback import UNCOMMITTED, Identify, Logs

Bounds = Mapping[int, tuple[int, int]]
"""Partition -> first offset and end."""


class Reading(NamedTuple):
    """Tells a reader which offsets of which topic to read, from which broker, and how."""

    address: str
    topic: str
    bounds: Bounds
    timeout_s: float
    identify: Identify
    isolation_level: str


_POLL_MS: Final = 200
_FETCH_WAIT_MS: Final = 50


def _still_wanted(logs: Logs, bounds: Bounds) -> bool:
    return any(
        (logs[index][-1].offset + 1 if logs[index] else first) < end for index, (first, end) in bounds.items()
    )


def _check_time(deadline: float, logs: Logs, bounds: Bounds) -> None:
    if time.monotonic() > deadline:
        came = {index: f"{len(logs[index])} records of {bounds[index]}" for index in bounds}
        raise TimeoutError(f"not at the end in time: {came}")


def read_with_confluent(wanted: Reading) -> Logs:
    """confluent-kafka. Blocking; raises KafkaException, TimeoutError."""
    bounds = wanted.bounds
    logs: Logs = {index: [] for index in bounds}
    deadline = time.monotonic() + wanted.timeout_s
    # librdkafka requires a group id, but does not use it without a commit.
    settings = {"bootstrap.servers": wanted.address, "group.id": "not-used", "enable.auto.commit": False}
    more = {"auto.offset.reset": "error", "fetch.wait.max.ms": _FETCH_WAIT_MS, "log_level": 0}
    consumer = ConfluentConsumer(settings | more | {"isolation.level": wanted.isolation_level})
    try:
        starts = [ConfluentPartition(wanted.topic, index, first) for index, (first, _) in bounds.items()]
        consumer.assign(starts)
        while _still_wanted(logs, bounds):
            for message in consumer.consume(num_messages=5000, timeout=_POLL_MS / 1000):
                if message.error() is not None:
                    raise KafkaException(message.error())
                _take(logs, wanted, message.partition(), message.offset(), message.key(), message.value())
            _check_time(deadline, logs, bounds)
    finally:
        consumer.close()
    return logs


def read_with_kafka_python(wanted: Reading) -> Logs:
    """kafka-python. Blocking; raises KafkaError, TimeoutError."""
    bounds = wanted.bounds
    logs: Logs = {index: [] for index in bounds}
    deadline = time.monotonic() + wanted.timeout_s
    consumer = KafkaConsumer(
        bootstrap_servers=wanted.address,
        group_id=None,
        auto_offset_reset="none",
        fetch_max_wait_ms=_FETCH_WAIT_MS,
        isolation_level=wanted.isolation_level,
    )
    try:
        consumer.assign([PythonPartition(wanted.topic, index) for index in bounds])
        for index, (first, _) in bounds.items():
            consumer.seek(PythonPartition(wanted.topic, index), first)
        while _still_wanted(logs, bounds):
            for records in consumer.poll(timeout_ms=_POLL_MS, max_records=5000).values():
                for each in records:
                    _take(logs, wanted, each.partition, each.offset, each.key, each.value)
            _check_time(deadline, logs, bounds)
    finally:
        consumer.close()
    return logs


async def read_with_aiokafka(wanted: Reading) -> Logs:
    """aiokafka. Raises KafkaError, TimeoutError."""
    bounds = wanted.bounds
    logs: Logs = {index: [] for index in bounds}
    deadline = time.monotonic() + wanted.timeout_s
    settings: Mapping[str, Any] = {
        "auto_offset_reset": "none",
        "fetch_max_wait_ms": _FETCH_WAIT_MS,
        "isolation_level": wanted.isolation_level,
    }
    async with AIOKafkaConsumer(bootstrap_servers=wanted.address, **settings) as consumer:
        consumer.assign([AioPartition(wanted.topic, index) for index in bounds])
        for index, (first, _) in bounds.items():
            consumer.seek(AioPartition(wanted.topic, index), first)
        while _still_wanted(logs, bounds):
            for records in (await consumer.getmany(timeout_ms=_POLL_MS)).values():
                for each in records:
                    _take(logs, wanted, each.partition, each.offset, each.key, each.value)
            _check_time(deadline, logs, bounds)
    return logs


def _take(logs: Logs, wanted: Reading, index: int, offset: int, key: object, value: object) -> None:
    if offset < wanted.bounds[index][1]:
        logs[index].append(Stored(offset, wanted.identify(key, value)))


def _in_a_thread(read: Callable[[Reading], Logs]) -> Callable[[Reading], Awaitable[Logs]]:
    async def reading(wanted: Reading) -> Logs:
        return await asyncio.to_thread(read, wanted)

    return reading


READERS: Final[Mapping[str, Callable[[Reading], Awaitable[Logs]]]] = {
    "confluent-kafka": _in_a_thread(read_with_confluent),
    "aiokafka": read_with_aiokafka,
    "kafka-python": _in_a_thread(read_with_kafka_python),
}


async def compare_with_others(
    address: str,
    topic: str,
    logs: Logs,
    timeout_s: float,
    identify: Identify = mark_of,
    isolation_level: str = UNCOMMITTED,
    found_by: dict[str, Logs] | None = None,
) -> list[Finding]:
    """All differences between their records and `logs`, which our own client read. `found_by` gets theirs."""
    bounds = {index: (log[0].offset, log[-1].offset + 1) for index, log in logs.items() if log}
    wanted = Reading(address, topic, bounds, timeout_s, identify, isolation_level)
    findings: list[Finding] = []
    for name, read in READERS.items():
        try:
            found = await read(wanted)
        except Exception as error:  # Whatever a library raises, the records could not be read with it.
            findings.append(Finding(Kind.UNREADABLE, f"{name}: {type(error).__name__} {error}"))
            continue
        if found_by is not None:
            found_by[name] = found
        for index, log in found.items():
            findings += compare(index, name, log, logs[index])
    return findings
