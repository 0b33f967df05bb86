"""What the bench times on Spark is the whole work, and a wrong result is no result."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.loads.spark_load import Worker, WorkError
from tests.spark.brokers import RunningBroker, running_broker
from tests.unit.pipeline.batches import make_batch

RECORDS = 400


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        broker.create_topic("timed")
        broker.append("timed", 0, [make_batch([(1, None, b"v", ())] * 100) for _ in range(RECORDS // 100)])
        yield broker


def test_reads_and_copies_are_counted(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> None:
    worker = Worker(spark, broker.bootstrap_servers, tmp_path)
    assert worker.batch("timed", RECORDS) > 0
    with pytest.raises(WorkError, match="401 records were to be read"):
        worker.batch("timed", RECORDS + 1)
    broker.create_topic("copy")
    assert worker.sink("timed", "copy", RECORDS, "at_least_once") > 0
    with pytest.raises(WorkError, match="copy holds 800"):
        worker.sink("timed", "copy", RECORDS, "at_least_once")
