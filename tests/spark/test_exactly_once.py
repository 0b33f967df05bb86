"""delivery=exactly_once: each row of a query with a join and a repartition is there once for readers of
committed records, also if Spark repeats tasks and batches."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.spark.brokers import RunningBroker, running_broker
from tests.unit.pipeline.batches import make_batch
from tidelog.pipeline.exactly_once.foreach_batch import write_once

ALLOWED = "tidelog-sink.*"
TIME_MS = 1_700_000_000_000
ROWS = 40
WAIT_SECONDS = 1200


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One that permits prepared transactions to the sink alone, with a topic of numbers."""
    settings = {
        "transaction.two.phase.commit.enable": "true",
        "transaction.two.phase.commit.allowed.ids": ALLOWED,
    }
    with running_broker(tmp_path_factory.mktemp("broker"), **settings) as broker:
        broker.create_topic("numbers", partitions=2)
        for partition in (0, 1):
            rows = [(TIME_MS, None, b"%d" % number, ()) for number in range(partition, ROWS, 2)]
            broker.append("numbers", partition, [make_batch(rows)])
        yield broker


def doubled(spark: SparkSession, broker: RunningBroker, failing: str = "") -> DataFrame:
    """Each number of the topic joined with two letters, spread over three tasks. If `failing` names a file,
    the first attempt at a row fails in the middle of a task."""
    options = {"bootstrap.servers": broker.bootstrap_servers, "subscribe": "numbers"}
    options["startingOffsets"] = "earliest"
    letters = spark.createDataFrame([("a",), ("b",)], "letter string")

    @f.udf("string")
    def touched(value: str) -> str:
        if failing and value == "7a":
            path = Path(failing)
            if not path.exists():
                path.touch()
                raise RuntimeError("the first attempt fails")
        return value

    frame = spark.readStream.format("tidelog").options(**options).load().crossJoin(letters)
    value = f.concat(frame.value.cast("string"), frame.letter)
    return frame.repartition(3).select(touched(value).alias("value"))


def run(frame: DataFrame, broker: RunningBroker, checkpoint: Path | str, topic: str, **options: str) -> None:
    given = {"bootstrap.servers": broker.bootstrap_servers, "topic": topic, "delivery": "exactly_once"}
    writer = frame.writeStream.format("tidelog").options(**given, **options)
    finish(writer.option("checkpointLocation", str(checkpoint)))


def finish(writer: Any) -> None:
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_SECONDS)


def committed(spark: SparkSession, broker: RunningBroker, topic: str) -> list[str]:
    rows = broker.records(spark, topic, **{"isolation.level": "read_committed"})
    return sorted(row.value.decode() for row in rows)


def expected() -> list[str]:
    return sorted(f"{number}{letter}" for number in range(ROWS) for letter in "ab")


def forget_commit(checkpoint: Path) -> None:
    """As if the driver had died after the sink's commit of the first batch, before Spark noted it."""
    for path in (checkpoint / "commits").iterdir():
        path.unlink()


def test_rows_of_failed_tasks_and_repeated_batches_are_there_once(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    broker.create_topic("once", partitions=2)
    checkpoint = tmp_path / "checkpoint"
    run(doubled(spark, broker, str(tmp_path / "failed")), broker, checkpoint, "once")
    assert (tmp_path / "failed").exists()
    assert committed(spark, broker, "once") == expected()
    assert broker.open_transactions() == []

    forget_commit(checkpoint)
    run(doubled(spark, broker).coalesce(1), broker, checkpoint, "once")
    assert committed(spark, broker, "once") == expected()

    # A backup from before the batch: the batch is planned anew.
    shutil.rmtree(checkpoint / "offsets")
    forget_commit(checkpoint)
    with pytest.raises(PySparkException, match="was written before, with other rows"):
        run(doubled(spark, broker), broker, checkpoint, "once")
    assert committed(spark, broker, "once") == expected()
    assert broker.open_transactions() == []


def test_a_checkpoint_may_be_in_any_file_system_of_the_driver(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    """Here in one that only Hadoop knows, by a setting of Spark."""
    broker.create_topic("mounted")
    (tmp_path / "checkpoint").mkdir()
    mounts: Any = spark.sparkContext._jsc
    mounts.hadoopConfiguration().set("fs.viewfs.mounttable.tests.link./mounted", tmp_path.as_uri())
    for _ in range(2):
        run(doubled(spark, broker), broker, "viewfs://tests/mounted/checkpoint", "mounted")
        forget_commit(tmp_path / "checkpoint")
    assert committed(spark, broker, "mounted") == expected()
    shutil.rmtree(tmp_path / "checkpoint" / "offsets")
    with pytest.raises(PySparkException, match="was written before, with other rows"):
        run(doubled(spark, broker), broker, "viewfs://tests/mounted/checkpoint", "mounted")


def test_foreach_batch_stores_rows_once_as_one_call(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    broker.create_topic("called")
    broker.create_topic("other")
    checkpoint = tmp_path / "checkpoint"
    options = {"bootstrap.servers": broker.bootstrap_servers, "checkpointLocation": str(checkpoint)}

    def store(rows: DataFrame, batch: int) -> None:
        write_once(rows.select("value"), batch, "called", {**options, "topic": "called"})
        write_once(rows.select("value"), batch, "other", {**options, "topic": "other"})

    def both_by_one_name(rows: DataFrame, batch: int) -> None:
        write_once(rows.select("value"), batch, "one-name", {**options, "topic": "other"})
        write_once(rows.select("value"), batch, "one-name", {**options, "topic": "called"})

    source = {"bootstrap.servers": broker.bootstrap_servers, "subscribe": "numbers"}
    frame = spark.readStream.format("tidelog").options(**source, startingOffsets="earliest").load()
    for _ in range(2):
        finish(frame.writeStream.foreachBatch(store).option("checkpointLocation", str(checkpoint)))
        forget_commit(checkpoint)
    numbers = sorted(str(number) for number in range(ROWS))
    assert committed(spark, broker, "called") == numbers
    assert committed(spark, broker, "other") == numbers
    writer = frame.writeStream.foreachBatch(both_by_one_name)
    with pytest.raises(PySparkException, match=r"give each write its own exactly_once\.name"):
        finish(writer.option("checkpointLocation", str(checkpoint)))
    assert broker.open_transactions() == []


def test_a_broker_that_does_not_permit_it_is_named_with_what_to_set(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    with running_broker(tmp_path / "data") as plain:
        plain.create_topic("refused")
        options = {"bootstrap.servers": plain.bootstrap_servers, "topic": "refused"}
        with pytest.raises(PySparkException, match=r"transaction\.two\.phase\.commit\.enable=true"):
            write_once(spark.range(1).selectExpr("'v' AS value"), 0, "refused", options)
