"""One producer that commits transactions one after the other, each of `records` records to partitions in
turn.

A transaction begins when the previous one has ended for the producer. The first ones are not counted.
"""

import gc
import os
import time
from typing import Any

from bench.wire import HOST, WireError
from tidelog.cli.bench import percentile

CLIENTS = ("tidelog", "librdkafka")
WARM_UP = 20
_VALUE_BYTES = 100
_TIMEOUT_S = 60.0


async def run(
    port: int, topic: str, client: str, records: int, seconds: float, partitions: int = 3
) -> dict[str, float]:
    """Transactions for `seconds`. Raises what the client raises, and WireError."""
    places = [number % partitions for number in range(records)]
    transact = _tidelog if client == CLIENTS[0] else _librdkafka
    taken = sorted(await transact(f"{HOST}:{port}", topic, places, seconds))
    return {
        "records": len(taken),
        "seconds": sum(taken),
        "p50_ms": percentile(taken, 0.5) * 1000,
        "p99_ms": percentile(taken, 0.99) * 1000,
    }


async def _tidelog(servers: str, topic: str, places: list[int], seconds: float) -> list[float]:
    from tidelog.client import Producer

    value, taken = os.urandom(_VALUE_BYTES), list[float]()
    async with Producer(bootstrap_servers=servers, transactional_id=f"bench-{os.getpid()}") as producer:
        end = float("inf")
        gc.disable()
        while (begin := time.perf_counter()) < end:
            await producer.begin_transaction()
            for place in places:
                _ = await producer.send(topic, value, partition=place)
            await producer.commit_transaction()
            taken.append(time.perf_counter() - begin)
            if len(taken) == WARM_UP:
                end = time.perf_counter() + seconds
    return taken[WARM_UP:]


async def _librdkafka(servers: str, topic: str, places: list[int], seconds: float) -> list[float]:
    from confluent_kafka import Producer

    errors: list[str] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            errors.append(str(error))

    settings: dict[str, Any] = {"bootstrap.servers": servers, "linger.ms": 0, "log_level": 0}
    producer = Producer({**settings, "transactional.id": f"bench-{os.getpid()}"})
    producer.init_transactions(_TIMEOUT_S)
    value, taken = os.urandom(_VALUE_BYTES), list[float]()
    end = float("inf")
    gc.disable()
    while (begin := time.perf_counter()) < end:
        producer.begin_transaction()
        for place in places:
            producer.produce(topic, value, partition=place, on_delivery=delivered)
        producer.commit_transaction(_TIMEOUT_S)
        taken.append(time.perf_counter() - begin)
        if errors:
            raise WireError(errors[0])
        if len(taken) == WARM_UP:
            end = time.perf_counter() + seconds
    return taken[WARM_UP:]
