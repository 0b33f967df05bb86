"""Source and sink read and write as a user, and Spark keeps and shows nothing that is secret."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.conformance.conftest import RunningBroker
from tidelog.cli.main import main
from tidelog.client import Producer
from tidelog.client.cluster_config import cluster_from_options
from tidelog.protocol.scram import ScramMechanism, credential_of, salted_password

USER, PASSWORD = "alice", "hunter2"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def options(secured: RunningBroker, password: str = PASSWORD) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": secured.address,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{MODULE} required username="{USER}" password="{password}";',
    }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path_factory.mktemp("secured"), listeners=("SASL_PLAINTEXT://127.0.0.1:0",))
    mechanism = ScramMechanism.SCRAM_SHA_512
    salted = salted_password(mechanism, PASSWORD, b"salt", 4096)
    credential = credential_of(mechanism, salted, b"salt", 4096)
    broker.run(broker.broker.services.users.change(USER, {mechanism: credential}))
    cluster = cluster_from_options(
        {name.removeprefix("kafka."): text for name, text in options(broker).items()}
    )

    async def fill() -> None:
        assert cluster is not None
        async with Producer(cluster=cluster) as producer:
            for number in range(10):
                await producer.send("in", b"%d" % number)

    asyncio.run(fill())
    yield broker
    broker.stop()


def what_spark_shows(spark: SparkSession) -> str:
    """The descriptions of all plans so far, which the UI shows and event logs keep."""
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    each = (executions.apply(number) for number in range(executions.size()))
    return "".join(f"{one.description()}{one.details()}{one.physicalPlanDescription()}" for one in each)


def test_a_stream_of_a_user_leaves_no_secret_in_its_checkpoint_and_plans(
    spark: SparkSession, secured: RunningBroker, tmp_path: Path
) -> None:
    stream = (
        spark.readStream.format("tidelog")
        .options(**options(secured))
        .option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        stream.writeStream.format("tidelog")
        .options(**options(secured))
        .option("topic", "out")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    read = spark.read.format("tidelog").options(**options(secured)).option("subscribe", "out").load()
    assert read.count() == 10
    plans = what_spark_shows(spark)
    assert "tidelog" in plans
    shown = f"{plans}{read._jdf.queryExecution().toString()}{query.lastProgress}"
    assert PASSWORD not in shown
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    assert [path for path in kept if PASSWORD.encode() in path.read_bytes()] == []


def test_a_job_takes_its_user_from_a_file(
    spark: SparkSession,
    secured: RunningBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # The command runs in the tests' session, and leaves it to them.
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    file = tmp_path / "alice.properties"
    properties = (f"{name.removeprefix('kafka.')}={text}\n" for name, text in options(secured).items())
    file.write_text("".join(properties))
    assert main(["pipeline", "audit", "in", "--command-config", str(file)]) == 0
    shown = capfd.readouterr()
    assert json.loads(shown.out.splitlines()[-1])["records"] == 10
    assert PASSWORD not in f"{shown}{what_spark_shows(spark)}"


def test_a_wrong_password_ends_a_read_and_is_not_shown(spark: SparkSession, secured: RunningBroker) -> None:
    rows = spark.read.format("tidelog").options(**options(secured, "wrongpass")).option("subscribe", "in")
    with pytest.raises(PySparkException, match="refuses the authentication of user 'alice'") as caught:
        rows.load().count()
    assert "wrongpass" not in str(caught.value)
