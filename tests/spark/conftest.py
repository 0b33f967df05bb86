"""One Spark session for all Spark tests: small, quiet, and started once. Spark's own Kafka connector is in it
where it can be had."""

import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bench.targets.maven import FetchError
from bench.targets.spark import JARS, PACKAGES, resolve_connector
from tests.spark.brokers import RunningBroker, running_broker
from tests.spark.forked_python import served
from tests.spark.small import SMALL
from tidelog.pipeline.spark.spark_session import start_session

# Spark plans with the one, and runs tasks with the other.
_PYTHONS = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")


@pytest.fixture(scope="session")
def connector() -> Mapping[str, str]:
    """The settings of Spark's own Kafka connector; where it cannot be had, the summary says why."""
    try:
        return resolve_connector(os.environ)
    except FetchError as error:
        how = f"name its jars in {JARS} or its packages in {PACKAGES}"
        warnings.warn(
            f"Spark's own Kafka connector and Java's client are not tried: {error}; {how}", stacklevel=1
        )
        return {}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, connector: Mapping[str, str]) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        **SMALL,
        **connector,
        # Else Spark plans each query again behind each shuffle, as it does in the job of `test_wheel`.
        "spark.sql.adaptive.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.local.dir": str(folder),
        # `test_security` reads all that is kept of queries, in the user interface too.
        "spark.sql.ui.retainedExecutions": "50",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    log = folder / "driver.log"
    with served(folder) as python, pytest.MonkeyPatch.context() as patch:
        for name in _PYTHONS:
            patch.setenv(name, str(python))
        # A task is tried twice.
        session = start_session("tests", master="local[2,2]", settings=settings, driver_log=log)
        patch.undo()
        yield session
        session.stop()


@pytest.fixture
def connect_url(spark: SparkSession) -> Iterator[str]:
    """Spark Connect in the tests' Spark: another server would take as long to start as all of the rest."""
    jvm: Any = spark._jvm
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    service.start(spark._jsc.sc())
    running = getattr(getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    yield f"sc://127.0.0.1:{running.localPort()}"
    nothing = jvm.scala.Option.empty()
    service.stop(nothing, nothing)


@pytest.fixture
def shared_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs run in the tests' session, and leave it to them."""
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker
