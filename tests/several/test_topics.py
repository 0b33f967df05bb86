"""Topics over several brokers: each partition is on one of them, and each broker says so."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from glob import glob
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from tests.conformance.raw import connected
from tests.several.brokers import Brokers, brokers
from tests.waiting import until
from tidelog.broker.cluster.catalog import (
    ALL_BROKERS,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    PartitionAssignment,
    Topic,
    TopicCreated,
)
from tidelog.broker.replicas.topics import MOST_UNREPORTED, NewTopic
from tidelog.client import Admin, ConfigResource, ConfigResourceType, Producer
from tidelog.client import NewTopic as Wanted
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.quotas import CLIENT_ID, PRODUCER_BYTE_RATE
from tidelog.protocol.schema import ApiKey


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with brokers(tmp_path) as running:
        yield running


async def asked(cluster: Brokers, node_id: int, key: ApiKey, version: int, /, **values: Any) -> Any:
    """The answer of one broker."""
    async with connected(cluster[node_id].port) as client:
        await client.send_request(key, version, values)
        return await client.receive()


async def test_partitions_are_spread_and_each_broker_has_the_folders_of_its_own(
    cluster: Brokers, tmp_path: Path
) -> None:
    # The first leader is drawn by chance: that one broker has none of 36 is as good as impossible.
    for number in range(36):
        await cluster[1 + number % 3].services.topics.create(f"t{number}", NewTopic(num_partitions=3))
    await cluster.agreed()
    assert Counter(cluster.leader_of(f"t{number}", 0) for number in range(36)).keys() == {1, 2, 3}
    for number in range(36):
        for index in range(3):
            leader_id = cluster.leader_of(f"t{number}", index)
            have = {
                node_id
                for node_id in cluster.running
                if (tmp_path / f"broker-{node_id}" / f"t{number}-{index}").exists()
            }
            assert have == {leader_id}
            assert [
                each for each in (1, 2, 3) if (f"t{number}", index) in cluster[each].services.replicas
            ] == [leader_id]


async def test_every_broker_names_all_brokers_all_leaders_and_one_controller(cluster: Brokers) -> None:
    await cluster[2].services.topics.create("t", NewTopic(num_partitions=3))
    await cluster.agreed()
    addresses = {(node_id, "127.0.0.1", broker.port) for node_id, broker in cluster.running.items()}
    leaders = {index: cluster.leader_of("t", index) for index in range(3)}
    for node_id in (1, 2, 3):
        metadata = await asked(cluster, node_id, ApiKey.METADATA, 9, topics=[{"name": "t"}])
        assert {(each.node_id, each.host, each.port) for each in metadata.brokers} == addresses
        assert metadata.controller_id == 1
        (topic,) = metadata.topics
        assert {each.partition_index: each.leader_id for each in topic.partitions} == leaders
        assert {each.error_code for each in topic.partitions} == {ErrorCode.NONE}
        described = await asked(cluster, node_id, ApiKey.DESCRIBE_CLUSTER, 0)
        assert {(each.broker_id, each.host, each.port) for each in described.brokers} == addresses
        assert described.controller_id == 1


async def test_a_broker_that_was_down_removes_the_folders_of_topics_deleted_meanwhile(
    cluster: Brokers, tmp_path: Path
) -> None:
    for name in ("old", "again"):
        await cluster[1].services.topics.create(name, NewTopic(num_partitions=3))
    await cluster.agreed()
    for name in ("old", "again"):
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for index in range(3):
                await producer.send_and_wait(name, b"record", partition=index)
    await cluster.stop(3)
    old = [cluster.topic(name) for name in ("old", "again")]
    for topic in old:
        await cluster[1].services.topics.delete(topic.topic_id)
    # No client may ask for partitions on a broker that is down; they may have been asked for just before.
    again = Topic("again", uuid4(), (PartitionAssignment(-1, 0, (3,), (3,)),) * 2)
    await cluster[1].services.cluster.change(lambda _: TopicCreated(again))
    assert len(list((tmp_path / "broker-3").glob("old-?"))) == 1
    for _ in range(2):  # Once more: nothing of it is left to do.
        broker = await cluster.start(3)
        await cluster.agreed()
        assert not list((tmp_path / "broker-3").glob("old-?"))
        assert all(3 not in held_by for held_by in broker.services.catalog.deleted.values())
        new = cluster.topic("again").topic_id
        for index in range(2):
            replica = broker.services.replicas["again", index]
            assert replica.topic_id == new
            assert replica.log.end_offset == 0
        await cluster.stop(3)


async def test_topics_are_created_grown_changed_and_deleted_at_any_broker(cluster: Brokers) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.create_topics([Wanted("t", 1, 1, {})])
    services = [cluster[node_id].services for node_id in (1, 2, 3)]
    await cluster.agreed()
    await services[1].topics.add_partitions("t", 4)
    await services[2].topics.change_configs("t", lambda _: {"retention.ms": "77"})
    await cluster.agreed()
    for each in services:
        for index, assigned in enumerate(cluster.topic("t").partitions):
            replica = each.replicas.get(("t", index))
            assert (replica is not None) == (assigned.leader_id == each.node_id)
            assert replica is None or replica.log.config.retention_ms == 77
    await services[0].topics.delete(cluster.topic("t").topic_id)
    await cluster.agreed()
    assert not any(each.replicas for each in services)


async def test_quotas_and_settings_that_are_changed_at_one_broker_hold_at_all(cluster: Brokers) -> None:
    services = [broker.services for broker in cluster.running.values()]
    await services[0].quotas.alter({((CLIENT_ID, "app"),): {PRODUCER_BYTE_RATE: 5.0}})
    await services[1].topics.change_broker_configs(ALL_BROKERS, lambda _: {"num.partitions": "4"})
    await services[2].topics.change_broker_configs("3", lambda _: {"num.partitions": "5"})
    await cluster.agreed()
    assert not any(each.quotas.of_clients.is_empty for each in services)
    assert [each.config.num_partitions for each in services] == [4, 4, 5]
    resources = [ConfigResource(ConfigResourceType.BROKER, str(node_id)) for node_id in (1, 2, 3)]
    async with Admin(bootstrap_servers=cluster[1].bootstrap_servers) as admin:
        await admin.alter_configs({resources[1]: {"num.partitions": "6"}})
        described = await admin.describe_configs(resources)
    values = [
        next(entry.value for entry in described[each] if entry.name == "num.partitions") for each in resources
    ]
    assert values == ["4", "6", "5"]


async def test_a_topic_that_all_brokers_create_at_once_is_created_once(
    cluster: Brokers, tmp_path: Path
) -> None:
    async def create(node_id: int, name: str) -> ErrorCode:
        try:
            await cluster[node_id].services.topics.create(name, NewTopic(num_partitions=3))
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    for number in range(10):
        name = f"t{number}"
        codes = await asyncio.gather(*(create(node_id, name) for node_id in (1, 2, 3)))
        assert sorted(codes) == [ErrorCode.NONE, *[ErrorCode.TOPIC_ALREADY_EXISTS] * 2]
        await cluster.agreed()
        for index in range(3):
            leader_id = cluster.leader_of(name, index)
            replica = cluster[leader_id].services.replicas[name, index]
            assert replica.topic_id == cluster.topic(name).topic_id
            folders = glob(f"{tmp_path}/broker-?/{name}-{index}")
            assert folders == [f"{tmp_path}/broker-{leader_id}/{name}-{index}"]


async def test_a_fenced_broker_gets_no_new_partition_and_clients_are_not_sent_to_it(cluster: Brokers) -> None:
    await cluster[1].services.topics.create("old", NewTopic(num_partitions=3))
    old = cluster.topic("old")
    await cluster.lose_session(3)
    await cluster[1].services.topics.create("new", NewTopic(num_partitions=6))
    with pytest.raises(ApiError) as refused:
        await cluster[1].services.topics.create("no", NewTopic(assignments={0: [3]}))
    assert refused.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    await cluster.agreed()
    assert {cluster.leader_of("new", index) for index in range(6)} == {1, 2}
    metadata = await asked(cluster, 1, ApiKey.METADATA, 9, topics=[{"name": "old"}])
    assert {each.node_id for each in metadata.brokers} == {1, 2}
    for each in metadata.topics[0].partitions:
        holder = old.partitions[each.partition_index].leader_id
        described = (each.error_code, each.leader_id, each.offline_replicas)
        if holder == 3:
            assert described == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [3])
        else:
            assert described == (ErrorCode.NONE, holder, [])
    for with_fenced, named in (
        (False, {(1, False), (2, False)}),
        (True, {(1, False), (2, False), (3, True)}),
    ):
        described = await asked(cluster, 2, ApiKey.DESCRIBE_CLUSTER, 2, include_fenced_brokers=with_fenced)
        assert {(each.broker_id, each.is_fenced) for each in described.brokers} == named


async def test_deleted_topics_are_forgotten_once_no_broker_has_a_folder_of_them(cluster: Brokers) -> None:
    topics = cluster[1].services.topics
    for number in range(MOST_UNREPORTED + 1):
        created = await topics.create(f"t{number}")
        await topics.delete(created.topic_id)
    catalog = cluster[1].services.catalog
    await until(lambda: len(catalog.deleted) <= 2)


async def test_topics_of_the_settings_are_created_once_enough_brokers_are_live(tmp_path: Path) -> None:
    settings = {"topics": ("orders:2:3", "clicks:1:1"), "users": ("alice:secret",)}
    async with brokers(tmp_path, (1,), **settings) as cluster:
        known = cluster[1].services.catalog
        assert known.topic("clicks") is not None
        assert known.topic("orders") is None
        for node_id in (2, 3):
            await cluster.start(node_id)
        await until(lambda: known.topic("orders") is not None)
        assert [sorted(each.replicas) for each in cluster.topic("orders").partitions] == [[1, 2, 3]] * 2
        await cluster.agreed()
        assert await cluster[3].services.users.verify_password("alice", "secret")


async def test_internal_topics_wait_for_as_many_brokers_as_topics_need_by_default(tmp_path: Path) -> None:
    three = {
        "default_replication_factor": 3,
        "offsets_topic_replication_factor": 3,
        "transaction_state_log_replication_factor": 3,
    }
    async with brokers(tmp_path, (1,), **three) as cluster:
        with pytest.raises(ApiError) as refused:
            await cluster[1].services.groups.make_topic()
        assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        for node_id in (2, 3):
            await cluster.start(node_id)
        for coordinator in (cluster[1].services.groups, cluster[1].services.transactions):
            await coordinator.make_topic()
        for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            assert {len(each.replicas) for each in cluster.topic(name).partitions} == {3}


async def test_a_broker_beside_others_says_that_new_topics_get_one_copy(tmp_path: Path) -> None:
    def warned(events: Sequence[Any]) -> list[int]:
        return [each["live_brokers"] for each in events if each["event"] == "new_topics_have_one_replica"]

    with capture_logs() as events:
        async with brokers(tmp_path / "one", (1, 2)):
            assert warned(events) == [2]
        async with brokers(tmp_path / "three", (1, 2), default_replication_factor=2):
            assert warned(events) == [2]
