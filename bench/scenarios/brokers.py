"""Tidelog beside Apache Kafka and Tansu, with clients that are not ours, and what is required."""

from bench.comparison import Case, Comparison, Measure, Run, new_topic, speed
from bench.loads.process import run_load
from bench.loads.share_load import in_flight
from bench.loads.transactions_load import CLIENTS
from bench.results import Requirement, Results
from bench.targets.kafka import FlushedKafka, Kafka
from bench.targets.process import Server, Target
from bench.targets.tansu import Tansu
from bench.targets.tidelog import Tidelog


class Unflushed(Tidelog):
    """Acknowledges what is in the page cache, as Kafka does by default."""

    name = "unflushed"
    settings = ("acks.all.durable=false",)


_KAFKAS = (Tidelog, Unflushed, Kafka, FlushedKafka)
_ALL = (*_KAFKAS, Tansu)
SIZES = (("100 B", 100), ("1 KB", 1000))


def one_record_requests(connections: int, in_flight: int) -> str:
    """The title of the case with this number of connections."""
    return f"one-record requests, {connections} connection{'s'[: connections > 1]}, {in_flight} in flight"


def _at_least(ratio: float, against: str = Kafka.name) -> tuple[Requirement, ...]:
    """Of Tidelog as it is; without the flush it must be faster than Kafka."""
    return (Requirement(ratio, against), Requirement(1.2, Kafka.name, of=Unflushed.name))


# Whole files of records are in the page cache: as many as a consumer reads in about a second.
_FILLS = {
    100: {"requests": 1000, "records_per_batch": 1000, "value_bytes": 100},
    1000: {"requests": 4000, "records_per_batch": 100, "value_bytes": 1000},
}
# What Kafka takes a second for, and Kafka that flushes ten.
_JAVA_RECORDS = {100: 500_000, 1000: 100_000}

THROUGHPUT = Comparison(
    "librdkafka's idempotent producer, acks=all, one partition",
    _ALL,
    tuple(
        Case(
            f"librdkafka, {title}",
            "librdkafka_producer",
            {"value_bytes": size},
            speed(rate=_at_least(1.0 if size == 100 else 0.9), p99_name="p99 of a request"),
        )
        for title, size in SIZES
    ),
)
REQUESTS = Comparison(
    "One-record requests of 100 bytes, acks=all",
    _ALL,
    tuple(
        Case(
            one_record_requests(connections, in_flight),
            "raw_load",
            {"connections": connections, "in_flight": in_flight},
            speed("request", _at_least(1.0, FlushedKafka.name if connections == 1 else Kafka.name)),
        )
        for connections, in_flight in ((1, 1), (1, 5), (16, 5))
    ),
)
CONSUME = Comparison(
    "librdkafka's consumer, one partition from the page cache",
    (Tidelog, Kafka),
    tuple(
        Case(
            f"consume, {title}",
            "librdkafka_consumer",
            {},
            speed(rate=(Requirement(1.0, Kafka.name),), p99_name="p99 of a request"),
            _FILLS[size],
            is_timed=False,
        )
        for title, size in SIZES
    ),
)
_RAW = {
    100: {"records_per_batch": 1000, "value_bytes": 100},
    1000: {"records_per_batch": 100, "value_bytes": 1000},
}
RAW = Comparison(
    "Prepared batches of 1,000 records of 100 B, or 100 of 1 KB, over a socket, acks=all, one partition",
    _KAFKAS,
    tuple(
        Case(f"prepared batches, {title}", "raw_producer", _RAW[size], speed(rate=_at_least(1.0)))
        for title, size in SIZES
    ),
)
RAW_CONSUME = Comparison(
    "Fetches of 1 MB over two sockets, one partition from the page cache",
    (Tidelog, Kafka),
    tuple(
        Case(
            f"fetches, {title}", "raw_consumer", {}, speed(rate=(Requirement(1.2, Kafka.name),)), _FILLS[size]
        )
        for title, size in SIZES
    ),
)
_BETTER = (Requirement(1.0, Kafka.name),)
_LESS = (Requirement(1.0, Kafka.name, at_least=False),)


def _percentile(name: str) -> Measure:
    """Of the latencies that a load gives in ms."""
    return Measure(name, "ms", lambda done: float(done.numbers[f"{name}_ms"]), _LESS)


_LATENCIES = (_percentile("p50"), _percentile("p99"))
LATENCY = Comparison(
    "From this client's producer to its consumer, one partition, acks=all",
    _KAFKAS,
    tuple(
        Case(
            f"{rate:,} records/s of 100 B, from send to consumer",
            "latency_load",
            {"client": "tidelog", "rate": rate},
            _LATENCIES,
        )
        for rate in (100, 1_000, 10_000)
    ),
)
# More than the members take in a turn.
_SHARED = {100: {"requests": 15_000, "value_bytes": 100}, 1000: {"requests": 6_000, "value_bytes": 1000}}
_IN_FLIGHT_PARTITIONS = 500
"""Each has as many records in flight as Kafka's default `group.share.partition.max.record.locks` allows."""
_IN_FLIGHT_RECORDS = 2_000


def _in_flight(results: Results, server: Server, run: Run) -> None:
    """The memory of a million records that members got and did not acknowledge. Raises FAILURES."""
    if not isinstance(server, Target):
        raise TypeError(f"expected one process, got {server.name}")
    row = results.row("share group, a million records in flight", "memory", "MB", _LESS)
    fill = {
        "partitions": _IN_FLIGHT_PARTITIONS,
        "records_per_batch": 100,
        "requests": _IN_FLIGHT_RECORDS // 100,
    }
    with new_topic(server, _IN_FLIGHT_PARTITIONS) as topic:
        run_load(server, "raw_load", topic=topic, **fill)
        before = server.used_bytes()
        with in_flight(server.port, topic, _IN_FLIGHT_PARTITIONS, _IN_FLIGHT_RECORDS) as records:
            row.add(server.name, (server.used_bytes() - before) / records)


SHARE = Comparison(
    "A share group over sockets: one partition, up to 500 records per request",
    (Tidelog, Kafka),
    (
        *(
            Case(
                f"share group, {title}, {members} consumer{'s'[: members > 1]}, {how}",
                "share_load",
                {"members": members, "one_by_one": one_by_one},
                speed(rate=_BETTER, cpu=_LESS)[:2],
                {**_SHARED[size], "records_per_batch": 100},
            )
            for title, size in SIZES
            for how, one_by_one in (("in batches", False), ("one by one", True))
            for members in (1, 8, 32)
        ),
        Case(
            "share group, 200 records/s of 100 B, from send to delivery",
            "share_load",
            {"rate": 200},
            _LATENCIES,
        ),
    ),
    _in_flight,
)
JAVA = Comparison(
    "Kafka's producer in Java with its defaults, acks=all, one partition",
    _KAFKAS,
    tuple(
        Case(
            f"Java producer, {title}",
            "java_producer",
            {"value_bytes": size, "records": _JAVA_RECORDS[size]},
            speed(rate=_at_least(0.9), p99_name="p99 from send to answer"),
            is_timed=False,
        )
        for title, size in SIZES
    ),
)
PARTITIONS = Comparison(
    "1,000 partitions and 64 producers, each with ten records of 100 bytes for each of its 15 or 16",
    _KAFKAS,
    (
        Case(
            "1,000 partitions, 64 producers",
            "raw_load",
            {"connections": 64, "partitions": 1000, "records_per_batch": 10, "in_flight": 5},
            speed(rate=_at_least(1.0)),
        ),
    ),
)


TRANSACTIONS = Comparison(
    "Transactions of one producer, one after the other, records of 100 bytes over three partitions",
    _KAFKAS,
    tuple(
        Case(
            f"transactions of {records}, client of {client}",
            "transactions_load",
            {"client": client, "records": records, "partitions": 3},
            speed("transaction"),
        )
        for client in CLIENTS
        for records in (1, 100)
    ),
)
