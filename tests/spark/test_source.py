"""`format("tidelog")` gives every record of what was asked for once, with all its fields."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from tests.spark.brokers import RunningBroker, running_broker
from tests.unit.pipeline.batches import Row, expected_rows, make_batch, plain_rows
from tidelog.client import ClusterConfig
from tidelog.pipeline.arrow.columnar import ARROW_SCHEMA
from tidelog.pipeline.offsets import OffsetRange, Place
from tidelog.pipeline.schema import SCHEMA
from tidelog.pipeline.source.fetch import find_bounds, read_answers
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import iter_batches

PER_PARTITION = 500
TIME = 1_700_000_000_000


def rows_of(partition: int, compression: Compression) -> list[Row]:
    """Rows that differ in every field: null and empty keys and values, none to three headers."""
    rows: list[Row] = []
    for number in range(100):
        key = None if number % 7 == 0 else f"key {number % 5}".encode()
        value = (
            None if number % 11 == 0 else f"{partition} {compression.name} {number} ".encode() * (number % 4)
        )
        headers = tuple((f"header {n}", None if n == 1 else b"x" * n) for n in range(number % 4))
        rows.append((TIME + number * 1000, key, value, headers))
    return rows


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        broker.create_topic("mixed", 3)
        for partition in (0, 1):
            for compression in Compression:
                rows = rows_of(partition, compression)
                broker.append("mixed", partition, [make_batch(rows, compression=compression)])
        broker.create_topic("deleted")
        broker.append("deleted", 0, [make_batch(rows_of(0, Compression.NONE)) for _ in range(3)])
        broker.delete_records("deleted", 0, 150)
        yield broker


def read(spark: SparkSession, broker: RunningBroker, **options: str) -> DataFrame:
    given = {"bootstrap.servers": broker.bootstrap_servers} | options
    return spark.read.format("tidelog").options(**given).load()


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """The frame's rows by partition and offset, timestamps as microseconds."""
    table = frame.toArrow().combine_chunks()
    found = plain_rows(table.cast(ARROW_SCHEMA).to_batches())
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


@pytest.fixture(scope="module")
def expected(broker: RunningBroker) -> list[dict[str, Any]]:
    """What the log holds, fetched as bytes and decoded a record at a time."""
    found = []
    for partition in (0, 1):
        offsets = OffsetRange("mixed", partition, 0, PER_PARTITION)
        data = b"".join(each.data for each in read_answers(ClusterConfig(broker.bootstrap_servers), offsets))
        found += expected_rows(data, "mixed", partition)
    assert len(found) == 2 * PER_PARTITION
    return found


def test_sparks_schema_is_the_decoders() -> None:
    assert to_arrow_schema(SCHEMA, timezone="UTC").equals(ARROW_SCHEMA)


def test_every_record_comes_once_with_all_its_fields(
    spark: SparkSession, broker: RunningBroker, expected: list[dict[str, Any]]
) -> None:
    frame = read(spark, broker, subscribe="mixed")
    assert frame.schema == SCHEMA
    # There are few records in each partition.
    assert frame.rdd.getNumPartitions() == 1
    assert rows(frame) == expected
    assert read(spark, broker, subscribe="mixed", minPartitions="2").rdd.getNumPartitions() == 2


def test_offsets_bound_the_read(
    spark: SparkSession, broker: RunningBroker, expected: list[dict[str, Any]]
) -> None:
    frame = read(
        spark,
        broker,
        assign='{"mixed":[1]}',
        startingOffsets='{"mixed":{"1":123}}',
        endingOffsets='{"mixed":{"1":277}}',
    )
    wanted = [row for row in expected if row["partition"] == 1 and 123 <= row["offset"] < 277]
    assert rows(frame) == wanted


def test_columns_are_only_those_asked_for(spark: SparkSession, broker: RunningBroker) -> None:
    frame = read(spark, broker, subscribe="mixed", columns="offset,partition")
    assert frame.columns == ["offset", "partition"]
    assert frame.selectExpr("sum(offset)").first()[0] == 2 * sum(range(PER_PARTITION))


def test_sql_reads_a_topic_as_a_view_whose_columns_say_what_they_hold(
    spark: SparkSession, broker: RunningBroker
) -> None:
    """Not as a table: Spark would read it without its options."""
    options = f"'kafka.bootstrap.servers' '{broker.bootstrap_servers}', subscribe 'mixed'"
    spark.sql(f"CREATE TEMPORARY VIEW seen USING tidelog OPTIONS ({options})")
    assert spark.sql("SELECT COUNT(*) FROM seen WHERE offset < 10").first()[0] == 20
    shown = {row.col_name: row.comment for row in spark.sql("DESCRIBE seen").collect()}
    assert shown == {field.name: field.metadata["comment"] for field in SCHEMA.fields}
    with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE kept USING tidelog OPTIONS ({options})")


def test_a_local_spark_speaks_to_its_python_processes_without_tcp(spark: SparkSession) -> None:
    """Which delays acknowledgements."""
    is_set = f.udf(lambda _: os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED"))
    assert spark.range(1).select(is_set("id")).first()[0] == "True"


def test_an_empty_range_is_an_empty_frame(spark: SparkSession, broker: RunningBroker) -> None:
    frame = read(spark, broker, assign='{"mixed":[2]}')
    assert frame.count() == 0
    assert frame.columns == SCHEMA.names


def test_a_topic_whose_head_was_deleted_begins_where_it_now_starts(
    spark: SparkSession, broker: RunningBroker
) -> None:
    assert find_bounds(ClusterConfig(broker.bootstrap_servers), ["deleted"], None) == {
        Place("deleted", 0): (150, 300)
    }
    offsets = [row["offset"] for row in rows(read(spark, broker, subscribe="deleted"))]
    assert offsets == list(range(150, 300))
    with pytest.raises(PySparkException, match="offset 100 is gone"):
        read(spark, broker, subscribe="deleted", startingOffsets='{"deleted":{"0":100}}').count()


def test_small_fetches_cover_a_range_without_gap(broker: RunningBroker) -> None:
    offsets = OffsetRange("mixed", 0, 0, PER_PARTITION)
    answers = list(read_answers(ClusterConfig(broker.bootstrap_servers), offsets, fetch_bytes=100))
    found = [header.base_offset for each in answers for _, header in iter_batches(each.data)]
    assert found == [0, 100, 200, 300, 400]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"subscribe": "nowhere"}, "topic 'nowhere'"),
        ({"assign": '{"mixed":[9]}'}, "no partition mixed-9"),
        ({"subscribe": "mixed", "startingOffsets": "latest"}, "read nothing"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_the_reason(
    spark: SparkSession, broker: RunningBroker, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(PySparkException, match=reason):
        read(spark, broker, **options).count()


@pytest.mark.parametrize(
    ("condition", "most_rows", "matching"),
    [
        ("offset < 10", 20, 20),
        ("partition = 1 AND offset BETWEEN 100 AND 109", 10, 10),
        ("partition <> 1 AND topic LIKE 'mix%'", PER_PARTITION, PER_PARTITION),
        ("topic = 'other'", 0, 0),
        ("timestamp >= TIMESTAMP_MILLIS(1700000000000 + 95000)", 2 * PER_PARTITION - 2 * 95, 50),
        ("timestamp > TIMESTAMP_MILLIS(1700000000000 + 99000)", 0, 0),
        ("offset >= 490 AND value IS NULL", 20, 2),
    ],
)
def test_a_filter_leaves_out_what_it_excludes_before_it_is_read(
    spark: SparkSession, broker: RunningBroker, condition: str, most_rows: int, matching: int
) -> None:
    """What a filter on the value leaves out is read."""
    frame = read(spark, broker, subscribe="mixed").filter(condition)
    assert len(frame.collect()) == matching
    scan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    assert scan.metrics().get("numOutputRows").get().value() <= most_rows


def test_a_session_that_pushes_no_filters_reads_the_same(spark: SparkSession, broker: RunningBroker) -> None:
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "false")
    try:
        frame = read(spark, broker, subscribe="mixed").filter("offset < 10")
        assert frame.count() == 20
    finally:
        spark.conf.set(setting, "true")
