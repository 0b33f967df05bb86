"""The pipeline on Spark: reads beside our client alone and aiokafka, segment files beside their bytes, sinks.

One broker and one Spark session for all rounds, warmed up first; within a round all take turns. Each reader
looks at the offset and the value of every record; Spark asks the source for these two columns (it does not
tell a source by itself which it needs), and for all of them in a row of its own. Connecting is not measured
for the clients, and neither is starting a query for the streams, which has a row of its own. aiokafka and our
client are one process each, Spark has two cores, and each may use what it has.

The jobs archive and replay the rows that the sinks copy, beside a plain batch read of them, start and end of
the job included.

Spark's own Kafka connector is measured beside ours where it can be resolved (see `bench.targets.spark`), and
each must then read what the other wrote; where not, a note says so.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from bench.comparison import Run
from bench.loads.process import LoadError, run_load
from bench.results import REFERENCE, SUBJECT, Requirement, Results
from bench.targets.maven import FetchError
from bench.targets.process import Target
from bench.targets.spark import JARS, PACKAGES, SparkProcess, resolve_connector
from bench.targets.tidelog import Tidelog
from bench.wire import Wire

CLIENT, AIOKAFKA, CONNECTOR = "client", "aiokafka", "connector"
PEERS = (CLIENT, AIOKAFKA, CONNECTOR, REFERENCE)
TITLE = (
    "The pipeline on Spark beside others, on one Tidelog broker: medians of rounds, ratios within each round"
)
_READ_RECORDS = 3_000_000
# The slow one reads for more than a second.
_CLIENT_RECORDS = 1_000_000
_COPIED_RECORDS = 1_000_000
_VALUE_BYTES = 100
_READ, _COPIED = "read", "copied"
_COLUMNS = "offset,value"
_READING = (Requirement(3, AIOKAFKA),)
_COPYING = (Requirement(0.8, REFERENCE),)
_BATCH, _ALL, _STREAM, _WHOLE = (
    "batch",
    "batch, all columns",
    "availableNow",
    "availableNow and starting it",
)
_EFFORT = "batch, processor time of the reader"
_PREPARED = "transaction.two.phase.commit.enable=true"
_READ_ROWS: dict[str, tuple[Requirement, ...]] = {
    _BATCH: _READING,
    _ALL: _READING,
    _STREAM: _READING,
    _WHOLE: (),
    _EFFORT: (),
}


def measure(run: Run) -> Results:
    """All rounds on one broker. Raises FAILURES."""
    results, folder, rounds = Results(PEERS, TITLE), run.folder, run.rounds
    connector, why_none = _connector()
    with Tidelog(folder / "broker", settings=(_PREPARED,)) as broker:
        counts = {
            _READ: _fill(broker, _READ, 1, _READ_RECORDS),
            _COPIED: _fill(broker, _COPIED, 2, _COPIED_RECORDS),
        }
        spark, has_connector = _start(results, broker, folder / "spark", connector, why_none)
        with spark:
            if has_connector:
                _create(broker, "both", 2)
                spark.ask("interoperate", topic="both")
                results.notes.append("Spark's own Kafka connector and ours read what the other wrote.")
            _round(Results(PEERS, TITLE), broker, spark, counts, 0, has_connector)
            for number in range(1, rounds + 1):
                _round(results, broker, spark, counts, number, has_connector)
    return results


def _connector() -> tuple[dict[str, str], str]:
    """The settings of Spark's own Kafka connector, or none and why."""
    try:
        return resolve_connector(os.environ, Path.home()), ""
    except FetchError as error:
        return {}, f"not resolvable here ({error}): {JARS} or {PACKAGES} names it"


def _start(
    results: Results, broker: Target, folder: Path, connector: Mapping[str, str], reason: str
) -> tuple[SparkProcess, bool]:
    """A Spark that is to be started, with its own Kafka connector if there is one that it starts with."""
    if connector:
        try:
            with SparkProcess(broker.port, folder, connector) as spark:
                spark.ask("resolve")
            return SparkProcess(broker.port, folder, connector), True
        except LoadError as error:
            reason = f"not resolvable here: {str(error).splitlines()[-1]}"
    results.notes.append(f"Spark's own Kafka connector: {reason}")
    return SparkProcess(broker.port, folder, {}), False


def _create(broker: Target, topic: str, partitions: int) -> None:
    with Wire(broker.port) as wire:
        wire.create_topic(topic, partitions)


def _fill(broker: Target, topic: str, partitions: int, records: int) -> int:
    """How many records the new topic holds."""
    _create(broker, topic, partitions)
    options = ("--topic", topic, "--value-bytes", _VALUE_BYTES, "--records", records, "--seconds", 60)
    # One more is sent before the clock is started.
    return int(run_load(broker, "client_load", "produce", SUBJECT, *options).numbers["records"]) + 1


def _round(
    results: Results,
    broker: Target,
    spark: SparkProcess,
    counts: Mapping[str, int],
    number: int,
    has_connector: bool,
) -> None:
    """Values are noted when all of a kind are there, for rounds are compared by their number."""
    read = {who: _read_by_client(broker, name) for who, name in ((CLIENT, SUBJECT), (AIOKAFKA, AIOKAFKA))}
    for who, source in {SUBJECT: "tidelog", CONNECTOR: "kafka"}.items():
        if who == SUBJECT or has_connector:
            columns = {"columns": _COLUMNS} if who == SUBJECT else {}
            read[who] = _read_by_spark(spark, source, columns, counts[_READ])
    raw = spark.ask("raw", path=str(broker.folder / f"{_READ}-0"))
    files = {"topic": _READ, "records": counts[_READ], "format": "tidelog"}
    options = {"read.path": str(broker.folder)}
    files_seconds = {
        _BATCH: spark.ask("batch", **files, options=options | {"columns": _COLUMNS})["seconds"],
        _ALL: spark.ask("batch", **files, options=options)["seconds"],
    }
    copied = {}
    for delivery in ("mirror", "exactly_once", "at_least_once"):
        target = f"{delivery}-{number}"
        _create(broker, target, 2)
        given = {"source": _COPIED, "target": target, "records": counts[_COPIED], "delivery": delivery}
        copied[delivery] = counts[_COPIED] / spark.ask("sink", **given)["seconds"]
    jobs = _jobs(broker, spark, counts[_COPIED], number)
    for measure, required in _READ_ROWS.items():
        unit = "us/record" if measure == _EFFORT else "records/s"
        row = results.row("read, 100-byte records", measure, unit, required)
        for who, numbers in read.items():
            row.add(who, numbers[measure])
    for measure, seconds in files_seconds.items():
        row = results.row("segment files (read.path)", f"{measure}, beside reading the bytes", "MB/s")
        row.add(SUBJECT, raw["bytes"] / seconds / 1e6)
        row.add(REFERENCE, raw["bytes"] / raw["seconds"] / 1e6)
    for delivery in ("mirror", "exactly_once"):
        measure = f"{delivery} beside at_least_once"
        row = results.row("sink, 100-byte records", measure, "records/s", _COPYING)
        row.add(SUBJECT, copied[delivery])
        row.add(REFERENCE, copied["at_least_once"])
    plain_seconds = jobs.pop("read")
    for job, seconds in jobs.items():
        row = results.row("jobs, 100-byte records", f"{job} beside a batch read of all columns", "records/s")
        row.add(SUBJECT, counts[_COPIED] / seconds)
        row.add(REFERENCE, counts[_COPIED] / plain_seconds)


def _jobs(broker: Target, spark: SparkProcess, records: int, number: int) -> dict[str, float]:
    """The seconds of a batch read of all columns (`read`), and of each job with the same rows."""
    path = broker.folder.parent / f"archive-{number}"
    given = {"records": records, "path": str(path)}
    seconds = {
        "read": spark.ask("batch", topic=_COPIED, format="tidelog", **given)["seconds"],
        "archive": spark.ask("archive", topic=_COPIED, **given)["seconds"],
        "replay": spark.ask("replay", target=f"replayed-{number}", **given)["seconds"],
    }
    shutil.rmtree(path)
    return seconds


def _read_by_client(broker: Target, client: str) -> dict[str, float]:
    """The values of the reading rows; to a client batch and stream are one."""
    options = ("--topic", _READ, "--records", _CLIENT_RECORDS, "--way", "getmany")
    numbers = run_load(broker, "client_load", "consume", client, *options).numbers
    values = dict.fromkeys(_READ_ROWS, numbers["records"] / numbers["seconds"])
    return values | {_EFFORT: numbers["cpu_seconds"] / numbers["records"] * 1e6}


def _read_by_spark(
    spark: SparkProcess, source: str, options: Mapping[str, str], records: int
) -> dict[str, float]:
    given = {"topic": _READ, "records": records, "format": source}
    everything = spark.ask("batch", **given)
    cpu_before = spark.cpu_seconds()
    batch = spark.ask("batch", **given, options=options)
    cpu = spark.cpu_seconds() - cpu_before
    stream = spark.ask("stream", **given, options=options)
    return {
        _BATCH: records / batch["seconds"],
        _ALL: records / everything["seconds"],
        _STREAM: records / stream["seconds"],
        _WHOLE: records / stream["total_seconds"],
        _EFFORT: cpu / records * 1e6,
    }
