"""delivery=mirror stores every row of its source once, through restarts, replays, lost sessions and kills."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.spark.brokers import RunningBroker
from tests.unit.pipeline.batches import make_batch
from tidelog.client import ClusterConfig
from tidelog.pipeline.jobs.audit import run as audit
from tidelog.pipeline.jobs.audit_settings import AuditSettings
from tidelog.pipeline.mirror.session_folder import MirrorSession

TIME = 1_700_000_000_000
COLUMNS = ("key", "value", "headers", "timestamp")
POSITION = (
    "topic AS source_topic",
    "partition AS source_partition",
    "offset AS source_offset",
)


class Mirror:
    """A topic, its copy, and the stream between them."""

    def __init__(
        self, spark: SparkSession, broker: RunningBroker, folder: Path, name: str, partitions: int = 2
    ) -> None:
        self._spark, self._broker = spark, broker
        self.source, self.target = f"{name}-from", f"{name}-to"
        self.checkpoint = folder / "checkpoint"
        self.written = [0] * partitions
        broker.create_topic(self.source, partitions)
        broker.create_topic(self.target, partitions)

    @property
    def session(self) -> MirrorSession:
        return MirrorSession(str(self.checkpoint / "tidelog-session"), "")

    def append(self, count: int) -> None:
        """As many records to each partition, ten to a batch."""
        for partition, first in enumerate(self.written):
            for base in range(first, first + count, 10):
                rows = [
                    (TIME + n, f"k{n}".encode(), f"{partition}:{n}".encode(), (("h", b"x"),))
                    for n in range(base, base + 10)
                ]
                self._broker.append(self.source, partition, [make_batch(rows)])
            self.written[partition] += count

    def frame(self, **options: str) -> DataFrame:
        given = {"bootstrap.servers": self._broker.bootstrap_servers, "subscribe": self.source}
        given |= {"startingOffsets": "earliest"} | options
        return (
            self._spark.readStream.format("tidelog").options(**given).load().selectExpr(*COLUMNS, *POSITION)
        )

    def start(self, frame: DataFrame, **options: str) -> StreamingQuery:
        given = {"bootstrap.servers": self._broker.bootstrap_servers, "topic": self.target}
        given |= {"delivery": "mirror", "checkpointLocation": str(self.checkpoint)} | options
        return frame.writeStream.format("tidelog").options(**given).trigger(availableNow=True).start()

    def run(self, *, limit: int = 10_000, tasks: int | None = None, **options: str) -> str:
        """Mirror what is there; the run's id."""
        frame = self.frame(maxOffsetsPerTrigger=str(limit))
        query = self.start(frame if tasks is None else frame.coalesce(tasks), **options)
        query.awaitTermination()
        return str(query.runId)

    def stored(self) -> list[Any]:
        return self._broker.records(self._spark, self.target)

    def check(self, *, audited: bool = False) -> list[Any]:
        """Every record is there once, in order, in its partition, and names its source."""
        rows = self.stored()
        for partition, count in enumerate(self.written):
            values = [row.value.decode() for row in rows if row.partition == partition]
            assert values == [f"{partition}:{n}" for n in range(count)]
        for row in rows:
            position = f"{self.source}-{row.partition}@{row.offset}".encode()
            assert [tuple(each) for each in row.headers] == [("h", b"x"), ("tidelog.source", position)]
        if audited:
            settings = AuditSettings(
                topics=(self.target,), cluster=ClusterConfig(self._broker.bootstrap_servers)
            )
            assert audit(self._spark, settings).is_clean
        return rows

    def forget_commit(self) -> None:
        """As if the driver had died between the sink's last commit and Spark's commit log."""
        last = max((self.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def mirror(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> Mirror:
    return Mirror(spark, broker, tmp_path, f"t{abs(hash(request.node.name)) % 10**9}")


def test_rows_are_stored_once_through_restarts_and_replays(mirror: Mirror) -> None:
    mirror.append(50)
    first_run = mirror.run(limit=50)
    rows = mirror.check()
    assert {round(row.timestamp.timestamp() * 1000) for row in rows[:3]} == {TIME, TIME + 1, TIME + 2}
    assert mirror.session.counts(first_run) == (100, 100, 0, 2)
    mirror.forget_commit()
    mirror.append(50)
    second_run = mirror.run(limit=50, tasks=1)
    rows = mirror.check(audited=True)
    assert mirror.session.counts(second_run) == (150, 100, 50, 3)
    epochs = [row.producer_epoch for row in rows if row.partition == 0]
    assert epochs == sorted(epochs)
    assert set(epochs) == {0, 1}, "the second run fenced the first"
    assert len({row.producer_id for row in rows}) == 2


def test_a_broker_killed_in_the_middle_costs_nothing(mirror: Mirror, broker: RunningBroker) -> None:
    mirror.append(100)
    query = mirror.start(mirror.frame(maxOffsetsPerTrigger="50"))
    while not (query.lastProgress or query.exception()):
        query.awaitTermination(1)
    broker.run(broker.process.kill_9())
    broker.run(broker.process.restart())
    query.awaitTermination()
    mirror.check()


def test_a_batch_can_be_repeated_until_it_is_through(
    spark: SparkSession, broker: RunningBroker, mirror: Mirror, tmp_path: Path
) -> None:
    mirror.append(50)
    read = {"bootstrap.servers": broker.bootstrap_servers, "subscribe": mirror.source}
    options = {"bootstrap.servers": broker.bootstrap_servers, "topic": mirror.target}
    options |= {"delivery": "mirror", "session.path": str(tmp_path / "session")}
    for _ in range(2):
        frame = spark.read.format("tidelog").options(**read).load().selectExpr(*COLUMNS, *POSITION)
        frame.write.format("tidelog").mode("append").options(**options).save()
        mirror.check()
        mirror.append(50)
    assert json.loads((tmp_path / "session" / "owner.json").read_text())["query"] == "batch"
