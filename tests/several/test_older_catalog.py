"""A catalog that names a replica as in sync that had left: nothing that was acknowledged is lost."""

from pathlib import Path
from uuid import UUID

import pytest

from tests.several.brokers import brokers
from tests.several.test_replication import SHORT, in_sync, made, values
from tests.waiting import until
from tidelog.broker.cluster.catalog import NO_LEADER, PartitionsChanged
from tidelog.broker.cluster.store import StoreError
from tidelog.broker.data_folder.etcd_catalogs import correct_older_catalog
from tidelog.broker.storage.folders import FoundPartition
from tidelog.client import Producer


async def test_the_longest_log_leads_once_all_replicas_of_a_partition_live(tmp_path: Path) -> None:
    async with brokers(tmp_path, **SHORT) as cluster:
        topic = await made(cluster, "t", 3, configs={"min.insync.replicas": "2"})
        late, *others = topic.partitions[0].replicas
        await cluster.kill(late)
        await until(lambda: late not in cluster.topic("t").partitions[0].isr)
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(3):
                await producer.send_and_wait("t", b"%d" % number, partition=0)
        member = cluster.store.member()
        with pytest.raises(StoreError, match="expected no running broker, but these run"):
            await correct_older_catalog(member, late, -1, {}, 0.1)
        for node_id in others:
            await cluster.stop(node_id)
        catalog = await member.load()
        (stored,) = (each for each in catalog.topics() if each.name == "t")
        older = stored.partitions[0]._replace(isr=(late,), elr=())
        await member.commit([PartitionsChanged(topic.topic_id, {0: older})], catalog.revision)
        moved = FoundPartition("t", 0, topic.topic_id)
        with pytest.raises(StoreError, match="this broker has records of t-0, and the catalog gives"):
            await correct_older_catalog(member, 9, -1, {moved: 0}, 60)
        for node_id in (*others, late):
            await correct_older_catalog(
                member, node_id, -1, {moved: 20, moved._replace(topic_id=UUID(int=1)): 99}, 60
            )
        for node_id in (late, others[0]):
            await cluster.start(node_id)
            assert cluster.leader_of("t", 0) == NO_LEADER
        await cluster.start(others[1])
        await until(lambda: cluster.leader_of("t", 0) in others)
        assert cluster.topic("t").partitions[0].leader_epoch > 20
        assert await values(cluster, 3) == [b"0", b"1", b"2"]
        await in_sync(cluster, 3)
