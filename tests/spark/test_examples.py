"""The flights example, judged by a count of the CSV by hand. `declarative_pipeline` runs its other form."""

import asyncio
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.brokers import RunningBroker, running_broker
from tidelog.client import ClusterConfig
from tidelog.pipeline.examples import delays
from tidelog.pipeline.examples.flights import create_topics, find_csv, run
from tidelog.pipeline.jobs import audit
from tidelog.pipeline.jobs.audit_settings import AuditSettings

ROWS = 1000
# How the CSV writes that a flight was cancelled.
NONE = ("", "NA")
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return find_csv(None, tmp_path_factory.mktemp("csv"))


@pytest.fixture(scope="module")
def rows(file: Path) -> list[dict[str, str]]:
    """The first ROWS of the CSV."""
    with file.open() as lines:
        return [row for row, _ in zip(csv.DictReader(lines), range(ROWS), strict=False)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with running_broker(tmp_path / "broker") as broker:
        asyncio.run(create_topics(ClusterConfig(broker.bootstrap_servers)))
        yield broker


Identity = tuple[str, int, str, str, float]


def flown(rows: list[dict[str, str]]) -> list[Identity]:
    """The flights that took place, without their times, sorted."""
    return sorted(
        (row["carrier"], int(row["flight"]), row["origin"], row["dest"], float(row["dep_delay"]))
        for row in rows
        if row["dep_delay"] not in NONE
    )


def identities(flights: DataFrame) -> list[Identity]:
    """The same of rows of FLIGHT."""
    columns = flights.select("carrier", "flight", "origin", "dest", "delay_minutes")
    return sorted(tuple(row) for row in columns.collect())


def hours_by_hand(rows: list[dict[str, str]]) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Flights, mean delay and share of late ones by hour (as the CSV writes it) and airport."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row["dep_delay"] not in NONE:
            found.setdefault((row["time_hour"], row["origin"]), []).append(float(row["dep_delay"]))
    return {
        key: (
            len(each),
            pytest.approx(sum(each) / len(each)),
            pytest.approx(sum(delay > delays.LATE_MINUTES for delay in each) / len(each)),
        )
        for key, each in found.items()
    }


def hours(table: DataFrame) -> dict[tuple[str, str], tuple[Any, ...]]:
    """The same of a table of hourly delays."""
    return {
        (row["text"], row["origin"]): (row["flights"], row["mean_delay_minutes"], row["late_share"])
        for row in table.selectExpr("*", "date_format(hour, \"yyyy-MM-dd'T'HH:mm:ss'Z'\") AS text").collect()
    }


def test_the_example_fills_cleans_counts_archives_and_draws_and_a_second_run_adds_nothing(
    spark: SparkSession, broker: RunningBroker, file: Path, rows: list[dict[str, str]], tmp_path: Path
) -> None:
    folder = tmp_path / "example"
    for _ in range(2):
        run(spark, ClusterConfig(broker.bootstrap_servers), file, folder, ROWS)
    cleaned = delays.read_topic(spark, ClusterConfig(broker.bootstrap_servers), delays.CLEANED_TOPIC)
    assert identities(delays.read_flights(cleaned)) == flown(rows)
    assert hours(spark.read.parquet(str(folder / "hourly_delays"))) == hours_by_hand(rows)
    assert identities(delays.read_flights(spark.read.parquet(str(folder / "archive")))) == flown(rows)
    assert (folder / "delays.png").read_bytes().startswith(PNG)
    topics = (delays.RAW_TOPIC, delays.CLEANED_TOPIC)
    report = audit.run(spark, AuditSettings(topics, ClusterConfig(broker.bootstrap_servers)))
    assert (report.is_clean, report.unidentified) == (True, 0)
