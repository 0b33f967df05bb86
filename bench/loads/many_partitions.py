"""Many topics at once: how long until all their partitions take records, and again after a broker was killed.

librdkafka writes one record to each partition, all of them at the same time, with acks=all.
"""

import asyncio
import os
import signal
import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError, Producer

from bench.wire import HOST, WireError
from tidelog.client import Admin, NewTopic

_LIMIT_S = 300.0
_POLL_S = 0.05
_RETRY_MS = 100
_Partitions = list[tuple[str, int]]


async def run(
    port: int, topics: int, partitions: int, replicas: int, at_once: int, node_id: int, pid: int
) -> dict[str, float]:
    """Create topics, `at_once` in each request; then kill broker `node_id`, process `pid`, with SIGKILL.

    `written_s` is the time from the first request until each partition has a record, `again_s` the 99th
    percentile of the time from the kill until a partition that the broker led has another one. Raises
    WireError if a record is not stored.
    """
    names = [f"many-{number}" for number in range(topics)]
    every = [(name, index) for name in names for index in range(partitions)]
    async with Admin(bootstrap_servers=f"{HOST}:{port}", request_timeout_ms=int(_LIMIT_S * 1000)) as admin:
        begin = time.perf_counter()
        for first in range(0, topics, at_once):
            some = names[first : first + at_once]
            await admin.create_topics([NewTopic(name, partitions, replicas) for name in some])
        created_s = time.perf_counter() - begin
        written_s = max(await asyncio.to_thread(_written, _producer(port), every, begin))
        async with asyncio.timeout(_LIMIT_S):
            while not (led := await _led_by(admin, names, replicas, node_id)):  # noqa: ASYNC110 (no event)
                await asyncio.sleep(_POLL_S)
    producer = _producer(port)
    await asyncio.to_thread(_written, producer, led, begin)  # From now on it knows who leads.
    os.kill(pid, signal.SIGKILL)
    again = sorted(await asyncio.to_thread(_written, producer, led, time.perf_counter()))
    again_s = again[int(len(again) * 0.99)]
    return {"created_s": created_s, "written_s": written_s, "led": len(led), "again_s": again_s}


async def _led_by(admin: Admin, names: Iterable[str], replicas: int, node_id: int) -> _Partitions:
    """The partitions that a broker leads; none before all replicas of all are in sync."""
    described = {topic.name: topic.partitions for topic in await admin.describe_topics(list(names))}
    if any(len(each.isr) < replicas for partitions in described.values() for each in partitions):
        return []
    return [
        (name, each.partition)
        for name, partitions in described.items()
        for each in partitions
        if each.leader == node_id
    ]


def _producer(port: int) -> Producer:
    return Producer(
        {
            "bootstrap.servers": f"{HOST}:{port}",
            "acks": "all",
            "message.timeout.ms": int(_LIMIT_S * 1000),
            "retry.backoff.ms": _RETRY_MS,
            "retry.backoff.max.ms": _RETRY_MS,
            "topic.metadata.refresh.fast.interval.ms": _RETRY_MS,
            "log_level": 0,
        }
    )


def _written(producer: Producer, partitions: _Partitions, begin: float) -> list[float]:
    """When each of these partitions had a record, in seconds after `begin`. Raises WireError."""
    times: list[float] = []
    errors: list[str] = []

    def delivered(error: KafkaError | None, message: Any) -> None:
        if error is None:
            times.append(time.perf_counter() - begin)
        else:
            errors.append(str(error))

    for name, index in partitions:
        producer.produce(name, b"1", partition=index, on_delivery=delivered)
        producer.poll(0)
    left = producer.flush(_LIMIT_S)
    if left or errors:
        raise WireError(f"{left + len(errors)} of {len(partitions)} records were not stored: {errors[:1]}")
    return times
