"""The flights example as a Declarative Pipeline through Spark Connect, judged by a count of the CSV by hand.

`make spark` runs it: the pipeline's command takes as long to start as many tests.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.brokers import RunningBroker
from tests.spark.test_examples import ROWS, broker, file, flown, hours, hours_by_hand, identities, rows
from tests.tidy.house import ROOT
from tidelog.client import ClusterConfig
from tidelog.pipeline.examples import delays
from tidelog.pipeline.examples.flights import fill

__all__ = ["broker", "file", "rows"]

DECLARATIVE = ROOT / "tidelog" / "pipeline" / "examples" / "declarative"
SECONDS = 300


def test_the_declarative_pipeline_makes_the_same_tables_through_spark_connect(
    spark: SparkSession,
    connect_url: str,
    broker: RunningBroker,
    file: Path,
    rows: list[dict[str, str]],
    tmp_path: Path,
) -> None:
    fill(spark, ClusterConfig(broker.bootstrap_servers), file, ROWS)
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
