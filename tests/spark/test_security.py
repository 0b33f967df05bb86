"""Source and sink read and write as a user, and Spark keeps and shows nothing that is secret."""

import asyncio
import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from faults.process_tree import descendants
from tests.conformance.conftest import RunningBroker
from tests.conformance.scram_users import add_users
from tests.waiting import DEADLINE_SECONDS
from tidelog.cli.main import main
from tidelog.client import Producer
from tidelog.wire.cluster_config import cluster_from_options

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
    add_users(broker, PASSWORD, USER)
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


@contextmanager
def event_log(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Spark keeps its event log in the folder until the block ends."""
    jvm, context = spark.sparkContext._jvm, spark.sparkContext._jsc.sc()
    settings = context.getConf().set("spark.eventLog.compress", "false")
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        context.applicationId(), jvm.scala.Option.empty(), jvm.java.net.URI(folder.as_uri()), settings
    )
    listener.start()
    context.listenerBus().addToEventLogQueue(listener)
    yield
    context.listenerBus().waitUntilEmpty(int(DEADLINE_SECONDS * 1000))
    context.removeSparkListener(listener)
    listener.stop()


def what_the_ui_shows(spark: SparkSession) -> str:
    """The page of the live UI with all settings, and what its REST API says of settings and plans."""
    address, name = spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId
    application = f"{address}/api/v1/applications/{name}"
    pages = (f"{address}/environment/", f"{application}/environment", f"{application}/sql?length=1000")
    shown = ""
    for page in pages:
        with urllib.request.urlopen(page, timeout=DEADLINE_SECONDS) as answer:
            shown += answer.read().decode()
    return shown


def what_processes_show() -> bytes:
    """Arguments and environment of this process, of Spark's Java and of the Python in its workers."""
    shown = b""
    for pid in (os.getpid(), *descendants(os.getpid())):
        with suppress(OSError):  # It may end meanwhile.
            shown += Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
    return shown


def test_a_stream_of_a_user_shows_no_secret_and_leaves_none_in_its_checkpoint_and_event_log(
    spark: SparkSession, secured: RunningBroker, tmp_path: Path
) -> None:
    checkpoint, log = tmp_path / "checkpoint", tmp_path / "log"
    log.mkdir()
    stream = (
        spark.readStream.format("tidelog")
        .options(**options(secured))
        .option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .load()
    )
    with event_log(spark, log):
        query = (
            stream.writeStream.format("tidelog")
            .options(**options(secured))
            .option("topic", "out")
            .option("checkpointLocation", str(checkpoint))
            .start()
        )
        query.processAllAvailable()
        processes = what_processes_show()
        query.stop()
    read = spark.read.format("tidelog").options(**options(secured)).option("subscribe", "out").load()
    assert read.count() == 10
    plans, pages = what_spark_shows(spark), what_the_ui_shows(spark)
    assert "tidelog" in plans
    assert "spark.app.id" in pages
    assert b"pyspark" in processes
    assert PASSWORD not in f"{plans}{pages}{read._jdf.queryExecution().toString()}{query.lastProgress}"
    assert PASSWORD.encode() not in processes
    for folder in (checkpoint, log):
        kept = [path for path in folder.rglob("*") if path.is_file()]
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
