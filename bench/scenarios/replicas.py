"""Three brokers with three replicas of each partition, beside three nodes of Kafka: what acks=all costs, how
long nothing is acknowledged after a leader was killed, how a follower that is far behind catches up, and how
soon thousands of partitions take records.

Tidelog answers once two brokers have a record on their disks, Kafka once two have it in their page caches,
Kafka that flushes (flush.messages=1) as Tidelog. Processor time is that of all brokers and of etcd; Kafka has
its controllers in its brokers.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from bench.comparison import Case, Comparison, Measure, Run, new_topic, speed
from bench.loads.process import LoadError, Outcome, cpu_of, run_program
from bench.machine import Watch
from bench.results import Requirement, Results
from bench.scenarios.brokers import SIZES, one_record_requests
from bench.targets.cluster import (
    ETCD,
    FOLLOWERS,
    LEADER,
    Cluster,
    FlushedKafkaCluster,
    KafkaCluster,
    TidelogCluster,
)
from bench.targets.process import Server, cpu_seconds, resident_bytes
from bench.wire import TOPIC, Wire, WireError

_BEHIND_RECORDS = 100
_BEHIND_REQUESTS = 10_000
"""A gigabyte, in batches of 100 records."""
_MEANWHILE_S = 10.0
_MANY = {"topics": 1_000, "partitions": 3, "at_once": 50}
_WRITTEN_S = 10.0
_AGAIN_S = 6.0
_LIMIT_S = 180.0
_POLL_S = 0.01
_FASTER = (Requirement(1.0, FlushedKafkaCluster.name),)
_CHEAPER = (Requirement(1.0, KafkaCluster.name, at_least=False),)
_SOONER = (Requirement(1.0, FlushedKafkaCluster.name, at_least=False),)


def _part_us(part: str) -> Callable[[Outcome], float]:
    """Of one of its processes."""
    count = 2 if part == FOLLOWERS else 1

    def of(done: Outcome) -> float:
        records = float(done.numbers.get("acknowledged", done.numbers["records"]))
        return done.cpu_s.get(part, 0.0) * 1e6 / records / count

    return of


def _measures(what: str = "record") -> tuple[Measure, ...]:
    rate, cpu, p99 = speed(what, rate=_FASTER, cpu=_CHEAPER)
    parts = (("CPU of the leader", LEADER), ("CPU of a follower", FOLLOWERS), ("CPU of etcd", ETCD))
    return (
        rate,
        cpu,
        *(Measure(title, f"µs/{what}", _part_us(part)) for title, part in parts),
        Measure(p99.name, p99.unit, p99.of, _SOONER),
    )


_CASES = (
    *(
        Case(f"3 replicas: librdkafka, {title}", "librdkafka_producer", {"value_bytes": size}, _measures())
        for title, size in SIZES
    ),
    Case(
        "3 replicas: this client, 100 B",
        "client_load",
        {"work": "produce", "client": "tidelog", "value_bytes": 100},
        _measures()[:-1],
    ),
    *(
        Case(
            f"3 replicas: {one_record_requests(connections, in_flight)}",
            "raw_load",
            {"connections": connections, "in_flight": in_flight},
            _measures("request"),
        )
        for connections, in_flight in ((1, 1), (1, 5), (16, 5))
    ),
    Case(
        "3 replicas: 1,000 records/s from this client's producer to its consumer",
        "latency_load",
        {"client": "tidelog"},
        _measures()[1:],
    ),
)


def _afterwards(results: Results, server: Server, run: Run) -> None:
    """What is measured of one cluster at a time. Raises FAILURES."""
    if not isinstance(server, Cluster):
        raise TypeError(f"expected a cluster, got {server.name}")
    _measure_memory(results, server)
    for number in range(1, run.rounds):
        _measure_gap(results, server, f"{TOPIC}-led-by-last-{number}")
        server.nodes[-1].start()
        server.wait_until_registered(len(server.nodes))
    with new_topic(server) as topic, new_topic(server) as busy:
        _measure_gap(results, server, f"{TOPIC}-led-by-last")
        _measure_recovery(results, server, topic, busy)
    _measure_many(results, server)


def _measure_memory(results: Results, server: Cluster) -> None:
    for part, pids in server.parts().items():
        row = results.row("3 replicas: memory after these loads", f"resident, {part}", "MB per process")
        row.add(server.name, sum(map(resident_bytes, pids)) / len(pids) / 1e6)


def _measure_gap(results: Results, server: Cluster, topic: str) -> None:
    """The last node leads, and is killed."""
    victim = server.nodes[-1]
    with Wire(victim.port) as wire:
        wire.create_topic(topic, replicas=server.replicas[::-1])
    numbers = run_program("failover_load", port=server.port, topic=topic, pid=victim.pid)
    victim.kill()
    _until(server, topic, len(server.nodes) - 1)
    row = results.row("3 replicas: kill -9 of a leader", "nothing acknowledged for", "s", _SOONER)
    row.add(server.name, float(numbers["gap_s"]))


def _measure_recovery(results: Results, server: Cluster, topic: str, busy: str) -> None:
    """The last node does not run, misses a gigabyte, and is started, while a producer is at work."""
    behind = server.nodes[-1]
    _until(server, topic, len(server.nodes) - 1)
    missed = {"requests": _BEHIND_REQUESTS, "records_per_batch": _BEHIND_RECORDS, "value_bytes": 1000}
    run_program("raw_load", port=server.port, topic=topic, **missed)
    options = {"client": "tidelog", "seconds": _MEANWHILE_S, "topic": busy}
    with ThreadPoolExecutor(1) as thread:
        load = thread.submit(run_program, "latency_load", port=server.port, **options)
        behind.start()
        watch, began = Watch([pid for pids in server.parts().values() for pid in pids]), time.perf_counter()
        before, own_before = cpu_of(server), cpu_seconds(behind.pid)
        _until(server, topic, len(server.nodes))
        taken, others = time.perf_counter() - began, watch.others_share()
        leader_s, own_s = cpu_of(server)[LEADER] - before[LEADER], cpu_seconds(behind.pid) - own_before
        p99_ms = float(load.result()["p99_ms"])
    title = "3 replicas: a follower that is 1 GB behind"
    rows: Sequence[tuple[str, str, float, Sequence[Requirement]]] = (
        ("in sync, from its first answer", "s", taken, _SOONER),
        ("CPU of the follower", "s", own_s, _CHEAPER),
        ("CPU of the leader, with 1,000 records/s", "s", leader_s, _CHEAPER),
        ("p99 of these, from send to consumer", "ms", p99_ms, _SOONER),
    )
    for measure, unit, value, requirements in rows:
        results.row(title, measure, unit, requirements).add(server.name, value, others)


def _measure_many(results: Results, server: Cluster) -> None:
    """Thousands of partitions are created and written; then the last node is killed, which leads a third."""
    victim = server.nodes[-1]
    options = {**_MANY, "replicas": len(server.nodes), "node_id": server.replicas[-1], "pid": victim.pid}
    numbers = run_program("many_partitions", port=server.port, **options)
    victim.kill()
    title = f"3 replicas: {_MANY['topics'] * _MANY['partitions']:,} partitions"
    rows: Sequence[tuple[str, str, Sequence[Requirement]]] = (
        ("from the first request until each has a record", "written_s", _limit(_WRITTEN_S)),
        ("kill -9 of the leader of a third: p99 until one has a record", "again_s", _limit(_AGAIN_S)),
    )
    for measure, name, requirements in rows:
        results.row(title, measure, "s", requirements).add(server.name, float(numbers[name]))


def _limit(seconds: float) -> tuple[Requirement, ...]:
    return (Requirement(seconds, at_least=False),)


def _until(server: Cluster, topic: str, in_sync: int) -> None:
    """Return when this number of replicas of partition 0 is in sync. Raises LoadError."""
    deadline = time.monotonic() + _LIMIT_S
    while True:
        with suppress(WireError, OSError), Wire(server.port) as wire:
            topics = {each.name: each.partitions for each in wire.metadata().topics}
            if len(topics[topic][0].isr_nodes) == in_sync:
                return
        if time.monotonic() > deadline:
            raise LoadError(
                f"{server.name}: {topic} did not have {in_sync} replicas in sync for {_LIMIT_S:g} s"
            )
        time.sleep(_POLL_S)


REPLICAS = Comparison(
    "Three replicas, acks=all, min.insync.replicas 2",
    (TidelogCluster, KafkaCluster, FlushedKafkaCluster),
    _CASES,
    _afterwards,
)
