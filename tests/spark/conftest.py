"""One Spark session for all Spark tests: small, quiet, and started once."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from pipeline.session import start_session

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    settings = SETTINGS | {
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    session = start_session("tests", master="local[2,4]", settings=settings, driver_log=folder / "driver.log")
    yield session
    session.stop()
