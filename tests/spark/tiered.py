"""Spark over a topic whose old segments are only in remote storage: every record once, at both isolation
levels, read from the objects and through the broker, in batches and as a stream.

`make spark` runs it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from faults.wire import Wire
from tests.buckets import bucket_server
from tests.spark.brokers import RunningBroker, running_broker
from tests.waiting import DEADLINE_SECONDS, wait_for
from tidelog.client import Producer
from tidelog.pipeline.data_source import TidelogDataSource
from tidelog.pipeline.schema import SCHEMA
from tidelog.pipeline.source.reading import PiecePartition

# Spark's workers have the environment in which Spark was started.
os.environ |= {"AWS_ACCESS_KEY_ID": "anyone", "AWS_SECRET_ACCESS_KEY": "anything"}
TRANSACTIONS, EACH = 120, 10
QUICK = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "50",
    "log.retention.check.interval.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "50",
}
TIERED = {"segment.bytes": "20000", "remote.storage.enable": "true", "local.retention.bytes": "40000"}
EARLIEST_LOCAL = -4


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The settings of a store, which Spark's options have too."""
    if request.param == "folder":
        yield {"remote.storage.url": f"file://{tmp_path}/remote"}
        return
    with bucket_server() as endpoint:
        yield {"remote.storage.url": "s3://bucket/spark", "remote.storage.endpoint": endpoint}


async def make_topic(port: int) -> None:
    async with Wire.connected(port) as wire:
        assert await wire.create_topic("t", 1, TIERED) == 0


async def fill(address: str) -> None:
    """Transactions, every third of them aborted, which are the records whose value ends with !."""
    async with Producer(bootstrap_servers=address, transactional_id="x") as producer:
        for number in range(TRANSACTIONS):
            is_aborted = number % 3 == 2
            await producer.begin_transaction()
            for value in range(number * EACH, (number + 1) * EACH):
                text = b"%06d" % value + b"x" * 100 + b"!" * is_aborted
                _ = await producer.send("t", text, partition=0)
            await producer.flush()  # What was not sent when a transaction is aborted never is.
            await (producer.abort_transaction() if is_aborted else producer.commit_transaction())


async def is_remote(port: int) -> bool:
    """Whether half of the log has left the disk."""
    async with Wire.connected(port) as wire:
        _, offset = await wire.offset_at("t", 0, EARLIEST_LOCAL)
    return offset > TRANSACTIONS * (EACH + 1) // 2


@pytest.fixture
def broker(tmp_path: Path, place: dict[str, str]) -> Iterator[RunningBroker]:
    with running_broker(tmp_path / "broker", **QUICK, **place) as broker:
        port = broker.process.port
        broker.run(make_topic(port))
        broker.run(fill(broker.bootstrap_servers))
        wait_for(lambda: broker.run(is_remote(port)), "remote segments", DEADLINE_SECONDS)
        yield broker


def numbers(frame: DataFrame) -> list[int]:
    rows = frame.selectExpr("cast(substring(cast(value as string), 1, 6) as int) n").collect()
    return sorted(row.n for row in rows)


def test_each_record_is_read_once_from_the_objects_and_through_the_broker(
    spark: SparkSession, broker: RunningBroker, place: dict[str, str], tmp_path: Path
) -> None:
    everything = list(range(TRANSACTIONS * EACH))
    committed = [number for number in everything if number // EACH % 3 != 2]
    given = {"bootstrap.servers": broker.bootstrap_servers, "subscribe": "t", "startingOffsets": "earliest"}
    tasks = TidelogDataSource(given | place).reader(SCHEMA).partitions()
    assert sum(isinstance(task, PiecePartition) for task in tasks) > 5
    for level, wanted in (("read_uncommitted", everything), ("read_committed", committed)):
        for way, more in (("objects", place), ("broker", {})):
            options = given | more | {"isolation.level": level}
            assert numbers(spark.read.format("tidelog").options(**options).load()) == wanted
            folder = str(tmp_path / f"{level}-{way}")
            stream = spark.readStream.format("tidelog").options(**options, maxOffsetsPerTrigger="500").load()
            writer = stream.writeStream.option("checkpointLocation", f"{folder}-checkpoint")
            query = writer.trigger(availableNow=True).start(folder, format="parquet")
            query.awaitTermination()
            assert numbers(spark.read.parquet(folder)) == wanted
