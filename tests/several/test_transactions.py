"""Transactions over several brokers: coordinator, partitions and groups on different ones, and exactly once
whatever broker starts again in between."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.several.brokers import Brokers, brokers
from tests.several.test_coordinators import PARTITIONS, coordinated_by
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.cluster.catalog import TRANSACTIONS_TOPIC
from tidelog.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from tidelog.client.errors import ClientError
from tidelog.wire.connection import Connection

QUICK: dict[str, Any] = {"retry_backoff_ms": 10}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with brokers(tmp_path) as running:
        async with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            for name in ("in", "out"):
                await admin.create_topics([NewTopic(name, PARTITIONS, 1, {})])
        await running.make_internal_topics()
        yield running


@pytest.fixture(params=["an epoch for each transaction", "one epoch"])
def versions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with clients of a cluster that has not finalized transaction.version 2."""
    if request.param == "one epoch":
        features: Mapping[str, int] = {}
        monkeypatch.setattr(Connection, "features", property(lambda _: features, lambda _, __: None))


def producer(cluster: Brokers, coordinator: int, **settings: Any) -> Producer:
    """One whose transactions this broker coordinates."""
    name = coordinated_by(cluster, coordinator, TRANSACTIONS_TOPIC)
    return Producer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=name, **{**QUICK, **settings}
    )


async def committed(cluster: Brokers, topic: str, count: int) -> list[int]:
    """The first committed records, and no more; it fails where a transaction stays open."""
    await until(lambda: not any(is_open(cluster, topic, index) for index in range(PARTITIONS)))
    async with (
        Consumer(
            topic,
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=20,
            **QUICK,
        ) as reader,
        asyncio.timeout(DEADLINE_SECONDS),
    ):
        ends = {
            TopicPartition(topic, index): replica_of(cluster, topic, index).high_watermark
            for index in range(PARTITIONS)
        }
        values: list[int] = []
        while len(values) < count or not await at_ends(reader, ends):
            for records in (await reader.getmany(timeout_ms=50)).values():
                values += [int(record.value or b"") for record in records]
        return values


async def at_ends(reader: Consumer, ends: Mapping[TopicPartition, int]) -> bool:
    return all([await reader.position(where) >= end for where, end in ends.items()])


def replica_of(cluster: Brokers, topic: str, index: int) -> Any:
    return cluster[cluster.leader_of(topic, index)].services.replicas[topic, index]


def is_open(cluster: Brokers, topic: str, index: int) -> bool:
    return len(replica_of(cluster, topic, index).log.transactions) > 0


@pytest.mark.usefixtures("versions")
async def test_what_is_read_and_what_is_written_count_together(cluster: Brokers) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as source:
        for number in range(60):
            await source.send("in", b"%d" % number, partition=number % PARTITIONS)
    for coordinator, of_group in ((1, 2), (2, 3), (3, 3)):
        group = f"{coordinated_by(cluster, of_group)}"
        async with (
            producer(cluster, coordinator) as writer,
            Consumer(
                "in",
                bootstrap_servers=cluster.bootstrap_servers,
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                fetch_max_wait_ms=20,
                **QUICK,
            ) as reader,
            asyncio.timeout(DEADLINE_SECONDS),
        ):
            for is_commit in (True, False):
                record = await reader.getone()
                await writer.begin_transaction()
                await writer.send("out", record.value, partition=0)
                where = record.topic_partition
                await writer.send_offsets_to_transaction({where: record.offset + 1}, reader.group_metadata())
                await (writer.commit_transaction if is_commit else writer.abort_transaction)()
                async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
                    offsets = await admin.groups.offsets(group, require_stable=True)
                if is_commit:
                    assert offsets[where].offset == record.offset + 1
                    kept = offsets
                assert offsets == kept


@pytest.mark.usefixtures("versions")
@pytest.mark.parametrize(
    ("restarted", "versions"),
    [("the coordinator", "one epoch"), ("a leader", "an epoch for each transaction")],
    indirect=["versions"],
)
async def test_markers_reach_all_partitions_once_the_broker_that_was_killed_serves_again(
    cluster: Brokers, restarted: str
) -> None:
    coordinator, victim = 1, 1 if restarted == "the coordinator" else 2
    expected: list[int] = []
    async with producer(cluster, coordinator, transaction_timeout_ms=60_000) as writer:
        for turn in range(3):
            await writer.begin_transaction()
            for index in range(PARTITIONS):
                await (await writer.send("out", b"%d" % (100 * turn + index), partition=index))
            ending = asyncio.create_task(writer.commit_transaction())
            if turn == 1:
                if victim != coordinator:
                    await cluster.kill(victim)
                    await asyncio.wait([ending], timeout=0.5)
                else:
                    await asyncio.wait([ending], timeout=0.001)
                    await cluster.kill(victim)
                await cluster.start(victim)
            try:
                await ending
            except ClientError:
                pytest.fail("the end of a transaction is asked for again until it is known")
            expected += [100 * turn + index for index in range(PARTITIONS)]
    assert sorted(await committed(cluster, "out", len(expected))) == expected


async def test_a_transaction_that_is_left_open_is_aborted_on_all_brokers(cluster: Brokers) -> None:
    async with producer(cluster, 3, transaction_timeout_ms=200) as writer:
        await writer.begin_transaction()
        with suppress(ClientError):  # It may be aborted before the last of them.
            for index in range(PARTITIONS):
                await (await writer.send("out", b"%d" % index, partition=index))
        await until(lambda: not any(is_open(cluster, "out", index) for index in range(PARTITIONS)))
        with pytest.raises(ClientError):
            await writer.commit_transaction()
    assert await committed(cluster, "out", 0) == []


async def test_transactions_move_with_the_leader_of_their_partition(cluster: Brokers) -> None:
    async with producer(cluster, 2) as writer:
        await writer.begin_transaction()
        for index in range(PARTITIONS):
            await (await writer.send("out", b"%d" % index, partition=index))
        await cluster.lose_session(2)
        ending = asyncio.create_task(writer.commit_transaction())
        await asyncio.sleep(0)
        await cluster.regain_session(2)
        await ending
    assert sorted(await committed(cluster, "out", PARTITIONS)) == list(range(PARTITIONS))
