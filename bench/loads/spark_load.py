"""`python -m bench.loads.spark_load PORT FOLDER`: a Spark session that does one piece of work after another.

A process of its own, so that other loads take turns with it while it stays warm. It prints one JSON line when
it is ready, and one for each line {"work": NAME, ...} that it reads: the seconds it took, or {"error": …}.
WORK is `batch` or `stream` (read a topic), `raw` (read a partition's segment files as bytes), `sink` (copy a
topic into another one), `archive` (a topic into Parquet files), `replay` (those into a topic), `resolve` (is
Spark's own Kafka connector there?) or `interoperate` (it and ours read and write each other's records).

Reading looks at the offset and the value of every record, as the consumers do that it is compared with; how
many records came, and which, is checked. A stream's seconds are those of its micro-batches, as Spark reports
them; `total_seconds` has the start of the query too.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.machine import adopt_orphans, await_children
from bench.wire import HOST
from tidelog.client.cluster_config import ClusterConfig
from tidelog.pipeline.jobs import archive, replay
from tidelog.pipeline.jobs.archive_settings import ArchiveSettings
from tidelog.pipeline.jobs.projection import empty_for_null
from tidelog.pipeline.jobs.replay_settings import ReplaySettings
from tidelog.pipeline.source.fetch import find_bounds
from tidelog.pipeline.spark.spark_session import start_session

CORES = 2
_READ_BYTES = 4 << 20
_OURS = "tidelog"
_SPARKS = "kafka"
_STREAM_SECONDS = 280.0


class WorkError(RuntimeError):
    """A piece of work gave another result than it must."""


class Worker:
    """The works, by name."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._folder = folder

    def batch(self, given: Mapping[str, Any]) -> dict[str, float]:
        """Read the `records` of `topic`."""
        begin = time.perf_counter()
        frame = self._frame(self._spark.read, given)
        row = frame.selectExpr("COUNT(*)", "SUM(offset)", "COUNT(LENGTH(value))").first()
        taken = time.perf_counter() - begin
        records, ends = int(given["records"]), self._ends(given["topic"])
        if row is None or tuple(row) != (records, sum(end * (end - 1) // 2 for end in ends), records):
            raise WorkError(f"{records} records were to be read, as count, sum of offsets and values: {row}")
        return {"seconds": taken}

    def stream(self, given: Mapping[str, Any]) -> dict[str, float]:
        """The same in micro-batches, with trigger(availableNow=True)."""
        frame = self._frame(self._spark.readStream, given).selectExpr("offset", "LENGTH(value)")
        return self._run(frame, "noop", {}, int(given["records"]))

    def sink(self, given: Mapping[str, Any]) -> dict[str, float]:
        """Copy the `records` of topic `source` into topic `target`, by `delivery`."""
        options = {"topic": given["source"], "format": _OURS}
        source = self._frame(self._spark.readStream, options)
        columns = ["key", "value", "headers", "partition"]
        if given["delivery"] == "mirror":
            columns += [f"{name} AS source_{name}" for name in ("topic", "partition", "offset")]
        frame = empty_for_null(source.selectExpr(*columns))
        writing = {
            "kafka.bootstrap.servers": self._servers,
            "topic": given["target"],
            "delivery": given["delivery"],
        }
        numbers = self._run(frame, _OURS, writing, int(given["records"]))
        self._check_stored(given)
        return numbers

    def archive(self, given: Mapping[str, Any]) -> dict[str, float]:
        """Archive the `records` of `topic` in the folder `path`, as Parquet."""
        settings = ArchiveSettings(
            topics=(given["topic"],),
            cluster=ClusterConfig(self._servers),
            path=given["path"],
            min_partitions=CORES,
        )
        begin = time.perf_counter()
        report = archive.run(self._spark, settings)
        taken = time.perf_counter() - begin
        if report.rows != given["records"]:
            raise WorkError(f"{given['records']} records were to be archived, not {report.rows}")
        return {"seconds": taken}

    def replay(self, given: Mapping[str, Any]) -> dict[str, float]:
        """Replay the `records` of the archive in the folder `path` into topic `target`."""
        settings = ReplaySettings(
            ClusterConfig(self._servers), archive=given["path"], to_topic=given["target"]
        )
        begin = time.perf_counter()
        replay.run(self._spark, settings)
        taken = time.perf_counter() - begin
        self._check_stored(given)
        return {"seconds": taken}

    def raw(self, given: Mapping[str, Any]) -> dict[str, float]:
        """Read the segment files in `path` from front to back, and look at nothing."""
        buffer = bytearray(_READ_BYTES)
        size = 0
        begin = time.perf_counter()
        for path in sorted(Path(given["path"]).glob("*.log")):
            with path.open("rb", buffering=0) as file:
                while count := file.readinto(buffer):
                    size += count
        return {"bytes": size, "seconds": time.perf_counter() - begin}

    def resolve(self, given: Mapping[str, Any]) -> dict[str, float]:
        """Find Spark's own Kafka connector, or fail."""
        begin = time.perf_counter()
        self._frame(self._spark.read, {"topic": "any", "format": _SPARKS})
        return {"seconds": time.perf_counter() - begin}

    def interoperate(self, given: Mapping[str, Any]) -> dict[str, float]:
        """Each connector writes to `topic`, and both read the same rows from it."""
        begin = time.perf_counter()
        options = {"kafka.bootstrap.servers": self._servers, "topic": given["topic"]}
        for number, name in enumerate((_SPARKS, _OURS)):
            key, value = f"CAST(id + {1000 * number} AS STRING)", "REPEAT('x', id % 90)"
            columns = (f"CAST({key} AS BINARY) AS key", f"CAST({value} AS BINARY) AS value")
            rows = self._spark.range(1000).selectExpr(*columns)
            rows.write.format(name).mode("append").options(**options).save()
        names = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
        read = [
            self._frame(self._spark.read, {"topic": given["topic"], "format": name}).select(*names)
            for name in (_SPARKS, _OURS)
        ]
        found = [frame.orderBy("partition", "offset").collect() for frame in read]
        if found[0] != found[1] or len(found[0]) != 2000:
            raise WorkError(f"the connectors read {len(found[0])} and {len(found[1])} rows, which differ")
        return {"seconds": time.perf_counter() - begin}

    def _ends(self, topic: str) -> list[int]:
        return [end for _, end in find_bounds(ClusterConfig(self._servers), [topic], None).values()]

    def _check_stored(self, given: Mapping[str, Any]) -> None:
        if given.get("delivery") == "exactly_once":
            # A log also holds the ends of transactions, and its end counts them.
            options = {"columns": "offset", "isolation.level": "read_committed"}
            asked = {"topic": given["target"], "format": _OURS, "options": options}
            stored = self._frame(self._spark.read, asked).count()
        else:
            stored = sum(self._ends(given["target"]))
        if stored != given["records"]:
            raise WorkError(f"{given['records']} records were copied, and {given['target']} holds {stored}")

    def _frame(self, reader: Any, given: Mapping[str, Any]) -> DataFrame:
        options = {"kafka.bootstrap.servers": self._servers, "subscribe": given["topic"]}
        options |= {"startingOffsets": "earliest", "minPartitions": str(CORES)}
        options |= given.get("options", {})
        frame: DataFrame = reader.format(given["format"]).options(**options).load()
        return frame

    def _run(self, frame: DataFrame, sink: str, options: Mapping[str, str], records: int) -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=self._folder) as checkpoint:
            writer = frame.writeStream.format(sink).options(**options)
            writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
            begin = time.perf_counter()
            query = writer.start()
            try:
                if not query.awaitTermination(_STREAM_SECONDS):
                    raise WorkError(f"a stream did not end within {_STREAM_SECONDS:.0f} s")
            finally:
                query.stop()
            taken = time.perf_counter() - begin
        progress = query.recentProgress
        rows = sum(each.numInputRows for each in progress)
        if rows != records:
            raise WorkError(f"a stream read {rows} records of {records}")
        busy = sum(each.durationMs["triggerExecution"] for each in progress) / 1000
        return {"seconds": busy, "total_seconds": taken}


def main() -> int:
    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    settings = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    } | json.loads(os.environ.get("TIDELOG_BENCH_SPARK_SETTINGS", "{}"))
    # Ivy and the JVM print to standard output, which is for the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    adopt_orphans()
    spark = start_session(
        "bench", master=f"local[{CORES}]", settings=settings, driver_log=folder / "driver.log"
    )
    worker = Worker(spark, f"{HOST}:{port}", folder)
    print(json.dumps({"ready": 1}), file=answers, flush=True)
    for line in sys.stdin:
        given = json.loads(line)
        work: Callable[[Mapping[str, Any]], dict[str, float]] = getattr(worker, given["work"])
        try:
            answer: dict[str, Any] = work(given)
        except Exception as error:  # Spark wraps what went wrong in errors of many kinds: the asker judges.
            answer = {"error": f"{given['work']}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    # The JVM ends with its standard input. Whom nobody waits for would count as another program.
    gateway.proc.stdin.close()
    await_children()
    return 0


if __name__ == "__main__":
    sys.exit(main())
