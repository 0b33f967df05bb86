"""The source and the sink through Spark Connect: the client's session has no Java of its own.

`make spark` runs it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.connect.session import SparkSession

from tests.spark.brokers import RunningBroker
from tests.spark.test_exactly_once import ROWS, broker, committed, finish, forget_commit
from tidelog.pipeline.data_source import TidelogDataSource
from tidelog.pipeline.exactly_once.foreach_batch import write_once

__all__ = ["broker"]

_NUMBERS = sorted(str(number) for number in range(ROWS))


@pytest.fixture
def remote(connect_url: str) -> Iterator[SparkSession]:
    session = SparkSession.builder.remote(connect_url).create()
    session.dataSource.register(TidelogDataSource)
    yield session
    session.stop()


def stream(remote: SparkSession, broker: RunningBroker) -> DataFrame:
    options = {"bootstrap.servers": broker.bootstrap_servers, "subscribe": "numbers"}
    frame = remote.readStream.format("tidelog").options(**options, startingOffsets="earliest").load()
    positions = [f"{name} AS source_{name}" for name in ("topic", "partition", "offset")]
    return frame.selectExpr("value", *positions)


def test_a_batch_is_read_and_written(remote: SparkSession, broker: RunningBroker) -> None:
    broker.create_topic("written")
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    frame = remote.read.format("tidelog").options(**servers, subscribe="numbers").load()
    writer = frame.select("key", "value").write.format("tidelog").mode("append")
    writer.options(**servers, topic="written").save()
    assert committed(remote, broker, "written") == _NUMBERS


@pytest.mark.parametrize("delivery", ["mirror", "exactly_once"])
def test_a_stream_that_repeats_a_batch_stores_its_rows_once(
    delivery: str, remote: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    topic = f"streamed-{delivery}"
    broker.create_topic(topic, partitions=2)
    options = {"bootstrap.servers": broker.bootstrap_servers, "topic": topic, "delivery": delivery}
    for _ in range(2):
        writer = stream(remote, broker).writeStream.format("tidelog").options(**options)
        finish(writer.option("checkpointLocation", str(tmp_path)))
        forget_commit(tmp_path)
    assert committed(remote, broker, topic) == _NUMBERS


def test_write_once_runs_in_the_servers_foreach_batch(
    remote: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    broker.create_topic("called-remotely")
    options = {"bootstrap.servers": broker.bootstrap_servers, "topic": "called-remotely"}
    options["checkpointLocation"] = str(tmp_path)

    def store(rows: DataFrame, batch: int) -> None:
        write_once(rows.select("value"), batch, "remote", options)

    for _ in range(2):
        writer = stream(remote, broker).writeStream.foreachBatch(store)
        finish(writer.option("checkpointLocation", str(tmp_path)))
        forget_commit(tmp_path)
    assert committed(remote, broker, "called-remotely") == _NUMBERS
