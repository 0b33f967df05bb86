"""A mirror is exact though its driver is killed with kill -9.

The judges are the audit and a count by a foreign client, which knows neither Spark nor our decoder.
`kills_on_a_cluster` kills an executor too. `make spark` runs both.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from pyspark.sql import SparkSession

from demo.shipment import Site, open_site
from faults.process_tree import descendants, kill_tree
from tests.spark.brokers import RunningBroker
from tests.spark.small import SMALL, as_flags
from tests.unit.pipeline.batches import make_batch
from tests.waiting import wait_for
from tidelog.client import ClusterConfig
from tidelog.pipeline.jobs import mirror
from tidelog.pipeline.jobs.audit import run as audit
from tidelog.pipeline.jobs.audit_settings import AuditSettings
from tidelog.pipeline.jobs.job import JobProgress
from tidelog.pipeline.jobs.mirror_settings import MirrorSettings
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

    def settings(self) -> MirrorSettings:
        return MirrorSettings(
            checkpoint=str(self.checkpoint),
            cluster=ClusterConfig(self.broker.bootstrap_servers),
            topics=("original",),
            rename=("original=copy",),
            max_offsets_per_trigger=LIMIT,
        )

    def start_job(self, *more: str, module: str = "tidelog", **environment: str) -> "Driver":
        """`tidelog pipeline mirror`, as people run it."""
        servers = self.broker.bootstrap_servers
        arguments = [module, "pipeline", "mirror", "original", "-b", servers, "--rename", "original=copy"]
        arguments += ["--checkpoint", str(self.checkpoint), "--max-offsets-per-trigger", str(LIMIT), *more]
        return Driver(arguments, self.folder, environment)

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

    def _on_loop(self, action: Any) -> None:
        async def act() -> None:
            action()

        self.broker.run(act())


class Driver:
    """A process that mirrors, with the JVM and the Python workers below it."""

    def __init__(self, arguments: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._log = folder / "driver.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdout=log,
                stderr=log,
                env=os.environ | environment,
            )

    def said(self) -> str:
        """What it printed for people so far, with Spark's log."""
        return self._log.read_text()

    def kill(self) -> None:
        kill_tree(self.process.pid)
        self.process.wait(_SECONDS)

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Poll until the condition is true, as long as the driver lives."""
        wait_for(lambda: condition() or self.process.poll() is not None, what, _SECONDS)
        assert self.process.poll() is None, self.said()[-4000:]


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


def test_a_mirror_job_that_is_killed_in_a_batch_ends_exact_without_help(
    spark: SparkSession, place: Place
) -> None:
    place.hold_acknowledgements()
    with started(place.start_job("--master", "local[2]", *as_flags(SMALL))) as job:
        job.wait_for(place.has_unacknowledged, "stored batches")
        job.kill()
    place.release_acknowledgements()
    assert "1" not in place.committed_batches()
    heard: list[JobProgress] = []
    mirror.run(spark, place.settings(), heard.append)
    assert len(heard) > 1
    assert place.committed_batches() == {"0", "1"}
    place.check(spark)


def test_a_job_whose_planner_is_killed_says_what_ended_it(place: Place) -> None:
    with started(
        place.start_job("--master", "local[1]", "--trigger-seconds", "0.1", *as_flags(SMALL))
    ) as job:
        job.wait_for(lambda: bool(place.committed_batches()), "a batch")
        below = descendants(job.process.pid)
        programs = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in below}
        (planner,) = (
            pid for pid, program in programs.items() if b"python_streaming_source_runner" in program
        )
        os.kill(planner, signal.SIGKILL)
        assert job.process.wait(_SECONDS) == 1
    assert "error: a Python process of Spark ended before its work was done" in job.said()
