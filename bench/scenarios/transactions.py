"""Transactions beside Apache Kafka, and beside the same records without a transaction.

One producer commits transactions of 1, 10 and 100 records of 100 bytes, one after the other: with our client
and with librdkafka, on Tidelog, on Kafka, and on a Kafka that flushes each batch as Tidelog does. A plain
Kafka acknowledges what is in the page cache, so Tidelog's numbers have the disk's time too, and its do not.
The reference is the same client on Tidelog without transactions. Kafka is left out, with the reason in a
note, where its jars or a Java cannot be had.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.loads.process import run_load
from bench.loads.transactions_load import CLIENTS
from bench.results import REFERENCE, SUBJECT, Results
from bench.targets.kafka import FlushingKafka, Kafka
from bench.targets.maven import ConnectorError
from bench.targets.process import Target
from bench.targets.tidelog import Tidelog
from tidelog.pipeline.spark.java import JavaNotFoundError

PEERS = (Kafka.name, FlushingKafka.name, REFERENCE)
TITLE = "Transactions of one producer; the reference is Tidelog with the same records and no transaction"
RECORDS = (1, 10, 100)
MEASURES = (
    ("per_s", "transactions", "1/s"),
    ("p50_ms", "latency, p50", "ms"),
    ("p99_ms", "latency, p99", "ms"),
)
_WARM_UP_SECONDS = 1.0


def measure(results: Results, folder: Path, rounds: int, seconds: float) -> None:
    """All rounds, on servers of its own. Raises LoadError, TargetError."""
    with ExitStack() as stack:
        targets = [stack.enter_context(target) for target in _targets(results, folder)]
        for target in targets:  # Java compiles what runs often.
            _run(target, CLIENTS[1], RECORDS[0], _WARM_UP_SECONDS)
        for _ in range(rounds):
            for client in CLIENTS:
                for records in RECORDS:
                    _compare(results, targets, client, records, seconds)


def _compare(results: Results, targets: list[Target], client: str, records: int, seconds: float) -> None:
    """One turn of each target, with transactions and without."""
    own = "our client" if client == CLIENTS[0] else client
    for ways in ((), ("--plain",)):
        how = "without a transaction" if ways else "in a transaction"
        for target in targets:
            numbers = _run(target, client, records, seconds, *ways)
            for key, measure_name, unit in MEASURES:
                row = results.row(f"{own}, {records} records {how}", measure_name, unit)
                row.add(target.name, numbers[key])
                if ways and target.name == SUBJECT:
                    results.row(f"{own}, {records} records in a transaction", measure_name, unit).add(
                        REFERENCE, numbers[key]
                    )


def _run(target: Target, client: str, records: int, seconds: float, *more: str) -> dict[str, float]:
    options = (client, "--records", records, "--seconds", seconds, *more)
    return run_load(target, "transactions_load", *options).numbers


def _targets(results: Results, folder: Path) -> Iterator[Target]:
    yield Tidelog(folder / SUBJECT)
    try:
        yield Kafka(folder / Kafka.name)
        yield FlushingKafka(folder / FlushingKafka.name)
    except (ConnectorError, JavaNotFoundError) as error:
        results.notes.append(f"Apache Kafka is left out: {error}")
