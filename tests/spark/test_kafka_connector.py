"""Spark's own Kafka connector reads and writes the broker, and sees what ours sees."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.brokers import RunningBroker, running_broker
from tests.spark.progress import sizes
from tests.unit.pipeline.batches import make_batch
from tidelog.client import ClusterConfig
from tidelog.pipeline.jobs.audit import run as audit
from tidelog.pipeline.jobs.audit_settings import AuditSettings
from tidelog.pipeline.options.tables import (
    FOREIGN_TO_SINK,
    FOREIGN_TO_SOURCE,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
)

TIME = 1_700_000_000_000
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
FORMATS = ("kafka", "tidelog")


class Topics:
    """Reads and writes topics with either connector."""

    def __init__(self, spark: SparkSession, broker: RunningBroker) -> None:
        self.broker = broker
        self.spark = spark
        self.servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}

    def write(self, name: str, topic: str, ids: range) -> None:
        """Rows with and without key, value and headers, in turn to both partitions."""
        header = "NAMED_STRUCT('key', 'h', 'value', IF(id % 3 = 0, NULL, CAST('x' AS BINARY)))"
        rows = self.spark.range(ids.start, ids.stop).selectExpr(
            "CAST(IF(id % 5 = 0, NULL, CAST(id AS STRING)) AS BINARY) AS key",
            "CAST(IF(id % 7 = 0, NULL, REPEAT('v', id % 50)) AS BINARY) AS value",
            f"IF(id % 2 = 0, NULL, ARRAY({header}, {header})) AS headers",
            "CAST(id % 2 AS INT) AS partition",
        )
        rows.write.format(name).mode("append").options(**self.servers, topic=topic).save()

    def read(self, name: str, **options: str) -> Any:
        headers = {"includeHeaders": "true"} if name == "kafka" else {}
        frame = self.spark.read.format(name).options(**self.servers, **headers, **options).load()
        return frame.select(*COLUMNS)

    def rows(self, name: str, **options: str) -> list[Any]:
        return list(self.read(name, **options).orderBy("partition", "offset").collect())


@pytest.fixture(scope="module")
def topics(
    spark: SparkSession, connector: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Topics | None]:
    """None where the connector is not to be had, which the `connector` fixture tells."""
    if not connector:
        yield None
        return
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        topics = Topics(spark, broker)
        broker.create_topic("both", 2)
        for number, name in enumerate(FORMATS):
            topics.write(name, "both", range(number * 200, number * 200 + 200))
        yield topics


def test_both_read_what_both_wrote(topics: Topics | None) -> None:
    if topics is None:
        return
    ours = topics.rows("tidelog", subscribe="both")
    assert len(ours) == 400
    for isolation in ("read_committed", "read_uncommitted"):
        options = {"kafka.isolation.level": isolation, "minPartitions": "5"}
        assert topics.rows("kafka", subscribe="both", **options) == ours


def test_both_find_the_same_offsets(topics: Topics | None) -> None:
    if topics is None:
        return
    topics.broker.create_topic("timed", 2)
    for partition in (0, 1):
        batches = [make_batch((TIME + n * 10, None, b"%d" % n, ()) for n in range(b, b + 5)) for b in (0, 5)]
        topics.broker.append("timed", partition, batches)
    topics.broker.delete_records("timed", 0, 2)
    timestamps = {
        "startingOffsetsByTimestamp": json.dumps({"timed": {"0": TIME, "1": TIME + 25}}),
        "endingOffsetsByTimestamp": json.dumps({"timed": {"0": TIME + 70, "1": TIME + 1000}}),
    }
    by_number = {
        "startingOffsets": json.dumps({"timed": {"0": -2, "1": 6}}),
        "endingOffsets": json.dumps({"timed": {"0": 4, "1": -1}}),
    }
    for options, values in ((timestamps, [*range(2, 7), *range(3, 10)]), (by_number, [2, 3, *range(6, 10)])):
        for name in FORMATS:
            rows = topics.rows(name, subscribePattern="timed.*", **options)
            assert [int(row.value) for row in rows] == values, (name, options)


def test_each_of_its_options_is_honoured_ignored_or_refused_here(
    spark: SparkSession, connector: Mapping[str, str]
) -> None:
    """The names are constants of its class."""
    if not connector:
        return
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    provider = loader.loadClass("org.apache.spark.sql.kafka010.KafkaSourceProvider$")
    module = provider.getField("MODULE$").get(None)
    names = {
        method.invoke(module, None).lower()
        for method in provider.getMethods()
        if re.search(r"(^|\$)(?!.*(DEFAULT|MESSAGE|INSTRUCTION|MOCK))[A-Z_]+$", method.getName())
        and method.getReturnType().getSimpleName() == "String"
    }
    assert {"subscribe", "groupidprefix", "kafkaconsumer.polltimeoutms", "topic"} < names
    for own, foreign in (
        (SOURCE_OPTIONS, FOREIGN_TO_SOURCE),
        (SINK_OPTIONS, FOREIGN_TO_SINK),
    ):
        known = {name.lower() for name in (*own, *foreign.ignored, *foreign.refused)}
        assert names - known == set()


def test_its_stream_copies_a_topic_in_batches(topics: Topics | None, tmp_path: Path) -> None:
    if topics is None:
        return
    topics.broker.create_topic("copy", 2)
    source = {"subscribe": "both", "startingOffsets": "earliest", "includeHeaders": "true"}
    rows = topics.spark.readStream.format("kafka").options(**topics.servers, **source)
    frame = rows.option("maxOffsetsPerTrigger", 300).load().select("key", "value", "headers", "partition")
    writer = frame.writeStream.format("kafka").options(**topics.servers, topic="copy")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sizes(query) == [300, 100]
    contents = ("partition", "offset", "key", "value", "headers")
    copied, original = (
        topics.read("tidelog", subscribe=name).select(*contents).orderBy("partition", "offset").collect()
        for name in ("copy", "both")
    )
    assert copied == original
    report = audit(
        topics.spark,
        AuditSettings(topics=("copy",), cluster=ClusterConfig(topics.broker.bootstrap_servers)),
    )
    assert (report.is_clean, report.records, report.unidentified) == (True, 400, 0)


def test_a_job_moves_between_both_formats_over_one_checkpoint(topics: Topics | None, tmp_path: Path) -> None:
    if topics is None:
        return
    topics.broker.create_topic("moving", 2)
    checkpoint, target = str(tmp_path / "checkpoint"), str(tmp_path / "rows")
    for step, name in enumerate(("kafka", "tidelog", "kafka")):
        topics.write("tidelog", "moving", range(step * 20, step * 20 + 20))
        options = {"subscribe": "moving", "startingOffsets": "earliest", "includeHeaders": "true"}
        rows = topics.spark.readStream.format(name).options(**topics.servers, **options).load()
        writer = rows.select("partition", "offset").writeStream.option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start(target, format="parquet").awaitTermination()
    stored = topics.spark.read.parquet(target).collect()
    assert sorted(stored) == [(partition, offset) for partition in (0, 1) for offset in range(30)]
