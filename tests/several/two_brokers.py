"""Two brokers, and three members of etcd, the third on a small machine: what docs/cluster.md says holds."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from faults.etcd import EtcdMembers, running_etcd
from faults.process import BrokerProcess, BrokerProcessError
from tests.several.processes import QUICK
from tests.waiting import until
from tidelog.client import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
)
from tidelog.client.errors import DeliveryError

pytestmark = pytest.mark.needs_etcd
_PARTITIONS = 4
_ORDERS = ConfigResource(ConfigResourceType.TOPIC, "orders")


class Site:
    """Two machines, each with a broker and a member of etcd, and the arbiter with a member."""

    def __init__(self, brokers: dict[int, BrokerProcess], etcd: EtcdMembers) -> None:
        self.brokers = brokers
        self.etcd = etcd
        self.address = ",".join(f"127.0.0.1:{each.port}" for each in brokers.values())
        self.written = 0

    async def fail(self, machine: int) -> None:
        """As without power."""
        await self.brokers[machine].kill_9()
        await self.etcd.kill(machine)

    async def bring_back(self, machine: int) -> None:
        await self.etcd.start(machine)
        await self.brokers[machine].start()
        async with Admin(bootstrap_servers=self.address) as admin:

            async def is_in_sync() -> bool:
                topics = await admin.describe_topics()
                return all(len(each.isr) == 2 for topic in topics for each in topic.partitions)

            await until(is_in_sync)

    async def write(self) -> None:
        """A transaction with a record to each partition, and the offsets of a group."""
        async with Producer(bootstrap_servers=self.address, transactional_id="writer") as producer:
            await producer.begin_transaction()
            for partition in range(_PARTITIONS):
                await producer.send_and_wait("orders", b"%d" % self.written, partition=partition)
            offsets = {TopicPartition("orders", each): self.written for each in range(_PARTITIONS)}
            await producer.send_offsets_to_transaction(offsets, "group")
            await producer.commit_transaction()
        self.written += 1

    async def read(self, least: int | None = None) -> None:
        """Each number, or at `least` so many, is in each partition once, in order."""
        least = self.written if least is None else least
        found: dict[int, list[int]] = {each: [] for each in range(_PARTITIONS)}
        async with Consumer(
            bootstrap_servers=self.address, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            consumer.assign([TopicPartition("orders", each) for each in range(_PARTITIONS)])
            while min(map(len, found.values())) < least:
                record = await consumer.getone()
                found[record.partition].append(int(record.value or b""))
        assert all(each == list(range(len(each))) for each in found.values())


@asynccontextmanager
async def two_brokers(folder: Path, least_in_sync: int) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        etcd = await stack.enter_async_context(running_etcd(folder, 3))
        settings = {
            **QUICK,
            "cluster.store": etcd.store,
            "default.replication.factor": 2,
            "min.insync.replicas": least_in_sync,
            "broker.session.timeout.ms": 3000,
        }
        brokers = {
            number: BrokerProcess(folder / f"broker-{number}", settings=settings | {"node.id": number})
            for number in (0, 1)
        }
        for broker in brokers.values():
            await stack.enter_async_context(broker)
        site = Site(brokers, etcd)
        async with Admin(bootstrap_servers=site.address) as admin:

            async def are_live() -> bool:
                return len((await admin.describe_cluster()).brokers) == len(brokers)

            await until(are_live)
            await admin.create_topics([NewTopic("orders", _PARTITIONS), NewTopic("others")])
            [topic] = await admin.describe_topics(["orders"])
        assert {tuple(sorted(each.replicas)) for each in topic.partitions} == {(0, 1)}
        await site.write()
        yield site


async def test_with_one_in_sync_the_other_broker_goes_on_whichever_machine_fails(tmp_path: Path) -> None:
    async with two_brokers(tmp_path, 1) as site:
        for machine in (0, 1):
            await site.fail(machine)
            await site.write()
            await site.read()
            await site.bring_back(machine)
        await site.fail(0)
        await site.read()


async def test_with_one_in_sync_the_disk_of_the_last_broker_is_not_given_up_unasked(tmp_path: Path) -> None:
    async with two_brokers(tmp_path, 1) as site:
        await site.fail(0)
        await site.write()
        await site.brokers[1].kill_9()
        shutil.rmtree(site.brokers[1].data_dir)
        await site.etcd.start(0)
        await site.brokers[0].start()
        with pytest.raises(BrokerProcessError, match="no other broker has those of"):
            await site.brokers[1].start()


async def test_with_two_in_sync_writes_wait_for_both_and_a_lost_disk_loses_nothing(tmp_path: Path) -> None:
    async with two_brokers(tmp_path, 2) as site:
        await site.write()
        await site.read()
        await site.fail(0)
        async with Producer(bootstrap_servers=site.address, delivery_timeout_ms=3000) as producer:
            with pytest.raises(DeliveryError):
                await producer.send_and_wait("others", b"refused or not acknowledged", partition=0)
        # A new leader may not know of the last records that they are committed.
        await site.read(site.written - 1)
        shutil.rmtree(site.brokers[0].data_dir)
        await site.bring_back(0)
        await site.write()
        await site.read()
        await site.fail(1)
        async with Admin(bootstrap_servers=site.address) as admin:
            await admin.alter_configs({_ORDERS: {"min.insync.replicas": "1"}})
        await site.read()


async def test_without_the_arbiter_and_a_machine_nothing_is_written_and_nothing_lost(tmp_path: Path) -> None:
    async with two_brokers(tmp_path, 1) as site:
        await site.etcd.kill(2)
        await site.write()
        await site.fail(0)
        # Those that the machine led have no leader, as no member of etcd may write.
        async with Producer(bootstrap_servers=site.address, delivery_timeout_ms=5000) as producer:
            sent = [await producer.send("orders", b"waits", partition=each) for each in range(_PARTITIONS)]
            outcomes = await asyncio.gather(*sent, return_exceptions=True)
        assert any(isinstance(each, DeliveryError) for each in outcomes)
        await site.etcd.start(2)
        await site.write()
