"""Groups over several brokers: the leader of a group's partition coordinates it, and it moves with that."""

import asyncio
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.crew import HEARTBEAT_MS
from tests.several.brokers import Brokers, brokers
from tests.several.test_topics import asked
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.cluster.catalog import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.broker.coordinator import shards
from tidelog.broker.coordinator.shards import partition_of
from tidelog.client import Admin, BrokerError, Consumer, NewTopic, Producer, TopicPartition
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

PARTITIONS = 6
HEARTBEATS = ("group_consumer_heartbeat_interval_ms", "group_consumer_min_heartbeat_interval_ms")
QUICK: dict[str, Any] = {"retry_backoff_ms": 20, "fetch_max_wait_ms": 20, "heartbeat_interval_ms": 50}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Brokers]:
    # Members of the consumer protocol hear of their partitions with a heartbeat.
    heartbeat = dict.fromkeys(HEARTBEATS, HEARTBEAT_MS)
    async with brokers(tmp_path, **heartbeat) as running:
        async with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("t", PARTITIONS, 1, {})])
        await running.make_internal_topics()
        yield running


def coordinated_by(cluster: Brokers, node_id: int, topic: str = OFFSETS_TOPIC) -> str:
    """A key whose partition of an internal topic this broker leads."""
    names = (f"key-{number}" for number in range(1000))
    return next(name for name in names if cluster.leader_of(topic, partition_of(name, PARTITIONS)) == node_id)


async def filled(cluster: Brokers, count: int) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send("t", b"%d" % number, partition=number % PARTITIONS)


async def test_every_broker_names_the_leader_of_the_partition_as_the_coordinator(cluster: Brokers) -> None:
    for topic, leader_id in product((OFFSETS_TOPIC, TRANSACTIONS_TOPIC), (1, 2, 3)):
        key = coordinated_by(cluster, leader_id, topic)
        for node_id in (1, 2, 3):
            answer = await asked(
                cluster,
                node_id,
                ApiKey.FIND_COORDINATOR,
                3,
                key=key,
                key_type=int(topic == TRANSACTIONS_TOPIC),
            )
            assert (answer.error_code, answer.node_id) == (ErrorCode.NONE, leader_id)
            assert answer.port == cluster[leader_id].port


async def test_another_broker_than_the_coordinator_says_that_it_is_not(cluster: Brokers) -> None:
    group = coordinated_by(cluster, 2)
    name = coordinated_by(cluster, 2, TRANSACTIONS_TOPIC)
    for node_id, code in ((1, ErrorCode.NOT_COORDINATOR), (2, ErrorCode.NONE)):
        commit = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
        partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        topics = [{"name": "t", "partitions": partitions}]
        answer = await asked(cluster, node_id, ApiKey.OFFSET_COMMIT, 8, **commit, topics=topics)
        assert answer.topics[0].partitions[0].error_code == code
        answer = await asked(
            cluster,
            node_id,
            ApiKey.INIT_PRODUCER_ID,
            4,
            transactional_id=name,
            transaction_timeout_ms=1000,
            producer_id=-1,
            producer_epoch=-1,
        )
        assert answer.error_code == code


async def test_the_groups_and_transactions_of_all_brokers_are_listed(cluster: Brokers) -> None:
    groups = [coordinated_by(cluster, node_id) for node_id in (1, 2, 3)]
    names = [coordinated_by(cluster, node_id, TRANSACTIONS_TOPIC) for node_id in (1, 2, 3)]
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        for group in groups:
            await admin.groups.commit(group, {TopicPartition("t", 0): 7})
        for name in names:
            async with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=name):
                pass
        assert [each.group_id for each in await admin.groups.list()] == sorted(groups)
        assert [each.transactional_id for each in await admin.transactions.list()] == sorted(names)
    await cluster.lose_session(2)
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin._requests.timeout_ms = 100  # For attempts, not for an answer.
        for listed in (admin.groups.list, admin.transactions.list):
            with pytest.raises(BrokerError, match="the coordinator that keeps __"):
                await listed()


async def test_a_group_moves_with_the_leader_of_its_partition(cluster: Brokers) -> None:
    await filled(cluster, 30)
    group = coordinated_by(cluster, 2)
    partition = partition_of(group, PARTITIONS)
    settings = {**QUICK, "group_id": group, "enable_auto_commit": False}
    address = cluster.bootstrap_servers
    async with Consumer("t", bootstrap_servers=address, auto_offset_reset="earliest", **settings) as reader:
        for _ in range(10):
            await reader.getone()
        await reader.commit()
        await cluster.lose_session(2)
        shards = cluster[2].services.groups._shards
        await until(lambda: all(each.replica.partition != partition for each in shards.loaded()))
        answer = await asked(cluster, 1, ApiKey.FIND_COORDINATOR, 3, key=group, key_type=0)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await cluster.regain_session(2)
        async with asyncio.timeout(DEADLINE_SECONDS):
            for _ in range(20):
                await reader.getone()
            await reader.commit()
    async with Admin(bootstrap_servers=address) as admin:
        offsets = await admin.groups.offsets(group)
    assert sum(each.offset for each in offsets.values()) == 30


async def test_queries_of_groups_and_transactions_answer_what_is_committed_while_too_few_are_in_sync(
    tmp_path: Path,
) -> None:
    two: dict[str, Any] = {
        "offsets_topic_replication_factor": 2,
        "transaction_state_log_replication_factor": 2,
        "min_insync_replicas": 2,
        "shutdown_timeout_ms": 0,
    }
    async with brokers(tmp_path, (1, 2), **two) as cluster:
        async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("t", 1, 1, {})])
        await cluster.make_internal_topics()
        group, name = coordinated_by(cluster, 1), coordinated_by(cluster, 1, TRANSACTIONS_TOPIC)

        async def commit(offset: int) -> Any:
            partitions = [
                {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""},
            ]
            topics = [{"name": "t", "partitions": partitions}]
            member = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
            return await asked(cluster, 1, ApiKey.OFFSET_COMMIT, 8, **member, topics=topics)

        async def begin() -> Any:
            producer = {"producer_id": -1, "producer_epoch": -1, "transaction_timeout_ms": 1000}
            return await asked(cluster, 1, ApiKey.INIT_PRODUCER_ID, 4, transactional_id=name, **producer)

        async def shown() -> list[Any]:
            listed = await asked(cluster, 1, ApiKey.LIST_GROUPS, 4)
            described = await asked(cluster, 1, ApiKey.DESCRIBE_GROUPS, 5, groups=[group, "new"])
            fetched = await asked(cluster, 1, ApiKey.OFFSET_FETCH, 7, group_id=group, topics=None)
            transactions = await asked(cluster, 1, ApiKey.LIST_TRANSACTIONS, 0)
            (transaction,) = (
                await asked(cluster, 1, ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[name])
            ).transaction_states
            return [
                (listed.error_code, [each.group_id for each in listed.groups]),
                [(each.error_code, each.group_state) for each in described.groups],
                [each.partitions[0].committed_offset for each in fetched.topics],
                [(each.transactional_id, each.producer_id) for each in transactions.transaction_states],
                transaction.producer_epoch,
            ]

        await commit(5)
        await begin()
        before = await shown()
        assert before[0] == (ErrorCode.NONE, [group])
        assert before[2] == [5]
        await cluster.kill(2)
        waiting = [asyncio.create_task(commit(6)), asyncio.create_task(begin())]
        replica = cluster[1].services.replicas[OFFSETS_TOPIC, partition_of(group, PARTITIONS)]
        end_offset = replica.log.end_offset
        await until(lambda: replica.log.end_offset > end_offset)
        assert await shown() == before
        assert not any(each.done() for each in waiting)
        await cluster.start(2)
        await asyncio.gather(*waiting)
        after = await shown()
        assert (after[2], after[4]) == ([6], before[4] + 1)


async def test_groups_that_are_not_read_yet_are_refused_at_once_while_too_few_are_in_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new leader cannot know what of its log is committed: it waits for a follower."""
    two = {"offsets_topic_replication_factor": 2, "min_insync_replicas": 2, "shutdown_timeout_ms": 0}
    async with brokers(tmp_path, (1, 2), **two) as cluster:
        await cluster[1].services.topics.create("t")
        await cluster[1].services.groups.make_topic()
        await cluster.agreed()
        group = coordinated_by(cluster, 1)
        partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        member = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
        topics = [{"name": "t", "partitions": [partition]}]
        await asked(cluster, 1, ApiKey.OFFSET_COMMIT, 8, **member, topics=topics)
        await cluster.kill(2)
        await until(lambda: cluster[1].services.catalog.brokers[2].is_fenced)
        await cluster.kill(1)
        monkeypatch.setattr(shards, "LOAD_WAIT_SECONDS", DEADLINE_SECONDS)
        await cluster.start(1)
        await cluster.leading(1)
        listed = await asked(cluster, 1, ApiKey.LIST_GROUPS, 4)
        assert (listed.error_code, listed.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
        fetched = await asked(cluster, 1, ApiKey.OFFSET_FETCH, 7, group_id=group, topics=None)
        assert fetched.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await cluster.start(2)
        await until(lambda: len(cluster.topic(OFFSETS_TOPIC).partitions[0].isr) == 2)
        listed = await asked(cluster, 1, ApiKey.LIST_GROUPS, 4)
        assert [each.group_id for each in listed.groups] == [group]
