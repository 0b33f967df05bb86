"""Connections that outlive a task: kept, shared by no two users, left after errors, and closed in the end."""

import asyncio
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from tests.unit.pipeline.batches import plain_rows
from tidelog.broker.testing.embedded import ThreadedBroker
from tidelog.client import ClientError, Producer
from tidelog.pipeline.data_source import TidelogDataSource
from tidelog.pipeline.offsets import OffsetRange
from tidelog.pipeline.schema import SCHEMA
from tidelog.pipeline.source import clients, fetch
from tidelog.pipeline.source.batch_source import TidelogReader
from tidelog.wire import links, opening
from tidelog.wire.cluster_config import ClusterConfig

TOPIC = "t"


class Records:
    """A result of many megabytes, which nothing may turn into text."""

    formatted = 0

    def __repr__(self) -> str:
        Records.formatted += 1
        return ""


PARTITIONS = 30
RECORDS = 3


@pytest.fixture
def broker() -> Iterator[ThreadedBroker]:
    """A topic with a few records in each of many partitions."""
    with ThreadedBroker() as broker:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        asyncio.run(_fill(broker.bootstrap_servers))
        yield broker
        clients.close_idle()


async def _fill(servers: str) -> None:
    async with Producer(bootstrap_servers=servers) as producer:
        for number in range(PARTITIONS * RECORDS):
            _ = await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ports of the connections that this process opens."""
    ports: list[int] = []
    original = opening.open_connection

    def open_connection(host: str, port: int, *others: Any, **named: Any) -> Any:
        ports.append(port)
        return original(host, port, *others, **named)

    monkeypatch.setattr(links, "open_connection", open_connection)
    return ports


def reader_of(broker: ThreadedBroker, **options: str) -> TidelogReader:
    return TidelogDataSource(
        {"bootstrap.servers": broker.bootstrap_servers, "subscribe": TOPIC, **options}
    ).reader(SCHEMA)


def values(reader: TidelogReader) -> list[int]:
    return sorted(int(row["value"]) for task in reader.partitions() for row in plain_rows(reader.read(task)))


def test_tasks_and_the_planner_share_one_connection(broker: ThreadedBroker, opened: list[int]) -> None:
    everything = list(range(PARTITIONS * RECORDS))
    for _ in range(2):
        reader = reader_of(broker, minPartitions=str(PARTITIONS))
        assert len(reader.partitions()) == PARTITIONS
        assert values(reader) == everything
    assert opened == [broker.port]


def test_small_ranges_share_tasks_unless_options_ask_otherwise(broker: ThreadedBroker) -> None:
    def tasks(**options: str) -> int:
        reader = reader_of(broker, **options)
        assert values(reader) == list(range(PARTITIONS * RECORDS))
        return len(reader.partitions())

    assert tasks() == 1
    assert tasks(minPartitions="4") in range(4, 7)
    assert tasks(maxRecordsPerPartition=str(2 * RECORDS)) == PARTITIONS / 2
    assert tasks(maxRecordsPerPartition="2") == 2 * PARTITIONS


def test_a_read_that_ends_half_way_leaves_no_connection(broker: ThreadedBroker) -> None:
    """As Spark ends it for a limit."""
    offsets = OffsetRange(TOPIC, 0, 0, RECORDS)
    answers = fetch.read_answers(ClusterConfig(broker.bootstrap_servers), offsets, fetch_bytes=1)
    with closing(cast("Generator[fetch.Answer]", answers)):
        next(answers)
    assert not clients._idle
    assert values(reader_of(broker)) == list(range(PARTITIONS * RECORDS))


def test_reads_that_overlap_have_a_client_each(broker: ThreadedBroker, opened: list[int]) -> None:
    config = ClusterConfig(broker.bootstrap_servers)
    with clients.client_of(config) as one, clients.client_of(config) as other:
        assert one is not other
        for each in (one, other):
            each.run(each.know([TOPIC]))
    assert len(opened) == 2
    assert list(clients._idle.values()) == [one]


def test_a_broker_that_was_restarted_is_connected_to_again(broker: ThreadedBroker, opened: list[int]) -> None:
    reader = reader_of(broker)
    tasks = reader.partitions()
    broker.restart()
    rows = [row for task in tasks for row in plain_rows(reader.read(task))]
    assert len(rows) == PARTITIONS * RECORDS
    broker.restart()
    assert values(reader) == list(range(PARTITIONS * RECORDS))
    assert len(opened) >= 3


def test_few_are_kept_and_not_for_long(broker: ThreadedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        config = ClusterConfig(broker.bootstrap_servers, client_id=f"client-{number}")
        fetch.find_bounds(config, [TOPIC], None)
    assert [each.client_id for each in clients._idle] == [f"client-{number}" for number in range(6, 10)]
    kept = clients._idle[config]
    monkeypatch.setattr(clients, "_IDLE_SECONDS", -1.0)
    with clients.client_of(config) as client:
        assert client is not kept
    monkeypatch.setattr(clients, "_MOST_TOPICS", 0)
    fetch.find_bounds(config, [TOPIC], None)
    assert not clients._idle


_FORK = """
import os, sys
from tidelog.pipeline.source import clients, fetch
from tidelog.wire.cluster_config import ClusterConfig
config = ClusterConfig(sys.argv[1])
before = fetch.find_bounds(config, ["t"], None)
(parents,) = clients._idle.values()
child = os.fork()
if not child:
    assert not clients._idle
    assert fetch.find_bounds(config, ["t"], None) == before
    assert parents not in clients._idle.values()
    clients.close_idle()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert fetch.find_bounds(config, ["t"], None) == before
assert list(clients._idle.values()) == [parents]
"""


def test_a_forked_process_leaves_the_connections_of_its_parent(broker: ThreadedBroker) -> None:
    run = [sys.executable, "-W", "error::ResourceWarning", "-c", _FORK, broker.bootstrap_servers]
    finished = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")


def test_what_a_call_gives_is_never_formatted() -> None:
    """asyncio.Runner does so in the main thread, which took ten times as long as reading the records."""

    async def fetch_records() -> Records:
        return Records()

    client = clients.Client(ClusterConfig("127.0.0.1:1"))
    try:
        assert isinstance(client.run(fetch_records()), Records)
    finally:
        client.close()
    assert not Records.formatted


def test_a_wait_for_a_broker_that_has_gone_is_told() -> None:
    """Once, although the broker is asked until request.timeout.ms has passed."""
    with ThreadedBroker() as broker:
        broker.create_topic(TOPIC, partitions=1)
        config = ClusterConfig(
            broker.bootstrap_servers,
            request_timeout_ms=1500,
            retry_backoff_max_ms=100,
            reconnect_backoff_max_ms=50,
        )
        fetch.find_bounds(config, [TOPIC], None)
    with capture_logs() as events, pytest.raises(ClientError):
        fetch.find_bounds(config, [TOPIC], None)
    [told] = [each for each in events if each["event"] == "request_repeated"]
    assert told["request_timeout_ms"] == 1500
