"""`python -m bench.console_pages`: how long the console's pages of many producers and groups take.

Owns the load (producers that wrote, groups that committed, transactions that are open), and prints for each
page and route the time from the request to its last byte, the time of the broker's processor, and the longest
time that another client waited for a small request meanwhile.
"""

import http.client
import sys
import tempfile
import time
from pathlib import Path

from bench.console_search import Broker, asked, show
from bench.wire import HOST, TOPIC, Wire
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey

_PRODUCE_VERSION = 7
_OFFSET_COMMIT_VERSION = 8
_PARTITIONS = 10
_PRODUCERS = 100_000
_GROUPS = 1_000
_TIMES = 30
_PATHS = (
    "/api/v1/producers",
    "/console/producers",
    "/api/v1/producers?limit=500",
    f"/api/v1/producers?offset={_PRODUCERS - 50}",
    f"/api/v1/producers?producer_id={_PRODUCERS - 1}",
    "/api/v1/groups",
    "/console/groups",
    "/console/groups?order=lag",
    "/console/groups/group?group_id=group-500",
    "/console/transactions",
)


def _produce(wire: Wire) -> None:
    """One batch of each producer, the producers of a partition one after the other."""
    for first in range(0, _PRODUCERS, _PARTITIONS):
        partitions = []
        for producer_id in range(first, first + _PARTITIONS):
            builder = RecordBatchBuilder()
            builder.append(0, None, b"v")
            batch = builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=0)
            partitions.append({"index": producer_id % _PARTITIONS, "records": bytes(batch)})
        topic = {"name": TOPIC, "partition_data": partitions}
        values = {"acks": 1, "timeout_ms": 30_000, "topic_data": [topic]}
        wire.ask(ApiKey.PRODUCE, _PRODUCE_VERSION, values)


def _commit(wire: Wire) -> None:
    wire.ask(ApiKey.FIND_COORDINATOR, 2, {"key": "group-0", "key_type": 0})
    for number in range(_GROUPS):
        partitions = [
            {"partition_index": index, "committed_offset": number % 100} for index in range(_PARTITIONS)
        ]
        values = {"group_id": f"group-{number}", "topics": [{"name": TOPIC, "partitions": partitions}]}
        wire.ask(ApiKey.OFFSET_COMMIT, _OFFSET_COMMIT_VERSION, values)


def _get(port: int, path: str) -> float:
    """Seconds until the whole answer is here, on a new connection."""
    begin = time.perf_counter()
    connection = http.client.HTTPConnection(HOST, port)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status != http.client.OK:
        raise RuntimeError(f"{path}: {answer.status} {text.decode()[:500]}")
    return time.perf_counter() - begin


def main() -> int:
    Broker.settings = ("producer.id.unknown.sequence=accept",)
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder)) as broker:
        with Wire(broker.port) as wire:
            wire.create_topic(TOPIC, _PARTITIONS)
            _produce(wire)
            _commit(wire)
        begin = time.perf_counter()
        _get(broker.http_port, _PATHS[0])
        print(f"the first visitor, for whom the console is imported: {time.perf_counter() - begin:.3f} s")
        for path in _PATHS:
            with asked(broker.port) as others:
                taken = sorted(_get(broker.http_port, path) for _ in range(_TIMES))
            cpu = broker.cpu_seconds()
            for _ in range(_TIMES):
                _get(broker.http_port, path)
            each = (broker.cpu_seconds() - cpu) / _TIMES * 1000
            waited = f"another client waited for {others[-1] * 1000:.1f} ms at most"
            show(path, taken, f"; {each:.1f} ms of processor each; {waited}")
        path = f"/api/v1/topics/{TOPIC}/partitions/0/producers/0/history"
        with asked(broker.port) as others:
            taken = [_get(broker.http_port, path)]
        show(path, taken, f"; another client waited for {others[-1] * 1000:.1f} ms at most")
    return 0


if __name__ == "__main__":
    sys.exit(main())
