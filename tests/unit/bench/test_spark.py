"""Spark's own Kafka connector is used where it was named or a cache holds all of it, and nowhere else."""

from pathlib import Path

import pytest

from bench.loads.process import LoadError
from bench.targets.spark import JARS, PACKAGES, SparkProcess, kafka_connector

NAMES = (
    "org.apache.spark_spark-sql-kafka-0-10_2.13-4.3.0.jar",
    "org.apache.spark_spark-token-provider-kafka-0-10_2.13-4.3.0.jar",
    "org.apache.kafka_kafka-clients-3.9.1.jar",
    "org.apache.commons_commons-pool2-2.12.1.jar",
)


def test_what_is_named_goes_first(tmp_path: Path) -> None:
    named = {JARS: "a.jar,b.jar", PACKAGES: "org:name:1"}
    assert kafka_connector(named, tmp_path) == {"spark.jars": "a.jar,b.jar"}
    assert kafka_connector({PACKAGES: "org:name:1"}, tmp_path) == {"spark.jars.packages": "org:name:1"}


def test_a_cache_counts_only_when_it_holds_every_part(tmp_path: Path) -> None:
    jars = tmp_path / ".ivy2" / "jars"
    jars.mkdir(parents=True)
    for name in NAMES[:-1]:
        (jars / name).touch()
    assert kafka_connector({}, tmp_path) == {}
    (jars / NAMES[-1]).touch()
    assert kafka_connector({}, tmp_path) == {"spark.jars": ",".join(str(jars / name) for name in NAMES)}


def test_a_session_that_does_not_start_says_why(tmp_path: Path) -> None:
    process = SparkProcess(0, tmp_path / "spark", {"spark.master": "nowhere"})
    process.command = [process.command[0], "-c", "raise SystemExit('no session today')"]
    with pytest.raises(LoadError, match=r"Spark, start: it ended; it printed:\nno session today"), process:
        pass
