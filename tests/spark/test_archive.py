"""An archive holds each record of its topics once, for any reader, whatever happens to its runs."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from tests.spark.brokers import RunningBroker
from tests.unit.pipeline.batches import make_batch
from tests.unit.pipeline.jobs.kills import Killed, die, release
from tidelog.client import ClusterConfig
from tidelog.pipeline.jobs import archive as archive_job
from tidelog.pipeline.jobs import archive_files, archive_log
from tidelog.pipeline.jobs.archive import ArchiveReport, build, run
from tidelog.pipeline.jobs.archive_files import ArchiveError, describe, write_drafts
from tidelog.pipeline.jobs.archive_log import Archive, publish
from tidelog.pipeline.jobs.archive_settings import ArchiveSettings
from tidelog.pipeline.jobs.job import JobProgress
from tidelog.pipeline.offsets import OffsetsLostError, Place
from tidelog.pipeline.schema import COLUMNS

DAY_MS = 86_400_000
TIME = 1_700_000_000_000 // DAY_MS * DAY_MS
DAYS = ("2023-11-14", "2023-11-15", "2023-11-16")


class Topic:
    """A topic of two partitions, whose records lie now on one day, now on another, and its archive."""

    def __init__(self, spark: SparkSession, broker: RunningBroker, folder: Path, name: str) -> None:
        self.broker, self.name, self.folder = broker, name, folder / "archive"
        self._spark = spark
        self.settings = ArchiveSettings(
            topics=(name,), cluster=ClusterConfig(broker.bootstrap_servers), path=str(self.folder)
        )
        broker.create_topic(name, 2)
        self.count = 0

    def append(self, count: int) -> None:
        """As many records to both partitions, ten to a batch."""
        for base in range(self.count, self.count + count, 10):
            rows = [
                (TIME + n % 3 * DAY_MS, f"k{n}".encode(), b"v" * (n % 7) or None, (("h", b"x"),) * (n % 2))
                for n in range(base, base + 10)
            ]
            for partition in (0, 1):
                self.broker.append(self.name, partition, [make_batch(rows)])
        self.count += count

    def run(self, **settings: Any) -> ArchiveReport:
        return run(self._spark, replace(self.settings, **settings))

    def check(self, *, by_spark: bool = False) -> None:
        """Pyarrow, and Spark if asked to, find exactly the topic's records in the archive."""
        expected = self.broker.records(self._spark, self.name)
        if by_spark:
            frame = self._spark.read.parquet(str(self.folder))
            assert frame.select(*COLUMNS).orderBy("partition", "offset").collect() == expected
        table = ds.dataset(self.folder, format="parquet", partitioning="hive").to_table()
        found = table.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()
        assert [(row["topic"], row["partition"], row["offset"], row["value"]) for row in found] == [
            (row.topic, row.partition, row.offset, row.value) for row in expected
        ]
        assert all(row["date"] == DAYS[row["offset"] % 3] for row in found)

    def names(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.glob("topic=*/**/*.parquet"))


@pytest.fixture
def topic(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> Topic:
    return Topic(spark, broker, tmp_path, f"t{abs(hash(request.node.name)) % 10**9}")


def test_each_record_is_there_once_by_date_through_rounds_and_runs(spark: SparkSession, topic: Topic) -> None:
    topic.append(60)
    assert build(spark, replace(topic.settings, max_rows=50)).count() == 50
    report = topic.run(max_rows=50)
    assert (report.rows, report.rounds, report.exit_code) == (120, 3, 0)
    assert report.files == len(topic.names()) == 3 * 2 * 3
    assert topic.names()[0] == (
        f"topic={topic.name}/date={DAYS[0]}/00000-00000000000000000000-00000000000000000024.parquet"
    )
    topic.check()
    assert topic.run().rows == 0
    topic.append(30)
    report = topic.run(min_partitions=5, rows_per_file=7)
    assert (report.rows, report.rounds) == (60, 1)
    before = topic.names()
    report = topic.run(compact=True)
    assert (len(topic.names()), report.compacted_files, report.exit_code) == (6, len(before) - 6, 0)
    topic.check(by_spark=True)


def test_segment_files_are_archived_without_a_fetch_to_the_same_files(topic: Topic) -> None:
    topic.append(40)
    topic.run()
    fetched, topic.folder = topic.names(), topic.folder.with_name("direct")
    data_dir = str(topic.broker.process.data_dir)
    assert topic.run(path=str(topic.folder), read_path=data_dir).rows == 80
    assert topic.names() == fetched
    topic.check()


def test_a_run_killed_behind_its_commit_is_made_good_by_the_next(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish_some(root: Path, moves: Iterable[Sequence[str]]) -> None:
        publish(root, list(moves)[:3])
        die()

    topic.append(60)
    with monkeypatch.context() as patch:
        # A kill leaves the drafts.
        patch.setattr(Archive, "__exit__", release)
        patch.setattr(archive_log, "publish", publish_some)
        with pytest.raises(Killed):
            topic.run(max_rows=50)
    assert len(topic.names()) == 3
    topic.append(30)
    topic.run(min_partitions=3)
    topic.check()


def test_records_have_the_date_of_their_timestamp_in_utc_and_none_outside_the_calendar(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also where Spark's calendar and Parquet's other timestamps end."""
    first, end = -62_135_596_800_000_000, 253_402_300_800_000_000
    dates = {
        first - 1: None,
        first: "0001-01-01",
        -1: "1969-12-31",
        0: "1970-01-01",
        end - 1: "9999-12-31",
        end: None,
        2**63 - 1: None,
        -(2**63): None,
    }
    values = ", ".join(f"({number}L, {micros}L)" for number, micros in enumerate(list(dates)[:-1]))
    least = f"({len(dates) - 1}L, {-(2**63 - 1)}L - 1L)"
    rows = spark.sql(
        f"SELECT 't' AS topic, 0 AS partition, n AS offset, timestamp_micros(us) AS timestamp"
        f" FROM VALUES {values}, {least} AS t(n, us)"
    )
    files = write_drafts(rows, tmp_path / "drafts", "lz4", 1000)
    found = {}
    for each in files:
        date = each.name.split("/")[1].removeprefix("date=")
        for micros in pq.ParquetFile(each.draft).read()["timestamp"].cast("int64").to_pylist():
            found[micros] = None if date == "__HIVE_DEFAULT_PARTITION__" else date
    assert found == dates


def test_records_of_a_task_that_failed_and_was_repeated_are_there_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    def fail_once(batches: Iterable[Any]) -> Iterable[Any]:
        yield from batches
        task = TaskContext.get()
        if task is not None and task.partitionId() == 1 and task.attemptNumber() == 0:
            raise RuntimeError("its first attempt fails")

    rows = spark.range(40, numPartitions=2).selectExpr(
        "'t' AS topic",
        "CAST(id / 20 AS INT) AS partition",
        "id AS offset",
        "TIMESTAMP '2026-11-22' AS timestamp",
    )
    rows = rows.mapInArrow(fail_once, rows.schema)
    files = write_drafts(rows, tmp_path / "drafts", "none", 1000)
    assert [(each.partition, each.first_offset, each.last_offset, each.rows) for each in files] == [
        (0, 0, 19, 20),
        (1, 20, 39, 20),
    ]


def test_records_that_are_not_where_the_driver_looks_are_an_error(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.append(10)
    with monkeypatch.context() as patch:
        patch.setattr(archive_files, "describe", lambda path: describe(path)._replace(rows=1))
        with pytest.raises(ArchiveError, match="the tasks read 20 records, and 6 of them are in"):
            topic.run()
    topic.run()
    topic.check()


def test_stop_ends_a_run_behind_its_round_and_says_what_is_left(spark: SparkSession, topic: Topic) -> None:
    topic.append(60)
    stop = threading.Event()
    seen: list[JobProgress] = []

    def watch(progress: JobProgress) -> None:
        seen.append(progress)
        if progress.batches == 1:
            stop.set()

    report = run(spark, replace(topic.settings, max_rows=40), watch, stop)
    assert (report.rows, report.rounds, report.behind) == (80, 2, 40)
    assert [(each.rows, each.total_rows) for each in seen] == [(0, 120), (40, 120)]
    topic.run()
    topic.check()


def test_a_run_that_waits_takes_in_what_comes(spark: SparkSession, topic: Topic) -> None:
    topic.append(10)
    stop = threading.Event()

    def watch(progress: JobProgress) -> None:
        if progress.rows == 20 and topic.count == 10:
            topic.append(20)
        elif progress.rows == 60 and progress.text == "waits for records":
            stop.set()

    report = run(spark, replace(topic.settings, interval_seconds=0.05), watch, stop)
    assert (report.rows, report.behind) == (60, 0)
    topic.check()


def test_offsets_that_are_gone_are_an_error_or_counted(topic: Topic) -> None:
    topic.append(20)
    topic.run()
    topic.append(20)
    topic.broker.delete_records(topic.name, 0, 25)
    with pytest.raises(OffsetsLostError, match="offsets 20 to 24 are gone"):
        topic.run()
    report = topic.run(fail_on_data_loss=False)
    assert (report.rows, report.lost_offsets, report.exit_code) == (35, 5, 1)
    assert topic.run().exit_code == 0


def test_a_topic_that_lost_what_is_archived_is_not_mixed_in(topic: Topic) -> None:
    topic.append(10)
    with Archive(str(topic.folder)) as archive:
        archive.commit({(place := Place(topic.name, 1)): 11}, [])
    with pytest.raises(ArchiveError, match=rf"{place} ends at offset 10, and the archive .* up to 11"):
        topic.run()


def test_a_round_that_read_a_topic_created_again_meanwhile_is_not_committed(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create_again(*_: object) -> list[Any]:
        topic.broker.delete_topic(topic.name)
        topic.broker.create_topic(topic.name, 2)
        return []

    topic.append(10)
    monkeypatch.setattr(archive_job, "write_drafts", create_again)
    with pytest.raises(ArchiveError, match="was deleted and created again"):
        topic.run()
    with Archive(str(topic.folder)) as archive:
        assert archive.ends == {}
