"""One Spark session that reads, copies and archives topics in rounds; the first round is not counted.

The number and the identity of the records are checked. A stream's seconds are those of its micro-batches, as
Spark reports them, and so are the latencies of micro-batches, into which a producer sends a thousand records
a second. Then the producer ends, and the stream is idle.
"""

import asyncio
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.results import REFERENCE, SUBJECT
from bench.targets.process import cpu_seconds
from bench.wire import HOST, Wire
from faults.process_tree import descendants
from tidelog.cli.bench import percentile
from tidelog.client import Producer
from tidelog.pipeline.jobs import archive, replay
from tidelog.pipeline.jobs.archive_settings import ArchiveSettings
from tidelog.pipeline.jobs.projection import empty_for_null
from tidelog.pipeline.jobs.replay_settings import ReplaySettings
from tidelog.pipeline.source.fetch import find_bounds
from tidelog.pipeline.spark.spark_session import start_session
from tidelog.wire.cluster_config import ClusterConfig

CONNECTOR = "connector"
CORES = 2
_OURS, _SPARKS = "tidelog", "kafka"
_TWO_COLUMNS = {"columns": "offset,value"}
_STREAM_SECONDS = 280.0
_RECORDS_PER_SECOND = 1000
_TICK_SECONDS = 0.01
_MICRO_BATCHES = 60
_SETTLE_SECONDS, _IDLE_SECONDS = 2.0, 10.0
MOST_PARTITIONS = "read, 1,000 partitions"
"""Spark's own connector, with a task for each, would take minutes."""
OF_A_STREAM = {
    "first micro-batch": "ms",
    "micro-batch, p50": "ms",
    "micro-batch, p99": "ms",
    "idle stream, processor time of Spark": "ms/s",
}
"""What is measured of a running stream, and its unit."""


class WorkError(RuntimeError):
    """A piece of work gave another result than it must."""


class Worker:
    """The pieces of work; each returns its seconds, or raises WorkError."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._folder = folder

    def batch(self, topic: str, records: int, source: str = _OURS, **options: str) -> float:
        """Read the topic."""
        begin = time.perf_counter()
        frame = self._frame(self._spark.read, topic, source, options)
        row = frame.selectExpr("COUNT(*)", "SUM(offset)", "COUNT(LENGTH(value))").first()
        taken = time.perf_counter() - begin
        if row is None or tuple(row) != (records, sum(n * (n - 1) // 2 for n in self._ends(topic)), records):
            raise WorkError(f"{records} records were to be read, as count, sum of offsets and values: {row}")
        return taken

    def stream(self, topic: str, records: int, source: str = _OURS, **options: str) -> float:
        """The same in micro-batches, with trigger(availableNow=True)."""
        frame = self._frame(self._spark.readStream, topic, source, options)
        return self._run(frame.selectExpr("offset", "LENGTH(value)"), "noop", {}, records)

    def running(self, topic: str, source: str = _OURS) -> tuple[float, ...]:
        """OF_A_STREAM."""
        frame = self._frame(self._spark.readStream, topic, source, {"startingOffsets": "latest"})
        writer = frame.selectExpr("offset", "LENGTH(value)").writeStream.format("noop")
        with tempfile.TemporaryDirectory(dir=self._folder) as checkpoint:
            begin = time.perf_counter()
            query = (
                writer.option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds").start()
            )
            try:
                with _Trickle(self._servers, topic):
                    first, done = self._micro_batches(query, begin)
                time.sleep(_SETTLE_SECONDS)
                before = _processor_seconds()
                time.sleep(_IDLE_SECONDS)
                idle = (_processor_seconds() - before) / _IDLE_SECONDS
            finally:
                query.stop()
        taken = sorted(float(each.durationMs["triggerExecution"]) for each in done[1:])
        return first * 1000, percentile(taken, 0.5), percentile(taken, 0.99), idle * 1000

    def _micro_batches(self, query: Any, begin: float) -> tuple[float, list[Any]]:
        """The seconds to the end of the first one since `begin`, and the progress of _MICRO_BATCHES."""
        first = 0.0
        while len(done := [each for each in query.recentProgress if each.numInputRows]) < _MICRO_BATCHES:
            if done and not first:
                first = time.perf_counter() - begin
            if time.perf_counter() - begin > _STREAM_SECONDS or not query.isActive:
                raise WorkError(f"a stream ran {len(done)} of {_MICRO_BATCHES} micro-batches")
            time.sleep(_TICK_SECONDS)
        return first, done

    def sink(self, source: str, target: str, records: int, delivery: str) -> float:
        """Copy the topic `source` into topic `target`."""
        columns = ["key", "value", "headers", "partition"]
        if delivery == "mirror":
            columns += [f"{name} AS source_{name}" for name in ("topic", "partition", "offset")]
        frame = empty_for_null(self._frame(self._spark.readStream, source, _OURS, {}).selectExpr(*columns))
        writing = {"kafka.bootstrap.servers": self._servers, "topic": target, "delivery": delivery}
        taken = self._run(frame, _OURS, writing, records)
        if delivery == "exactly_once":
            # A log also holds the ends of transactions, and its end counts them.
            options = {"columns": "offset", "isolation.level": "read_committed"}
            self._check(target, records, self._frame(self._spark.read, target, _OURS, options).count())
        else:
            self._check(target, records, sum(self._ends(target)))
        return taken

    def archive(self, topic: str, path: str, records: int) -> float:
        """Archive the topic in the folder `path`, as Parquet."""
        settings = ArchiveSettings(
            topics=(topic,), cluster=ClusterConfig(self._servers), path=path, min_partitions=CORES
        )
        begin = time.perf_counter()
        report = archive.run(self._spark, settings)
        taken = time.perf_counter() - begin
        self._check(path, records, report.rows)
        return taken

    def replay(self, path: str, target: str, records: int) -> float:
        """Replay the archive in the folder `path` into topic `target`."""
        begin = time.perf_counter()
        replay.run(self._spark, ReplaySettings(ClusterConfig(self._servers), archive=path, to_topic=target))
        taken = time.perf_counter() - begin
        self._check(target, records, sum(self._ends(target)))
        return taken

    def _ends(self, topic: str) -> list[int]:
        return [end for _, end in find_bounds(ClusterConfig(self._servers), [topic], None).values()]

    def _check(self, where: str, records: int, stored: int) -> None:
        if stored != records:
            raise WorkError(f"{records} records were copied, and {where} holds {stored}")

    def _frame(self, reader: Any, topic: str, source: str, options: Mapping[str, str]) -> DataFrame:
        always = {"kafka.bootstrap.servers": self._servers, "subscribe": topic, "minPartitions": str(CORES)}
        settings = {**always, "startingOffsets": "earliest", **options}
        frame: DataFrame = reader.format(source).options(**settings).load()
        return frame

    def _run(self, frame: DataFrame, sink: str, options: Mapping[str, str], records: int) -> float:
        with tempfile.TemporaryDirectory(dir=self._folder) as checkpoint:
            writer = frame.writeStream.format(sink).options(**options)
            query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
            try:
                if not query.awaitTermination(_STREAM_SECONDS):
                    raise WorkError(f"a stream did not end within {_STREAM_SECONDS:.0f} s")
            finally:
                query.stop()
        progress = query.recentProgress
        rows = sum(each.numInputRows for each in progress)
        if rows != records:
            raise WorkError(f"a stream read {rows} records of {records}")
        return float(sum(each.durationMs["triggerExecution"] for each in progress) / 1000)


def _processor_seconds() -> float:
    """What Spark's Java and its Python processes have used."""
    seconds = 0.0
    for pid in descendants(os.getpid()):
        # A process may end while it is looked at.
        with suppress(OSError):
            seconds += cpu_seconds(pid)
    return seconds


class _Trickle:
    """A producer in a thread, for as long as the block lasts."""

    def __init__(self, servers: str, topic: str) -> None:
        self._servers, self._topic = servers, topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._send()))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    async def _send(self) -> None:
        async with Producer(bootstrap_servers=self._servers) as producer:
            while not self._ended.is_set():
                for _ in range(int(_RECORDS_PER_SECOND * _TICK_SECONDS)):
                    _ = await producer.send(self._topic, bytes(100))
                await asyncio.sleep(_TICK_SECONDS)


def run(
    port: int,
    folder: str,
    topic: str,
    records: int,
    reads: Sequence[tuple[str, str, int]],
    rounds: int,
    settings: Mapping[str, str],
) -> dict[str, dict[str, dict[str, list[float]]]]:
    """As `measured`: records per second, and OF_A_STREAM, by measure and who.

    `reads` are a measure, its topic and the number of its records. `settings` are those of Spark's own
    connector, or none.
    """
    place = Path(folder)
    spark = start_session(
        "bench",
        master=f"local[{CORES}]",
        settings={
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": str(CORES),
            "spark.local.dir": folder,
            "spark.sql.warehouse.dir": str(place / "warehouse"),
            **settings,
        },
        driver_log=place / "driver.log",
    )
    worker = Worker(spark, f"{HOST}:{port}", place)
    rates: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds + 1):
        for measure, who, seconds in _round(
            worker, port, place / str(number), topic, records, bool(settings)
        ):
            if number:
                rates.setdefault(measure, {}).setdefault(who, []).append(records / seconds)
        for measure, who, value in _other_topics(worker, port, f"trickle-{number}", reads, bool(settings)):
            if number:
                rates.setdefault(measure, {}).setdefault(who, []).append(value)
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # The JVM ends with it.
    gateway.proc.wait()
    return {"measured": rates}


def _other_topics(
    worker: Worker, port: int, trickle: str, reads: Sequence[tuple[str, str, int]], has_connector: bool
) -> Iterator[tuple[str, str, float]]:
    """What was measured, of whom, and the records per second, or OF_A_STREAM."""
    sources = {SUBJECT: (_OURS, _TWO_COLUMNS)} | ({CONNECTOR: (_SPARKS, {})} if has_connector else {})
    with Wire(port) as wire:
        wire.create_topic(trickle, 2)
    for who, (source, options) in sources.items():
        for measure, topic, records in reads:
            if who == CONNECTOR and measure == MOST_PARTITIONS:
                continue
            yield measure, who, records / worker.batch(topic, records, source, **options)
        for measure, value in zip(OF_A_STREAM, worker.running(trickle, source), strict=True):
            yield measure, who, value


def _round(
    worker: Worker, port: int, folder: Path, topic: str, records: int, has_connector: bool
) -> Iterator[tuple[str, str, float]]:
    """What was measured, of whom, and its seconds."""
    read: Mapping[str, Callable[..., float]] = {"batch": worker.batch, "stream": worker.stream}
    for name, work in read.items():
        yield f"read, {name}", SUBJECT, work(topic, records, **_TWO_COLUMNS)
        if has_connector:
            yield f"read, {name}", CONNECTOR, work(topic, records, _SPARKS)
    everything = worker.batch(topic, records)
    copies = {each: f"{each}-{folder.name}" for each in ("at_least_once", "mirror", "exactly_once", "replay")}
    with Wire(port) as wire:
        for target in copies.values():
            wire.create_topic(target, 2)
    plain = worker.sink(topic, copies["at_least_once"], records, "at_least_once")
    for delivery in ("mirror", "exactly_once"):
        yield (
            f"sink, {delivery} / at_least_once",
            SUBJECT,
            worker.sink(topic, copies[delivery], records, delivery),
        )
        yield f"sink, {delivery} / at_least_once", REFERENCE, plain
    jobs = {
        "archive": worker.archive(topic, str(folder), records),
        "replay": worker.replay(str(folder), copies["replay"], records),
    }
    shutil.rmtree(folder)
    for job, seconds in jobs.items():
        yield f"{job} / a batch read of all columns", SUBJECT, seconds
        yield f"{job} / a batch read of all columns", REFERENCE, everything
