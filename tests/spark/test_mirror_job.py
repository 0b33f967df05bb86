"""The mirror job copies topics under new names, filtered and projected, and goes on where it stopped."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.frameworks.workers import PROGRAMS
from tests.spark.brokers import RunningBroker, running_broker
from tests.tidy.house import ROOT
from tests.unit.pipeline.batches import make_batch
from tests.waiting import DEADLINE_SECONDS
from tidelog.client import Admin, ClusterConfig, Producer, TopicPartition
from tidelog.pipeline.jobs.job import JobProgress
from tidelog.pipeline.jobs.mirror import MirrorReport, run
from tidelog.pipeline.jobs.mirror_settings import MirrorSettings
from tidelog.pipeline.mirror.session_folder import MirrorCounts

TIME = 1_700_000_000_000


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("other")) as broker:
        yield broker


def append(broker: RunningBroker, topic: str, partition: int, first: int, count: int) -> None:
    rows = [(TIME + n, f"k{n}".encode(), str(n).encode(), ()) for n in range(first, first + count)]
    broker.append(topic, partition, [make_batch(rows)])


def test_topics_are_mirrored_between_brokers_and_a_second_run_goes_on(
    spark: SparkSession, broker: RunningBroker, other: RunningBroker, tmp_path: Path
) -> None:
    broker.create_topic("orders", 2)
    broker.create_topic("users")
    settings = MirrorSettings(
        checkpoint=str(tmp_path / "checkpoint"),
        cluster=ClusterConfig(broker.bootstrap_servers),
        to_cluster=ClusterConfig(other.bootstrap_servers),
        topics=("orders", "users"),
        rename=("users=people",),
        where="offset % 2 = 0",
        select="upper(CAST(key AS STRING)) AS key, value",
    )
    for first in (0, 50):
        append(broker, "orders", 0, first, 50)
        append(broker, "orders", 1, first, 50)
        append(broker, "users", 0, first, 50)
        progress: list[JobProgress] = []
        # In a thread of its own, as in a program that goes on meanwhile.
        with ThreadPoolExecutor(1) as thread:
            report = thread.submit(run, spark, settings, progress.append).result()
        assert report.summary()["rows_written"] == 75
        assert (report.topics, report.exit_code, progress[-1].rows) == (2, 0, 75)
    orders, people = other.records(spark, "orders"), other.records(spark, "people")
    assert [(row.partition, int(row.value)) for row in orders] == [
        (partition, n) for partition in (0, 1) for n in range(0, 100, 2)
    ]
    assert [int(row.value) for row in people] == list(range(0, 100, 2))
    assert people[1].key == b"K2"
    assert round(people[1].timestamp.timestamp() * 1000) == TIME + 2
    assert [tuple(each) for each in people[1].headers] == [("tidelog.source", b"users-0@2")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "would be mirrored onto itself"),
        ({"prefix": "narrow-"}, "'narrow-wide' has 1 partitions, its source has 2"),
        ({"prefix": "x-", "where": "rand() < 0.5"}, "random expression"),
        ({"prefix": "x-", "select": "value, topic AS origin"}, "with key or value, got origin, value"),
        ({"rename": ("wide",)}, "is not like FROM=TO"),
        ({"rename": ("other=y",)}, "'other' is not among the topics"),
        ({"topics": ()}, "needs either topics or a topic_pattern"),
        ({"prefix": "x-", "trigger_seconds": 0.0}, "a number of at least 0.001"),
    ],
)
def test_what_cannot_be_mirrored_is_refused(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    names = broker.run(_names(broker))
    if "wide" not in names:
        broker.create_topic("wide", 2)
        broker.create_topic("narrow-wide")
    given: dict[str, Any] = {"topics": ("wide",), "checkpoint": str(tmp_path)} | changes
    with pytest.raises(ValueError, match=message):
        run(spark, MirrorSettings(cluster=ClusterConfig(broker.bootstrap_servers), **given))


def test_a_topic_moves_with_its_history_and_with_what_groups_committed(
    spark: SparkSession, broker: RunningBroker, other: RunningBroker, tmp_path: Path
) -> None:
    """Also where the source has lost its first records, and an aborted transaction lies among the others."""
    broker.create_topic("history", 2)
    for partition in (0, 1):
        append(broker, "history", partition, 0, 40)
    broker.delete_records("history", 1, 10)
    asyncio.run(_abort_between(broker, "history"))
    committed = {("early", 0): 0, ("early", 1): 0, ("late", 0): 15, ("late", 1): 47, ("end", 0): 50}
    asyncio.run(_commit(broker, "history", committed))
    settings = MirrorSettings(
        checkpoint=str(tmp_path / "checkpoint"),
        cluster=ClusterConfig(broker.bootstrap_servers),
        to_cluster=ClusterConfig(other.bootstrap_servers),
        topics=("history",),
        isolation_level="read_committed",
    )
    assert run(spark, settings).summary()["rows_written"] == 40 + 30 + 2 * 10
    kept = ("key", "value", "timestamp", "partition")
    originals = [row for row in broker.records(spark, "history") if not row.value.startswith(b"aborted")]
    copies = other.records(spark, "history")
    assert [[row[name] for name in kept] for row in copies] == [
        [row[name] for name in kept] for row in originals
    ]
    assert [row.offset for row in copies if row.partition == 0][:40] == list(range(40))

    program = [sys.executable, str(PROGRAMS / "carry_groups.py"), "early", "late", "end"]
    servers = {"FROM": broker.bootstrap_servers, "TO": other.bootstrap_servers, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        program,
        env=os.environ | servers,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = asyncio.run(_committed(other, ("early", "late", "end")))
    for (group, partition), offset in committed.items():
        unread = [row.value for row in originals if row.partition == partition and row.offset >= offset]
        left = [
            row.value
            for row in copies
            if row.partition == partition and row.offset >= found[group, partition]
        ]
        assert left == unread, (group, partition)


async def _abort_between(broker: RunningBroker, topic: str) -> None:
    """Five records of an aborted transaction, then ten others, to each partition."""
    async with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="history") as producer:
        for count, text, ends in (
            (5, "aborted", producer.abort_transaction),
            (10, "after", producer.commit_transaction),
        ):
            await producer.begin_transaction()
            for number in range(count):
                for partition in (0, 1):
                    _ = await producer.send(topic, f"{text} {number}".encode(), partition=partition)
            await ends()


async def _commit(broker: RunningBroker, topic: str, committed: dict[tuple[str, int], int]) -> None:
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for (group, partition), offset in committed.items():
            await admin.groups.commit(group, {TopicPartition(topic, partition): offset})


async def _committed(broker: RunningBroker, groups: Iterable[str]) -> dict[tuple[str, int], int]:
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return {
            (group, place.partition): each.offset
            for group in groups
            for place, each in (await admin.groups.offsets(group)).items()
        }


async def _names(broker: RunningBroker) -> list[str]:
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return await admin.list_topics()


def test_a_report_is_flat() -> None:
    report = MirrorReport(2, MirrorCounts(100, 60, 40, 3), 0.5, 7)
    assert report.exit_code == 1
    assert report.summary() == {
        "event": "mirror_finished",
        "topics": 2,
        "rows_read": 100,
        "rows_written": 60,
        "rows_skipped": 40,
        "batches": 3,
        "lost_offsets": 7,
        "seconds": 0.5,
        "rows_per_second": 200,
    }
