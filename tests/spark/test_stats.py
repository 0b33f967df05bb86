"""The stats say of planted records what a count of them by hand says."""

import statistics
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.brokers import RunningBroker, running_broker
from tests.unit.pipeline.batches import Row, make_batch
from tidelog.client import ClusterConfig
from tidelog.pipeline.jobs.job import JobProgress
from tidelog.pipeline.jobs.stats import run
from tidelog.pipeline.jobs.stats_settings import StatsSettings
from tidelog.pipeline.segments.data_folders import CLEAN_SHUTDOWN
from tidelog.protocol.records import with_log_append_time

MINUTE_MS = 60_000
# A full minute, so that windows begin here.
TIME = 1_700_000_040_000
PNG = b"\x89PNG\r\n\x1a\n"


def planted(partition: int) -> list[Row]:
    """Fifty records a second apart with growing values; every fifth came 3 s late, by its timestamp."""
    return [
        (
            TIME + number * 1000 - (4000 if number % 5 == 4 else 0),
            b"key" if partition else None,
            b"x" * number,
            (("name", b"12345"), ("é", None)) if number % 2 else (),
        )
        for number in range(50)
    ] + [(TIME + 10 * MINUTE_MS, None, None, ())]


def size_of(row: Row) -> int:
    _, key, value, headers = row
    return len(key or b"") + len(value or b"") + sum(len(k.encode()) + len(v or b"") for k, v in headers)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        broker.create_topic("planted", 2)
        for partition in range(2):
            rows = planted(partition)
            broker.append("planted", partition, [make_batch(rows[:30]), make_batch(rows[30:])])
        broker.create_topic("empty")
        broker.create_topic("watched")
        yield broker


def counted_by_hand() -> dict[tuple[int, int], dict[str, Any]]:
    """Metrics by partition and window."""
    sizes: dict[tuple[int, int], list[int]] = defaultdict(list)
    lags: dict[tuple[int, int], list[int]] = defaultdict(list)
    for partition in range(2):
        newest = 0
        for row in planted(partition):
            window = partition, row[0] // MINUTE_MS * MINUTE_MS
            sizes[window].append(size_of(row))
            lags[window].append(max(newest - row[0], 0))
            newest = max(newest, row[0])
    return {
        window: {
            "records": len(of_window),
            "bytes": sum(of_window),
            "records_per_second": len(of_window) / 60,
            "bytes_per_second": sum(of_window) / 60,
            "size_mean": sum(of_window) / len(of_window),
            "size_p50": statistics.median_low(of_window),
            "size_max": max(of_window),
            "lag_p50_ms": statistics.median_low(lags[window]),
            "lag_max_ms": max(lags[window]),
        }
        for window, of_window in sizes.items()
    }


def test_each_window_holds_what_a_count_by_hand_gives(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    output, plot = tmp_path / "windows", tmp_path / "new" / "plot.png"
    settings = StatsSettings(
        ("planted",), ClusterConfig(broker.bootstrap_servers), output=str(output), plot=str(plot)
    )
    heard: list[JobProgress] = []
    report = run(spark, settings, heard.append)
    rows = [row.asDict() for row in spark.read.parquet(str(output)).collect()]
    expected = counted_by_hand()
    found = {(row["partition"], _milliseconds(row["window_start"])): row for row in rows}
    assert {each: {name: found[each][name] for name in expected[each]} for each in found} == expected
    assert all(row["size_p50"] <= row["size_p95"] <= row["size_max"] for row in rows)
    assert max(row["lag_p95_ms"] for row in rows) == 3000
    assert plot.read_bytes().startswith(PNG)
    assert heard[-1].rows == 102
    summary = report.summary()
    assert (summary["event"], summary["lag_is"], summary["windows"]) == ("stats_finished", "at_least", 4)
    assert (summary["records"], summary["size_max"], report.exit_code) == (102, 63, 0)
    assert summary["records_per_second"] == pytest.approx(102 / 600)
    columns, table = report.table()
    assert [row[:3] for row in table] == [["planted", "0", "51"], ["planted", "1", "51"]]
    assert columns[3] == "RECORDS/S"


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def test_the_broker_s_own_timestamps_tell_no_lag(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "stamped-0"
    folder.mkdir()
    (tmp_path / CLEAN_SHUTDOWN).touch()
    (folder / f"{0:020}.log").write_bytes(with_log_append_time(make_batch(planted(0)), TIME))
    report = run(spark, StatsSettings(("stamped",), path=str(tmp_path)))
    assert (report.total["records"], report.total["lag_max_ms"], report.total["lag_p50_ms"]) == (
        51,
        None,
        None,
    )


def test_a_topic_without_records_is_measured_as_nothing(spark: SparkSession, broker: RunningBroker) -> None:
    report = run(spark, StatsSettings(("empty",), ClusterConfig(broker.bootstrap_servers)))
    assert (report.partitions, report.windows, report.total["records"]) == ((), 0, 0)
    assert report.total["records_per_second"] is None


def test_what_arrives_while_watched_is_measured_to_the_last_record(
    spark: SparkSession, broker: RunningBroker
) -> None:
    broker.append("watched", 0, [make_batch(planted(0))])
    heard: list[JobProgress] = []

    def on_progress(progress: JobProgress) -> None:
        if not heard:
            broker.append("watched", 0, [make_batch(planted(0)) for _ in range(3)])
        heard.append(progress)

    settings = StatsSettings(
        ("watched",), ClusterConfig(broker.bootstrap_servers), follow_seconds=1, window="1 week"
    )
    report = run(spark, settings, on_progress)
    assert report.total["records"] == heard[-1].rows == 3 * 51
    assert report.windows <= 2
    # The records say that they are from 2023.
    assert report.total["lag_p50_ms"] > 365 * 86_400_000
    assert report.summary()["lag_is"] == "seen"
