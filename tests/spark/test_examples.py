"""The flights example, as PySpark and as a Declarative Pipeline, judged by a count of the CSV by hand."""

import asyncio
import csv
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.brokers import RunningBroker, running_broker
from tests.tidy.house import ROOT
from tidelog.client.cluster_config import ClusterConfig
from tidelog.pipeline.examples import delays
from tidelog.pipeline.examples.flights import create_topics, fill, find_csv, run
from tidelog.pipeline.jobs import audit
from tidelog.pipeline.jobs.audit_settings import AuditSettings

ROWS = 3000
# How the CSV writes that a flight was cancelled.
NONE = ("", "NA")
PNG = b"\x89PNG\r\n\x1a\n"
DECLARATIVE = ROOT / "pipeline" / "examples" / "declarative"
SECONDS = 300


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """The first ROWS of the CSV."""
    folder = tmp_path_factory.mktemp("csv")
    with find_csv(None, folder).open() as file:
        return [row for row, _ in zip(csv.DictReader(file), range(ROWS), strict=False)]


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
    spark: SparkSession, broker: RunningBroker, rows: list[dict[str, str]], tmp_path: Path
) -> None:
    folder = tmp_path / "example"
    file = find_csv(None, tmp_path)
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


@pytest.fixture
def connect_url(spark: SparkSession) -> Iterator[str]:
    """Spark Connect in the tests' Spark: another server would take as long to start as all of the rest."""
    jvm: Any = spark._jvm
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    service.start(spark._jsc.sc())
    running = getattr(getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    yield f"sc://127.0.0.1:{running.localPort()}"
    nothing = jvm.scala.Option.empty()
    service.stop(nothing, nothing)


def test_the_declarative_pipeline_makes_the_same_tables_through_spark_connect(
    spark: SparkSession,
    connect_url: str,
    broker: RunningBroker,
    rows: list[dict[str, str]],
    tmp_path: Path,
) -> None:
    fill(spark, ClusterConfig(broker.bootstrap_servers), find_csv(None, tmp_path), ROWS)
    said = run_pipeline(connect_url, broker.bootstrap_servers, tmp_path)
    try:
        # Spark 4.3 exits with 1 after a good run of any source in Python: the tables decide.
        assert "Run is COMPLETED" in said, said
        assert hours(spark.table("hourly")) == hours_by_hand(rows)
        assert identities(spark.table("archive")) == flown(rows)
    finally:
        for table in ("hourly", "archive"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")
    cleaned = delays.read_topic(spark, ClusterConfig(broker.bootstrap_servers), delays.CLEANED_TOPIC)
    assert identities(delays.read_flights(cleaned)) == flown(rows)


def run_pipeline(connect_url: str, bootstrap_servers: str, folder: Path) -> str:
    """Run a copy of the spec that names this broker and folder; what the command said."""
    shutil.copytree(DECLARATIVE, folder / "declarative")
    spec = folder / "declarative" / "spark-pipeline.yml"
    text = spec.read_text()
    changed = {
        "localhost:9092": bootstrap_servers,
        "file:///tmp/flights-pipeline": f"file://{folder}/storage",
    }
    for old, new in changed.items():
        assert old in text
        text = text.replace(old, new)
    spec.write_text(text)
    ran = subprocess.run(
        [sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", str(spec)],
        cwd=folder,
        env=os.environ | {"SPARK_REMOTE": connect_url, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return ran.stdout
