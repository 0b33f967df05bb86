"""`python -m bench.loads.transactions_load PORT CLIENT …`: one producer, one transaction after the other.

CLIENT is `tidelog` or `confluent-kafka`. Each transaction writes `--records` records to `--partitions`
partitions in turn and commits; with `--plain` a producer without a transactional id sends the same records
and waits for all acks. The next one begins when the one before has ended for the producer. The first
`WARM_UP` are not counted. Prints one JSON line. Exit code 1 when one of them failed.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import uvloop

from bench.statistics import percentile
from bench.wire import HOST, Wire, WireError

CLIENTS = ("tidelog", "confluent-kafka")
TOPIC = "transactions"
WARM_UP = 20
_VALUE_BYTES = 100
_TIMEOUT_S = 60.0


def _numbers(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "transactions": len(ordered),
        "per_s": len(ordered) / sum(ordered),
        "p50_ms": percentile(ordered, 0.5) * 1000,
        "p99_ms": percentile(ordered, 0.99) * 1000,
    }


async def run_tidelog(given: argparse.Namespace) -> dict[str, float]:
    """With Tidelog's client."""
    from tidelog.client import Producer

    transactional_id = None if given.plain else f"bench-{os.getpid()}"
    value = os.urandom(_VALUE_BYTES)
    places = [number % given.partitions for number in range(given.records)]
    seconds: list[float] = []
    servers = f"{HOST}:{given.port}"
    async with Producer(bootstrap_servers=servers, transactional_id=transactional_id) as producer:

        async def send() -> None:
            sent = [await producer.send(TOPIC, value, partition=place) for place in places]
            if given.plain:
                for each in sent:
                    await each

        async def one() -> None:
            if given.plain:
                await send()
                return
            await producer.begin_transaction()
            await send()
            await producer.commit_transaction()

        for _ in range(WARM_UP):
            await one()
        gc.disable()
        end = time.perf_counter() + given.seconds
        while (begin := time.perf_counter()) < end:
            await one()
            seconds.append(time.perf_counter() - begin)
    return _numbers(seconds)


def run_confluent(given: argparse.Namespace) -> dict[str, float]:
    """With confluent-kafka, which is librdkafka."""
    from confluent_kafka import Producer

    errors: list[str] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            errors.append(str(error))

    named = {"enable.idempotence": True} if given.plain else {"transactional.id": f"bench-{os.getpid()}"}
    settings: dict[str, Any] = {"bootstrap.servers": f"{HOST}:{given.port}", "linger.ms": 0, "log_level": 0}
    producer = Producer({**settings, **named})
    value = os.urandom(_VALUE_BYTES)
    places = [number % given.partitions for number in range(given.records)]

    def send() -> None:
        for place in places:
            producer.produce(TOPIC, value, partition=place, on_delivery=delivered)

    def send_and_wait() -> None:
        send()
        if producer.flush(_TIMEOUT_S):
            errors.append(f"not all records were acknowledged within {_TIMEOUT_S} s")

    def commit() -> None:
        producer.begin_transaction()
        send()
        producer.commit_transaction(_TIMEOUT_S)

    one: Callable[[], None] = send_and_wait if given.plain else commit
    if not given.plain:
        producer.init_transactions(_TIMEOUT_S)
    for _ in range(WARM_UP):
        one()
    seconds: list[float] = []
    gc.disable()
    end = time.perf_counter() + given.seconds
    while (begin := time.perf_counter()) < end and not errors:
        one()
        seconds.append(time.perf_counter() - begin)
    if errors:
        raise WireError(errors[0])
    return _numbers(seconds)


def run(given: argparse.Namespace) -> dict[str, float]:
    """The numbers as printed. Raises WireError, and what the client raises."""
    with Wire(given.port) as wire:
        wire.create_topic(TOPIC, given.partitions)
    try:
        return uvloop.run(run_tidelog(given)) if given.client == CLIENTS[0] else run_confluent(given)
    finally:
        gc.enable()


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.loads.transactions_load")
    parser.add_argument("port", type=int)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("--records", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--plain", action="store_true", help="the same records without a transaction")
    return parser.parse_args(arguments)


def main() -> int:
    try:
        result = run(parse())
    except Exception as error:
        print(f"the load failed: {error!r}", file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
