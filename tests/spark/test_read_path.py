"""`read.path`: the folder of a running broker gives the same rows as its wire, and a stopped one's too."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.brokers import RunningBroker, running_broker
from tests.spark.progress import sizes
from tests.unit.pipeline.batches import make_batch

TIME = 1_700_000_000_000
BATCHES = 60
RECORDS = 50


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with running_broker(tmp_path / "broker") as broker:
        broker.create_topic("files", 2)
        for partition in (0, 1):
            broker.append("files", partition, batches(partition))
        yield broker


def batches(seed: int) -> list[bytearray]:
    """Batches of 50 records of about 200 bytes; two of those exceed the index interval."""
    return [
        make_batch(
            (TIME + n, f"{n}".encode(), bytes([seed, first]) * 100, (("n", b"1"),)) for n in range(RECORDS)
        )
        for first in range(BATCHES)
    ]


def read(spark: SparkSession, **options: str) -> DataFrame:
    return spark.read.format("tidelog").options(subscribe="files", **options).load()


def test_files_of_a_running_broker_give_what_its_wire_gives(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    files = servers | {"read.path": str(broker.process.data_dir)}
    wire = read(spark, **servers).orderBy("partition", "offset").toArrow()
    cut = read(spark, minPartitions="7", **files)
    assert cut.rdd.getNumPartitions() >= 7
    assert cut.orderBy("partition", "offset").toArrow().equals(wire)
    committed = read(spark, **servers, **{"isolation.level": "read_committed"})
    assert committed.orderBy("partition", "offset").toArrow().equals(wire)
    with pytest.raises(PySparkException, match="what is committed is not known"):
        read(spark, **{"read.path": files["read.path"]}).count()

    stream = spark.readStream.format("tidelog").options(
        subscribe="files", startingOffsets="earliest", **files
    )
    limited = stream.options(maxOffsetsPerTrigger="2500").load()
    writer = limited.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "rows"), format="parquet")
    query.awaitTermination()
    assert sizes(query) == [2500, 2500, 1000]
    written = spark.read.parquet(str(tmp_path / "rows")).orderBy("partition", "offset").toArrow()
    assert written.equals(wire)

    broker.run(broker.process.terminate())
    stopped = read(spark, **{"read.path": files["read.path"]})
    assert stopped.orderBy("partition", "offset").toArrow().equals(wire)
