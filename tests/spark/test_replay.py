"""A replay brings back each record once, in its partition and order, however often it is begun."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.brokers import RunningBroker, running_broker
from tests.unit.pipeline.batches import make_batch
from tidelog.client import ClusterConfig
from tidelog.pipeline.jobs.archive import run as archive
from tidelog.pipeline.jobs.archive_settings import ArchiveSettings
from tidelog.pipeline.jobs.audit import run as audit
from tidelog.pipeline.jobs.audit_settings import AuditSettings
from tidelog.pipeline.jobs.replay import ReplayReport, build, run
from tidelog.pipeline.jobs.replay_settings import ReplaySettings
from tidelog.pipeline.offsets import OptionError

DAY_MS = 86_400_000
TIME = 1_700_000_000_000 // DAY_MS * DAY_MS
COUNT = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """With topic 7, whose records lie now on one day, now on another."""
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        broker.create_topic("7", 2)
        for partition in (0, 1):
            rows = [(TIME + n % 3 * DAY_MS + n, b"k%d" % n, b"%d" % n, (("h", b"x"),)) for n in range(COUNT)]
            batches = [make_batch(rows[base : base + 10]) for base in range(0, COUNT, 10)]
            broker.append("7", partition, batches)
        yield broker


@pytest.fixture(scope="module")
def archived(spark: SparkSession, broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An archive of the topic, written in two rounds."""
    folder = str(tmp_path_factory.mktemp("archives") / "archive")
    settings = ArchiveSettings(("7",), ClusterConfig(broker.bootstrap_servers), folder, max_rows=70)
    assert archive(spark, settings).rounds == 2
    return folder


def values(spark: SparkSession, broker: RunningBroker, topic: str) -> list[tuple[int, int]]:
    return [(row.partition, int(row.value)) for row in broker.records(spark, topic)]


def counts(report: ReplayReport) -> tuple[int, int, int]:
    return report.rows_read, report.rows_written, report.rows_skipped


def test_an_archive_comes_back_once_through_stops_and_lost_notes(
    spark: SparkSession, broker: RunningBroker, archived: str, tmp_path: Path
) -> None:
    settings = ReplaySettings(
        ClusterConfig(broker.bootstrap_servers),
        archived,
        to_topic="back",
        session=str(tmp_path / "session"),
        max_rows=50,
    )
    stop = threading.Event()
    report = run(spark, settings, lambda progress: stop.set() if progress.batches == 1 else None, stop)
    assert (counts(report), report.rounds, report.offsets_left) == ((50, 50, 0), 1, 70)
    # As if the driver had died when the round was stored, and nothing was noted of it.
    for note in (tmp_path / "session" / "batches").iterdir():
        note.unlink()
    report = run(spark, settings)
    assert (counts(report), report.offsets_left) == ((120, 70, 50), 0)
    assert counts(run(spark, settings)) == (0, 0, 0)
    original, copy = broker.records(spark, "7"), broker.records(spark, "back")
    kept = ("key", "value", "partition", "offset", "timestamp")
    assert [[row[name] for name in kept] for row in copy] == [
        [row[name] for name in kept] for row in original
    ]
    header = ("tidelog.source", b"7-1@59")
    assert [tuple(each) for each in copy[-1].headers] == [("h", b"x"), header]
    audited = audit(spark, AuditSettings(("back",), ClusterConfig(broker.bootstrap_servers)))
    assert (audited.records, audited.is_clean) == (120, True)


def test_what_is_replayed_can_be_chosen(spark: SparkSession, broker: RunningBroker, archived: str) -> None:
    settings = ReplaySettings(
        ClusterConfig(broker.bootstrap_servers),
        archived,
        topics=("7",),
        partitions=(1,),
        start_offset=10,
        end_offset=50,
        start_time="2023-11-15",
        end_time="2023-11-16",
        where="offset % 2 = 0",
        select="key, CAST(CAST(value AS STRING) * 10 AS STRING) AS value",
        to_topic="chosen",
    )
    report = run(spark, settings)
    expected = [(1, 10 * n) for n in range(10, 50) if n % 3 == 1 and n % 2 == 0]
    assert values(spark, broker, "chosen") == expected
    assert counts(report) == (len(expected), len(expected), 0)


def test_offsets_of_a_topic_are_replayed_and_then_those_behind_them(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    session = str(tmp_path / "session")
    for end_offset, written in ((40, 40), (None, 40)):
        settings = ReplaySettings(
            ClusterConfig(broker.bootstrap_servers),
            topics=("7",),
            to_topic="again",
            session=session,
            start_offset=20,
            end_offset=end_offset,
        )
        assert counts(run(spark, settings)) == (written, written, 0)
    assert values(spark, broker, "again") == [(p, n) for p in (0, 1) for n in range(20, COUNT)]
    with pytest.raises(OptionError, match="begun with another plan"):
        run(spark, replace(settings, start_offset=0))


def test_a_topic_is_replayed_from_a_time_on(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    settings = ReplaySettings(
        ClusterConfig(broker.bootstrap_servers),
        topics=("7",),
        to_topic="late",
        session=str(tmp_path / "session"),
        start_time="2023-11-16",
    )
    assert [int(row.value) for row in build(spark, settings).collect()] == [*range(2, COUNT, 3)] * 2


def test_what_chance_decides_or_is_not_there_is_refused_before_a_topic_is_made(
    spark: SparkSession, broker: RunningBroker, archived: str
) -> None:
    given: dict[str, Any] = {"archive": archived, "to_topic": "never"}
    with pytest.raises(OptionError, match="random expression"):
        run(spark, ReplaySettings(ClusterConfig(broker.bootstrap_servers), where="rand() < 0.5", **given))
    with pytest.raises(OptionError, match=r"where: .*`nothing` cannot be resolved"):
        run(spark, ReplaySettings(ClusterConfig(broker.bootstrap_servers), where="nothing > 0", **given))
    with pytest.raises(OptionError, match="there is no partition 2"):
        run(spark, ReplaySettings(ClusterConfig(broker.bootstrap_servers), partitions=(2,), **given))
    with pytest.raises(OptionError, match="with key or value, got offset"):
        run(spark, ReplaySettings(ClusterConfig(broker.bootstrap_servers), select="offset", **given))
