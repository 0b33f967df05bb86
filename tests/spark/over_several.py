"""Spark over several brokers: sources and sinks are exact while brokers are killed in turn, and the segment
files of all data folders give what the wire gives.

`make spark` runs it: it starts three brokers, and three over etcd.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from tests.several.served import SEVERAL
from tests.spark.brokers import RunningCluster, running_cluster
from tests.unit.pipeline.batches import make_batch
from tests.waiting import wait_for
from tidelog.pipeline.data_source import TidelogDataSource
from tidelog.pipeline.schema import SCHEMA
from tidelog.pipeline.source.micro_batches import reported_offsets
from tidelog.pipeline.source.reading import PiecePartition

TIME = 1_700_000_000_000
PARTITIONS = 6
BATCH, BATCHES = 10, 20
# Offsets in a micro-batch: a round takes three of them.
LIMIT = PARTITIONS * BATCH * BATCHES // 3
_SECONDS = 600.0


@pytest.fixture(scope="module", params=SEVERAL)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningCluster]:
    settings = {"transaction.two.phase.commit.enable": "true"}
    with running_cluster(request.param, tmp_path_factory.mktemp("cluster"), **settings) as cluster:
        yield cluster


def fill(running: RunningCluster, topic: str, number: int = 0) -> None:
    """One more round of rows in each partition. Each value is there once."""
    first = number * BATCHES * BATCH
    for partition in range(PARTITIONS):
        batches = [
            make_batch((TIME + n, None, b"%d:%d" % (partition, n), ()) for n in range(base, base + BATCH))
            for base in range(first, first + BATCHES * BATCH, BATCH)
        ]
        running.append(topic, partition, batches)


def values(rounds: int) -> list[str]:
    count = rounds * BATCHES * BATCH
    return sorted(f"{partition}:{n}" for partition in range(PARTITIONS) for n in range(count))


def read(spark: SparkSession, topic: str, **options: str) -> DataFrame:
    return spark.read.format("tidelog").options(subscribe=topic, **options).load()


def stored(spark: SparkSession, running: RunningCluster, topic: str) -> list[str]:
    """What a reader of committed records gets."""
    rows = running.records(spark, topic, **{"isolation.level": "read_committed"})
    return sorted(row.value.decode() for row in rows)


def tasks(**options: str) -> list[Any]:
    return list(TidelogDataSource({"subscribe": "files", **options}).reader(SCHEMA).partitions())


@pytest.mark.parametrize("delivery", ["exactly_once", "mirror"])
@pytest.mark.parametrize("source", ["wire", "files"])
def test_a_stream_is_exact_while_brokers_are_killed_in_turn(
    spark: SparkSession, running: RunningCluster, tmp_path: Path, source: str, delivery: str
) -> None:
    topic, copy = f"from-{source}-{delivery}", f"to-{source}-{delivery}"
    for name in (topic, copy):
        running.create_topic(name, PARTITIONS)
    servers = {"bootstrap.servers": running.bootstrap_servers}
    given = servers | {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(LIMIT)}
    if source == "files":
        given["read.path"] = ",".join(map(str, running.cluster.data_dirs))
    rows = spark.readStream.format("tidelog").options(**given).load()
    if delivery == "mirror":
        identity = {"source_topic": "topic", "source_partition": "partition", "source_offset": "offset"}
        rows = rows.select("value", "partition", *(f.col(old).alias(new) for new, old in identity.items()))
    else:
        rows = rows.repartition(3).select("value")
    writer = rows.writeStream.format("tidelog").options(**servers, topic=copy, delivery=delivery)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        for number in range(running.cluster.count):
            fill(running, topic, number)
            running.run(running.kill_and_start(number))
            await_offsets(query, (number + 1) * PARTITIONS * BATCHES * BATCH)
    finally:
        query.stop()
    assert stored(spark, running, copy) == values(running.cluster.count)
    assert running.open_transactions() == []


def await_offsets(query: StreamingQuery, count: int) -> None:
    """Wait until the stream has read so many."""

    def has_read() -> bool:
        if (error := query.exception()) is not None:
            raise error
        offsets = reported_offsets(query.lastProgress, "endOffset")
        return offsets is not None and sum(offsets.values()) == count

    wait_for(has_read, f"{count} offsets to be read", _SECONDS)


def test_the_files_of_all_folders_give_what_the_wire_gives(
    spark: SparkSession, running: RunningCluster
) -> None:
    """The last test of the cluster: it stops it."""
    running.create_topic("files", PARTITIONS)
    fill(running, "files")
    servers = {"bootstrap.servers": running.bootstrap_servers}
    wire = read(spark, "files", **servers).orderBy("partition", "offset").toArrow()
    folders = list(map(str, running.cluster.data_dirs))
    for given in (folders, folders[:1]):
        files = servers | {"read.path": ",".join(given), "isolation.level": "read_committed"}
        assert read(spark, "files", **files).orderBy("partition", "offset").toArrow().equals(wire)
        kinds = {isinstance(task, PiecePartition) for task in tasks(**files)}
        assert kinds == ({True} if given == folders else {True, False})
    running.run(running.cluster.stop())
    stopped = read(spark, "files", **{"read.path": ",".join(folders)})
    assert stopped.orderBy("partition", "offset").toArrow().equals(wire)
