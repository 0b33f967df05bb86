"""Brokers come and go: sessions, fencing, the controller, and data folders that are not those of before."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from faults.etcd import running_etcd
from faults.process import BrokerProcess
from tests.conformance.raw import connected
from tests.several.brokers import Brokers, brokers
from tests.several.processes import QUICK
from tests.several.test_coordinators import coordinated_by
from tests.several.test_topics import asked
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.app import Broker, StartError
from tidelog.broker.cluster.catalog import (
    NO_LEADER,
    OFFSETS_TOPIC,
    BrokerRegistered,
    Catalog,
    Change,
    Topic,
)
from tidelog.broker.cluster.controller import fencing
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.replicas.topics import NewTopic
from tidelog.client import Admin, Consumer, Producer
from tidelog.client import NewTopic as Wanted
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.hot import FetchPartition, FetchRequest
from tidelog.protocol.schema import ApiKey

SHORT = {"broker_session_timeout_ms": 1_000}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with brokers(tmp_path, **SHORT) as running:
        await running[1].services.topics.create("t", NewTopic(num_partitions=3))
        await running.agreed()
        yield running


def led_by(topic: Topic, node_id: int) -> list[int]:
    return [index for index, assigned in enumerate(topic.partitions) if assigned.leader_id == node_id]


async def leaders_at(port: int, topic: str = "t") -> dict[int, tuple[int, int, int, list[int]]]:
    """Partition -> error, leader, leader's epoch and offline replicas, in the metadata of one broker."""
    async with connected(port) as client:
        await client.send_request(ApiKey.METADATA, 9, {"topics": [{"name": topic}]})
        (answer,) = (await client.receive()).topics
    return {
        each.partition_index: (each.error_code, each.leader_id, each.leader_epoch, each.offline_replicas)
        for each in answer.partitions
    }


async def test_partitions_of_a_killed_broker_have_no_leader_until_it_is_back(cluster: Brokers) -> None:
    (victims,) = (led_by(cluster.topic("t"), 3),)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for index in victims:
            await producer.send_and_wait("t", b"before", partition=index)
    await cluster.kill(3)
    await cluster.fenced(3)
    for port in (cluster[1].port, cluster[2].port):
        found = await leaders_at(port)
        for index in victims:
            assert found[index] == (ErrorCode.LEADER_NOT_AVAILABLE, -1, 1, [3])
        assert {found[index][1] for index in found.keys() - victims} <= {1, 2}
    await cluster.start(3)
    await cluster.leading(3)
    found = await leaders_at(cluster[1].port)
    for index in victims:
        assert found[index] == (ErrorCode.NONE, 3, 2, [])
    async with Consumer(
        "t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        assert {(await consumer.getone()).value for _ in victims} == {b"before"}


async def test_a_broker_that_stops_fences_itself_first(tmp_path: Path) -> None:
    async with brokers(tmp_path, (1,)) as alone:
        await alone[1].services.topics.create("t", NewTopic(num_partitions=3))
        await alone.stop(1)
        left = await stored(alone)
        topic = left.topic("t")
        assert left.brokers[1].is_fenced
        assert topic is not None
        assert {each.leader_id for each in topic.partitions} == {NO_LEADER}
        assert not alone.store.sessions


async def stored(cluster: Brokers) -> Catalog:
    return await cluster.store.store.load()


async def test_the_lowest_live_broker_is_the_controller_after_any_kill(cluster: Brokers) -> None:
    async def all_name(controller_id: int) -> None:
        for node_id in cluster.running:
            described = await asked(cluster, node_id, ApiKey.DESCRIBE_CLUSTER, 0)
            assert described.controller_id == controller_id
            assert cluster[node_id].services.membership is not None
            is_controller = f"activecontrollercount {float(node_id == controller_id)}"
            assert is_controller in cluster[node_id].metrics.render().decode()

    await all_name(1)
    await cluster.kill(1)
    await cluster.fenced(1)
    await all_name(2)
    metrics = cluster[3].metrics.render().decode()
    for series in ("fencedbrokercount 1.0", "activebrokercount 2.0", "offlinepartitionscount 1.0"):
        assert f"kafka_controller_kafkacontroller_{series}" in metrics
    await cluster.kill(2)
    await cluster.fenced(2)
    await all_name(3)
    await cluster.start(1)
    await cluster.leading(1)
    await all_name(1)


async def test_a_second_broker_with_the_same_id_is_refused_while_the_first_one_runs(
    cluster: Brokers, tmp_path: Path
) -> None:
    config = BrokerConfig(node_id=2, data_dir=tmp_path / "second", port=0, http_port=-1, **SHORT)
    with pytest.raises(StartError, match=r"another broker with node\.id 2 is running"):
        await Broker.start(config, store=cluster.store.member())
    assert not (tmp_path / "second" / "meta.properties").exists()
    assert (await leaders_at(cluster[1].port)).keys() == {0, 1, 2}
    await cluster.leading(2)


async def test_a_broker_on_another_disk_is_refused_until_the_loss_is_accepted(
    cluster: Brokers, tmp_path: Path
) -> None:
    folder, kept = tmp_path / "broker-2", tmp_path / "kept"
    (index,) = led_by(cluster.topic("t"), 2)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"record", partition=index)
    await cluster.kill(2)
    folder.rename(kept)
    with pytest.raises(StartError, match="was last started in another data folder") as refused:
        await cluster.start(2)
    assert not list(folder.glob("t-*"))
    shutil.rmtree(folder)
    kept.rename(folder)
    broker = await cluster.start(2)
    await cluster.leading(2)
    assert broker.services.replicas["t", index].log.end_offset == 1
    await cluster.kill(2)
    folder.rename(kept)
    old_word = str(refused.value).rpartition("broker.lost.incarnation=")[2][:32]
    with pytest.raises(StartError) as again:
        await cluster.start(2, broker_lost_incarnation=old_word)
    word = str(again.value).rpartition("broker.lost.incarnation=")[2][:32]
    assert word != old_word
    epoch = cluster.topic("t").partitions[index].leader_epoch
    for setting in ({"broker_lost_incarnation": word}, {"broker_lost_incarnation": word}, {}):
        broker = await cluster.start(2, **setting)
        await cluster.leading(2)
        assert broker.services.replicas["t", index].log.end_offset == 0
        assert cluster.topic("t").partitions[index].leader_epoch > epoch
        await cluster.stop(2)


async def test_an_older_copy_of_a_data_folder_is_refused(cluster: Brokers, tmp_path: Path) -> None:
    folder, copy = tmp_path / "broker-2", tmp_path / "copy"
    await cluster.stop(2)
    shutil.copytree(folder, copy)
    for _ in range(2):  # What stopped may start as often as one likes.
        await cluster.start(2)
        await cluster.stop(2)
    folder.rename(tmp_path / "newest")
    shutil.copytree(copy, folder)
    with pytest.raises(StartError, match="after this copy of its data folder was made"):
        await cluster.start(2)
    shutil.rmtree(folder)
    (tmp_path / "newest").rename(folder)
    await cluster.start(2)
    await cluster.leading(2)


async def test_a_broker_whose_session_ended_is_fenced_and_leads_again_with_a_new_one(
    cluster: Brokers,
) -> None:
    (index,) = led_by(cluster.topic("t"), 1)
    await cluster.lose_session(1)
    assert (await leaders_at(cluster[1].port))[index][:2] == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    await cluster.regain_session(1)
    assert (await leaders_at(cluster[2].port))[index][:3] == (ErrorCode.NONE, 1, 2)


async def test_a_broker_that_is_cut_off_coordinates_nothing_and_serves_its_records(cluster: Brokers) -> None:
    await cluster[1].services.topics.create(OFFSETS_TOPIC)
    await cluster.agreed()
    group, group_of_another = coordinated_by(cluster, 2), coordinated_by(cluster, 1)
    (index,) = led_by(cluster.topic("t"), 2)

    async def heartbeat() -> int:
        answer = await asked(cluster, 2, ApiKey.HEARTBEAT, 4, group_id=group, generation_id=1, member_id="m")
        return int(answer.error_code)

    async with Producer(bootstrap_servers=cluster[2].bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"0", partition=index)
        assert await heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        topics = [(cluster.topic("t").topic_id, [FetchPartition(index, -1, 1, -1, 0, 1 << 20)])]
        ask = partial(cluster[1].services.peers.fetch, 2)
        await ask(FetchRequest(-1, 0, 1, 1 << 20, 0, 0, -1, topics))
        waiting = asyncio.create_task(ask(FetchRequest(-1, 300_000, 1, 1 << 20, 0, 0, -1, topics)))
        await asyncio.sleep(0)  # It is sent: the connection is open.
        await cluster.cut_off(2)
        await cluster.fenced(2)
        with pytest.raises(ApiError, match="broker 2 does not answer"):
            await waiting
        assert await heartbeat() == ErrorCode.NOT_COORDINATOR
        found = await asked(cluster, 2, ApiKey.FIND_COORDINATOR, 3, key=group, key_type=0)
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        found = await asked(cluster, 2, ApiKey.FIND_COORDINATOR, 3, key=group_of_another, key_type=0)
        assert (found.error_code, found.node_id) == (ErrorCode.NONE, 1)
        found = await asked(cluster, 2, ApiKey.FIND_COORDINATOR, 3, key="transactional id", key_type=1)
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await asked(cluster, 2, ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None)).error_code == 0
        await producer.send_and_wait("t", b"1", partition=index)
        assert not cluster[2].services.catalog.brokers[2].is_fenced
        await cluster.reconnect(2)
        assert await heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        await producer.send_and_wait("t", b"2", partition=index)
    assert cluster[2].services.replicas["t", index].log.end_offset == 3
    await cluster.agreed()
    assert (await leaders_at(cluster[1].port))[index][:3] == (ErrorCode.NONE, 2, 2)


async def test_a_broker_that_others_fenced_is_cut_off_until_it_is_registered_again(cluster: Brokers) -> None:
    services, seen = cluster[2].services, []
    membership = services.membership
    assert membership is not None

    def follow(change: Change) -> None:
        if isinstance(change.delta, BrokerRegistered):
            seen.append(membership.is_cut_off)

    services.cluster.follow(follow)
    await cluster[1].services.cluster.change(lambda image: fencing(image, image.brokers[2]))
    await until(lambda: seen[:2] == [True, False])


async def test_the_rack_of_each_broker_is_in_the_metadata(tmp_path: Path) -> None:
    async with brokers(tmp_path, (1,), broker_rack="north") as cluster:
        await cluster.start(2, broker_rack="south")
        await cluster.agreed()
        for node_id in (1, 2):
            metadata = await asked(cluster, node_id, ApiKey.METADATA, 9, topics=[])
            assert {each.node_id: each.rack for each in metadata.brokers} == {1: "north", 2: "south"}


@pytest.mark.needs_etcd
async def test_partitions_of_a_killed_or_paused_broker_over_etcd_have_no_leader_until_it_is_back(
    tmp_path: Path,
) -> None:
    started = []
    async with running_etcd(tmp_path) as members:
        try:
            for node_id in (1, 2):
                settings = {
                    **QUICK,
                    "node.id": node_id,
                    "cluster.store": f"etcd:{members.endpoints[0]}",
                    "broker.session.timeout.ms": 2_000,
                }
                started.append(BrokerProcess(tmp_path / f"broker-{node_id}", settings=settings))
                await started[-1].start()
            first, second = started
            both = f"127.0.0.1:{first.port},127.0.0.1:{second.port}"
            async with Admin(bootstrap_servers=both) as admin:
                await admin.create_topics([Wanted("t", 2, 1, {}), Wanted("copied", 2, 2, {})])
            producer = Producer(bootstrap_servers=both)
            await producer.start()
            for index in (0, 1):
                await producer.send_and_wait("copied", b"before", partition=index)
            (mine,) = (
                index for index, described in (await leaders_at(second.port)).items() if described[1] == 1
            )
            await first.kill_9()
            await until_leaders(second.port, {mine: NO_LEADER})
            await until_leaders(second.port, {0: 2, 1: 2}, "copied")
            for index in (0, 1):
                await producer.send_and_wait("copied", b"after", partition=index)
            await producer.stop()
            await first.start()
            assert not first.events("broker_session_awaited")
            await until_leaders(second.port, {mine: 1})
            (other,) = {0, 1} - {mine}
            second.pause()
            await until_leaders(first.port, {other: NO_LEADER})
            second.resume()
            await until_leaders(first.port, {other: 2})
            assert await first.terminate() == 0
            assert (await leaders_at(second.port))[mine][:2] == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
            assert await second.terminate() == 0
        finally:
            for broker in started:
                if broker.is_running:
                    await broker.kill_9()


async def until_leaders(port: int, wanted: dict[int, int], topic: str = "t") -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            found = await leaders_at(port, topic)
            if all(found[index][1] == leader_id for index, leader_id in wanted.items()):
                return
            await asyncio.sleep(0.01)
