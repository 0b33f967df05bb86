"""Remote segments of a partition with replicas: the leader copies, the next one goes on."""

from pathlib import Path
from typing import Any

from tests.conformance.raw import connected
from tests.several.brokers import Brokers, brokers
from tests.several.test_replication import SHORT, in_sync, made, values
from tests.unit.broker.storage.support import batch, state
from tests.unit.broker.tiering.conftest import TIERED
from tests.waiting import until
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.client import Admin, Producer
from tidelog.protocol.errors import ErrorCode
from tidelog.remote_log.manifest import Manifest, manifest_name

CONFIGS = {name.replace("_", "."): value for name, value in TIERED.items()} | {"min.insync.replicas": "2"}


def tiered(folder: Path) -> dict[str, Any]:
    """The settings of brokers with remote storage."""
    return {
        "remote_log_storage_system_enable": True,
        "remote_storage_url": f"file://{folder}/remote",
        "remote_log_manager_task_interval_ms": 3_600_000,
        "remote_fetch_max_wait_ms": 60_000,
    }


def log_of(cluster: Brokers, node_id: int) -> PartitionLog:
    return cluster[node_id].services.replicas["t", 0].log


def manifest_of(cluster: Brokers, node_id: int) -> Manifest:
    manifest: Manifest = log_of(cluster, node_id).remote.manifest  # type: ignore[union-attr]
    return manifest


async def settle(cluster: Brokers, leader: int) -> None:
    """Copy, and delete locally, at the leader."""
    services = cluster[leader].services
    assert services.tiering is not None
    await services.tiering.look()
    await services.maintenance.checkpoint()
    await services.maintenance.checkpoint()
    await services.maintenance.apply_retention()


async def test_a_new_leader_goes_on_and_a_follower_far_behind_begins_at_the_local_start(
    tmp_path: Path,
) -> None:
    async with brokers(tmp_path, **SHORT, **tiered(tmp_path)) as cluster:
        await made(cluster, "t", 3, configs=CONFIGS)
        first = cluster.leader_of("t", 0)
        behind = first % 3 + 1
        sent: list[bytes] = []
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:

            async def send(count: int) -> None:
                for _ in range(count):
                    sent.append(b"%04d" % len(sent) + b"x" * 30)
                    await producer.send_and_wait("t", sent[-1], partition=0)

            await send(10)
            await settle(cluster, first)
            copied = manifest_of(cluster, first)
            assert log_of(cluster, first).start_offset > 5
            # A follower deletes locally what its leader has deleted.
            await until(lambda: len({log_of(cluster, each).start_offset for each in cluster.running}) == 1)

            await cluster.kill(behind)
            await in_sync(cluster, 2)
            await send(10)
            await settle(cluster, first)
            start = log_of(cluster, first).start_offset
            assert start > 10
            async with connected(cluster[first].port) as client:
                producer_id = await client.producer_id()
                assert (await client.produce(batch(producer_id, 0, 0, value=sent[0])))[0] == ErrorCode.NONE
            sent.append(sent[0])
            await cluster.start(behind)
            await in_sync(cluster, 3)
            assert log_of(cluster, behind).start_offset == start
            assert state(log_of(cluster, behind)) == state(log_of(cluster, first))

            await cluster.kill(first)
            await in_sync(cluster, 2)
            second = cluster.leader_of("t", 0)
            await send(10)
            await settle(cluster, second)
            manifest = manifest_of(cluster, second)
            assert manifest.leader_epoch > copied.leader_epoch
            assert manifest.end_offset > start
            assert manifest.segments[: len(copied.segments)] == copied.segments
            assert manifest.epochs[0][1] == 0
        assert await values(cluster, len(sent)) == sent


async def test_a_broker_that_was_killed_deletes_what_a_deleted_topic_has_in_remote_storage(
    tmp_path: Path,
) -> None:
    async with brokers(tmp_path, **SHORT, **tiered(tmp_path)) as cluster:
        await made(cluster, "t", 3, configs=CONFIGS)
        leader = cluster.leader_of("t", 0)
        await settle(cluster, leader)
        topic_id = cluster[leader].services.replicas["t", 0].topic_id
        manifest = tmp_path / "remote" / str(topic_id) / "0" / manifest_name(0)
        content = manifest.read_bytes()
        await cluster.kill(leader)
        await in_sync(cluster, 2)
        async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            await admin.delete_topics(["t"])
        await until(lambda: not manifest.parent.exists())
        manifest.parent.mkdir(parents=True)
        manifest.write_bytes(content)  # It was under way when the broker was killed.
        await cluster.start(leader)
        await until(lambda: not manifest.parent.exists())
