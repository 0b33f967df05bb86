"""A mirror is exact though drivers and an executor are killed with kill -9, whatever the tasks' layout then.

The judges are the audit and a count by a foreign client, which knows neither Spark nor our decoder.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from pyspark.sql import SparkSession

from demo.shipment import Site, open_site
from tests.processes import kill_tree
from tests.spark.brokers import RunningBroker
from tests.spark.mirror_driver import COMMITTED, mirror
from tests.spark.small import JAVA_OPTIONS
from tests.spark.standalone import standalone_cluster
from tests.unit.pipeline.batches import make_batch
from tests.waiting import wait_for
from tidelog.client.cluster_config import ClusterConfig
from tidelog.pipeline.jobs.audit import run as audit
from tidelog.pipeline.jobs.audit_settings import AuditSettings
from tidelog.pipeline.sink.sending import LoopThread

TIME = 1_700_000_000_000
PARTITIONS = 2
RECORDS = 600
# Offsets in the first batch; the second has the rest.
LIMIT = 800
_SECONDS = 1200


class Place:
    """A topic with records, its empty copy to be, and a proxy between all clients and the broker."""

    def __init__(self, site: Site, broker: RunningBroker, folder: Path) -> None:
        self.site, self.broker, self.folder = site, broker, folder
        self.checkpoint = folder / "checkpoint"
        for name in ("original", "copy"):
            broker.create_topic(name, PARTITIONS)
        for partition in range(PARTITIONS):
            batches = [
                make_batch((TIME + n, None, b"%d:%d" % (partition, n), ()) for n in range(base, base + 10))
                for base in range(0, RECORDS, 10)
            ]
            broker.append("original", partition, batches)

    def orders(self, **given: Any) -> dict[str, Any]:
        """What `tests.spark.mirror_driver` takes."""
        values = {"master": "local[2]", "tasks": None, "limit": LIMIT, "stop_at": None} | given
        values |= {"source": "original", "target": "copy", "checkpoint": str(self.checkpoint)}
        return values | {"bootstrap_servers": self.broker.bootstrap_servers}

    def start_driver(self, **given: Any) -> "Driver":
        return Driver(["tests.spark.mirror_driver", json.dumps(self.orders(**given))], self.folder)

    def start_job(self) -> "Driver":
        """`tidelog pipeline mirror`, as people run it."""
        servers = self.broker.bootstrap_servers
        arguments = ["tidelog", "pipeline", "mirror", "original", "-b", servers, "--rename", "original=copy"]
        arguments += ["--to-bootstrap-servers", servers, "--checkpoint", str(self.checkpoint)]
        arguments += ["--max-offsets-per-trigger", str(LIMIT), "--master", "local[2]"]
        return Driver(arguments, self.folder)

    def hold_acknowledgements(self) -> None:
        """From now on batches are stored, but nobody hears of it."""
        self._on_loop(self.site.proxy.hold_responses)

    def release_acknowledgements(self) -> None:
        self._on_loop(self.site.proxy.heal)

    def has_unacknowledged(self) -> bool:
        """Whether batches of both partitions are stored and nobody heard of it."""
        return self.site.proxy.answered() >= PARTITIONS

    def stored(self) -> list[list[str]]:
        """The copy's values by partition, as kafka-python reads them."""
        consumer = KafkaConsumer(bootstrap_servers=self.broker.bootstrap_servers, api_version=(2, 6))
        try:
            places = [TopicPartition("copy", number) for number in range(PARTITIONS)]
            consumer.assign(places)
            consumer.seek_to_beginning()
            ends = consumer.end_offsets(places)
            values: list[list[str]] = [[] for _ in places]
            while any(consumer.position(place) < ends[place] for place in places):
                for place, records in consumer.poll(timeout_ms=1000).items():
                    values[place.partition] += [record.value.decode() for record in records]
            return values
        finally:
            consumer.close()

    def committed_batches(self) -> set[str]:
        return {path.name for path in (self.checkpoint / "commits").glob("[0-9]*")}

    def check(self, spark: SparkSession) -> None:
        """Nothing is missing, nothing twice, all in order."""
        assert self.stored() == [[f"{each}:{n}" for n in range(RECORDS)] for each in range(PARTITIONS)]
        report = audit(
            spark, AuditSettings(topics=("copy",), cluster=ClusterConfig(self.broker.bootstrap_servers))
        )
        assert report.is_clean
        assert (report.records, report.unidentified) == (PARTITIONS * RECORDS, 0)

    def slow_down(self) -> None:
        """From now on a batch of the mirror outlives several looks at its progress."""
        self.site.proxy.delay_ms = 300.0

    def _on_loop(self, action: Any) -> None:
        async def act() -> None:
            action()

        self.broker.run(act())


class Driver:
    """A process that mirrors, with the JVM and the Python workers below it."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self._log = folder / "driver.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments], stdout=subprocess.PIPE, stderr=log
            )

    def kill(self) -> None:
        kill_tree(self.process.pid)
        self.process.wait(_SECONDS)

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Poll until the condition is true, as long as the driver lives."""
        wait_for(lambda: condition() or self.process.poll() is not None, what, _SECONDS)
        assert self.process.poll() is None, self._log.read_text()[-4000:]

    def finish(self) -> dict[str, Any]:
        """Wait until it is through; what it printed."""
        output, _ = self.process.communicate(timeout=_SECONDS)
        assert self.process.returncode == 0, self._log.read_text()[-4000:]
        report: dict[str, Any] = json.loads(output.splitlines()[-1])
        return report


@contextmanager
def started(driver: Driver) -> Iterator[Driver]:
    """Kill it at the end, whatever happened."""
    try:
        yield driver
    finally:
        driver.kill()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with LoopThread() as loop:
        opening = open_site(tmp_path / "data")
        site = loop.run(opening.__aenter__())
        try:
            yield Place(site, RunningBroker(site.broker, loop), tmp_path)
        finally:
            loop.run(opening.__aexit__(None, None, None))


def test_a_killed_executor_and_a_killed_driver_lose_and_double_nothing(
    spark: SparkSession, place: Place
) -> None:
    # One of two executors dies in the middle of the batch, and the driver once the batch is committed by the
    # sink alone.
    with standalone_cluster(place.folder, workers=2) as cluster:
        place.hold_acknowledgements()
        with started(place.start_driver(master=cluster.master, stop_at=0)) as driver:
            driver.wait_for(place.has_unacknowledged, "stored batches")
            executors = cluster.executors()
            assert len(executors) == 2
            kill_tree(executors[0])
            assert 0 < sum(map(len, place.stored())) < LIMIT
            place.release_acknowledgements()
            driver.wait_for((place.checkpoint / COMMITTED).exists, "the sink's commit")
            driver.kill()
    assert place.committed_batches() == set()
    assert sum(map(len, place.stored())) == LIMIT

    # The same batch again, with one task in place of two; all of its rows are stored already.
    assert mirror(spark, place.orders(tasks=1)) == 2
    place.check(spark)


def test_a_mirror_job_that_is_killed_in_a_batch_ends_exact_without_help(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", JAVA_OPTIONS)
    place.hold_acknowledgements()
    with started(place.start_job()) as job:
        job.wait_for(place.has_unacknowledged, "stored batches")
        job.kill()
    place.release_acknowledgements()
    place.slow_down()
    assert "1" not in place.committed_batches()
    with started(place.start_job()) as job:
        job.finish()
    assert place.committed_batches() == {"0", "1"}
    place.check(spark)
