"""A stream over `format("tidelog")` reads every record once, in bounded batches, across restarts."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.brokers import RunningBroker
from tests.spark.progress import batches, sizes
from tests.unit.pipeline.batches import make_batch
from tests.waiting import DEADLINE_SECONDS, wait_for
from tidelog.client import Admin, TopicPartition
from tidelog.pipeline.source.micro_batches import offsets_behind_latest

TIME = 1_700_000_000_000


def append(broker: RunningBroker, topic: str, first: int, count: int) -> None:
    """Records whose value is a number, ten to a batch, a second apart."""
    for base in range(first, first + count, 10):
        rows = [(TIME + n * 1000, None, str(n).encode(), ()) for n in range(base, base + 10)]
        broker.append(topic, 0, [make_batch(rows)])


class Copy:
    """A stream into Parquet with a checkpoint, run to the end of what is there each time."""

    def __init__(self, spark: SparkSession, broker: RunningBroker, folder: Path, **options: str) -> None:
        self._spark = spark
        self._target, self._checkpoint = str(folder / "rows"), str(folder / "checkpoint")
        self._options = {
            "bootstrap.servers": broker.bootstrap_servers,
            "startingOffsets": "earliest",
        } | options
        self.behind: list[float | None] = []

    def run(self, **options: str) -> list[int]:
        """The sizes of the micro-batches that were run."""
        frame = self._spark.readStream.format("tidelog").options(**(self._options | options)).load()
        writer = frame.writeStream.option("checkpointLocation", self._checkpoint).trigger(availableNow=True)
        query = writer.start(self._target, format="parquet")
        query.awaitTermination()
        self.behind = [offsets_behind_latest(each).get("maxOffsetsBehindLatest") for each in batches(query)]
        return sizes(query)

    def numbers(self) -> list[int]:
        rows = self._spark.read.parquet(self._target).selectExpr("cast(cast(value as string) as int) n")
        return sorted(row.n for row in rows.collect())


def test_batches_keep_to_the_limit_and_a_restart_goes_on_where_the_last_ended_with_the_topics_that_came(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    """A topic that fits the pattern only later is read from its beginning."""
    broker.create_topic("limited-1")
    append(broker, "limited-1", 0, 100)
    copy = Copy(spark, broker, tmp_path, subscribePattern="limited-.*", maxOffsetsPerTrigger="40")
    assert copy.run() == [40, 40, 20]
    assert copy.behind == [60, 20, 0]
    append(broker, "limited-1", 100, 50)
    broker.create_topic("limited-2")
    append(broker, "limited-2", 150, 20)
    assert copy.run(maxOffsetsPerTrigger="1000", minPartitions="3") == [70]
    assert copy.numbers() == list(range(170))


def test_a_group_shows_how_far_the_stream_is(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    broker.create_topic("shown")
    append(broker, "shown", 0, 50)
    options = {"subscribe": "shown", "maxOffsetsPerTrigger": "20", "commit.group.id": "lag-tools"}
    assert Copy(spark, broker, tmp_path, **options).run() == [20, 20, 10]

    async def committed() -> dict[TopicPartition, int]:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            return {at: each.offset for at, each in (await admin.groups.offsets("lag-tools")).items()}

    assert broker.run(committed()) == {TopicPartition("shown", 0): 50}


def test_offsets_that_have_gone_end_the_stream_or_are_skipped(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    broker.create_topic("gone")
    append(broker, "gone", 0, 20)
    copy = Copy(spark, broker, tmp_path, subscribe="gone")
    copy.run()
    append(broker, "gone", 20, 40)
    broker.delete_records("gone", 0, 40)
    with pytest.raises(StreamingQueryException, match="offsets 20 to 39 are gone"):
        copy.run()
    copy.run(failOnDataLoss="false")
    assert copy.numbers() == [*range(20), *range(40, 60)]


def test_a_topic_that_was_deleted_and_created_again_is_another_topic(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    broker.create_topic("again")
    append(broker, "again", 0, 20)
    copy = Copy(spark, broker, tmp_path, subscribe="again")
    copy.run()
    broker.delete_topic("again")
    broker.create_topic("again")
    append(broker, "again", 100, 50)
    with pytest.raises(StreamingQueryException, match="topic again was deleted and created again"):
        copy.run()
    copy.run(failOnDataLoss="false")
    assert copy.numbers() == [*range(20), *range(100, 150)]


def test_wrong_options_are_refused_with_our_message(spark: SparkSession, broker: RunningBroker) -> None:
    stream = spark.readStream.format("tidelog").option("bootstrap.servers", broker.bootstrap_servers)
    with pytest.raises(PySparkException, match="unknown option 'maxoffsets'"):
        stream.option("subscribe", "limited").option("maxOffsets", "5").load()
    frame = spark.readStream.format("tidelog").options(
        subscribe="limited", endingOffsets="latest", **{"bootstrap.servers": broker.bootstrap_servers}
    )
    query = frame.load().writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException, match="a stream has no end"):
        query.awaitTermination()


def test_a_batch_waits_for_enough_records(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> None:
    broker.create_topic("enough")
    append(broker, "enough", 0, 10)
    frame = spark.readStream.format("tidelog").options(
        subscribe="enough", startingOffsets="earliest", minOffsetsPerTrigger="25", maxTriggerDelay="1h"
    )
    rows = frame.option("bootstrap.servers", broker.bootstrap_servers).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        wait_for(lambda: sizes(query) == [10], "a first batch", DEADLINE_SECONDS)
        append(broker, "enough", 10, 20)
        append(broker, "enough", 30, 10)
        wait_for(lambda: sum(sizes(query)) == 40, "a batch with all that waited", DEADLINE_SECONDS)
        assert sizes(query) == [10, 30]
    finally:
        query.stop()


def test_timestamps_bound_a_batch_read(spark: SparkSession, broker: RunningBroker) -> None:
    broker.create_topic("times")
    append(broker, "times", 0, 60)

    def offsets(**options: str) -> list[int]:
        given = {"bootstrap.servers": broker.bootstrap_servers, "subscribe": "times"} | options
        frame: DataFrame = spark.read.format("tidelog").options(**given).load()
        return sorted(row.offset for row in frame.select("offset").collect())

    late = str(TIME + 45_000)
    assert offsets(startingTimestamp=late) == list(range(45, 60))
    assert offsets(endingOffsetsByTimestamp=f'{{"times":{{"0":{late}}}}}') == list(range(45))
    assert offsets(endingTimestamp=str(TIME + 10**9)) == list(range(60))
    with pytest.raises(PySparkException, match="no record at or after"):
        offsets(startingTimestamp=str(TIME + 10**9))
