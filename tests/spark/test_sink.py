"""`format("tidelog")` stores the rows of batches and streams as records; what it cannot store it refuses."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.brokers import RunningBroker
from tidelog.client import ClusterConfig
from tidelog.pipeline.jobs.audit import run as audit
from tidelog.pipeline.jobs.audit_settings import AuditSettings
from tidelog.protocol.murmur2 import murmur2_partition


def write(frame: DataFrame, broker: RunningBroker, **options: str) -> None:
    given = {"bootstrap.servers": broker.bootstrap_servers} | options
    frame.write.format("tidelog").mode("append").options(**given).save()


def test_every_column_of_a_row_arrives(spark: SparkSession, broker: RunningBroker) -> None:
    broker.create_topic("columns", partitions=2)
    frame = spark.sql(
        """SELECT 'k' AS key, CAST('v' AS BINARY) AS value, 'columns' AS topic, 1 AS partition,
                  TIMESTAMP '2024-01-02 03:04:05.678Z' AS timestamp,
                  ARRAY(NAMED_STRUCT('key', 'h', 'value', CAST('x' AS BINARY)),
                        NAMED_STRUCT('key', 'empty', 'value', CAST(NULL AS BINARY))) AS headers
           UNION ALL SELECT NULL, NULL, 'columns', 1, NULL, NULL"""
    ).coalesce(1)
    write(frame, broker)
    first, second = broker.records(spark, "columns")
    assert (first.key, first.value, first.partition) == (b"k", b"v", 1)
    assert first.timestamp.isoformat().startswith("2024-01-02T03:04:05.678")
    assert [tuple(each) for each in first.headers] == [("h", b"x"), ("empty", None)]
    assert (second.key, second.value, second.headers) == (None, None, None)


def test_rows_go_by_key_where_the_client_sends_them(spark: SparkSession, broker: RunningBroker) -> None:
    topics = []
    for codec in ("none", "zstd"):
        topics.append(topic := f"keys-{codec}")
        broker.create_topic(topic, partitions=3)
        frame = spark.range(2000).selectExpr("CAST(id AS STRING) AS key", "REPEAT('x', 50) AS value")
        write(frame, broker, **{"topic": topic, "compression.type": codec, "batch.size": "10000"})
        rows = broker.records(spark, topic)
        assert sorted(int(row.key) for row in rows) == list(range(2000))
        assert all(row.partition == murmur2_partition(bytes(row.key), 3) for row in rows)
    settings = AuditSettings(topics=tuple(topics), cluster=ClusterConfig(broker.bootstrap_servers))
    audited = audit(spark, settings)
    assert (audited.records, audited.is_clean) == (4000, True)


def test_rows_without_a_key_are_spread_and_large_ones_fit(spark: SparkSession, broker: RunningBroker) -> None:
    broker.create_topic("spread", partitions=3)
    frame = spark.range(3000).selectExpr("IF(id = 7, REPEAT('y', 900000), REPEAT('x', 100)) AS value")
    write(frame, broker, **{"topic": "spread", "batch.size": "20000"})
    rows = broker.records(spark, "spread")
    assert len(rows) == 3000
    assert {row.partition for row in rows} == {0, 1, 2}
    assert max(len(row.value) for row in rows) == 900_000


def test_a_stream_stores_its_rows(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> None:
    broker.create_topic("from", partitions=2)
    broker.create_topic("to")
    write(spark.range(1000).selectExpr("CAST(id AS STRING) AS value"), broker, topic="from")
    source = {"bootstrap.servers": broker.bootstrap_servers, "subscribe": "from"}
    source |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "600"}
    frame = spark.readStream.format("tidelog").options(**source).load().select("key", "value")
    query = (
        frame.writeStream.format("tidelog")
        .option("bootstrap.servers", broker.bootstrap_servers)
        .option("topic", "to")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(int(row.value) for row in broker.records(spark, "to")) == list(range(1000))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["id AS value"], {"topic": "t"}, "column value: expected binary or string, got bigint; cast it"),
        (["'v' AS value"], {"topic": "t", "delivery": "mirror"}, r"Set option session\.path"),
    ],
)
def test_what_cannot_be_written_is_refused_when_it_is_planned(
    spark: SparkSession, broker: RunningBroker, columns: list[str], options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        write(spark.range(1).selectExpr(*columns), broker, **options)


def test_a_partition_that_the_topic_does_not_have_fails_the_write(
    spark: SparkSession, broker: RunningBroker
) -> None:
    broker.create_topic("narrow")
    with pytest.raises(PySparkException, match="expected a partition of 0 to 0 of topic 'narrow', got 3"):
        write(spark.range(1).selectExpr("'v' AS value", "3 AS partition"), broker, topic="narrow")
