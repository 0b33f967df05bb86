"""Partitions move between four brokers over a real etcd, while writers write and brokers are killed: nothing
acknowledged is lost, doubled or reordered, and folders are where the replicas are.

`make moves` runs it: PLAYS of some moves, each from a seed, SEED the first one. All moves are throttled.
"""

import asyncio
import os
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from faults.etcd import running_etcd
from faults.process import BrokerProcess
from tests.waiting import DEADLINE_SECONDS, pause, until
from tidelog.client import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
)
from tidelog.wire.errors import ClientError

NODES = (1, 2, 3, 4)
PARTITIONS = 4
SEED = int(os.environ.get("SEED") or time.time())
PLAYS = int(os.environ.get("PLAYS") or 4)
MOVES = 5
FILLED_BYTES = 3_000_000
"""Of each partition, before it is moved."""
RATE = 1_000_000
SETTINGS = {
    "broker.session.timeout.ms": 3000,
    "replica.fetch.wait.max.ms": 100,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.num.partitions": 4,
    "auto.create.topics.enable": "false",
}
SLOW: dict[str, Any] = {"request_timeout_ms": 60_000}


class Site:
    """The brokers, by node id."""

    def __init__(self, brokers: dict[int, BrokerProcess]) -> None:
        self.brokers = brokers

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{each.port}" for each in self.brokers.values())

    async def wait_for(self, admin: Admin, *, since: float) -> float:
        """Seconds until nothing is under way."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while await admin.reassignments.list():  # noqa: ASYNC110 (the brokers do not signal it)
                await asyncio.sleep(0.1)
        return time.monotonic() - since

    async def settled(self, admin: Admin) -> None:
        """All replicas are in sync, and nobody else has a folder."""

        async def is_settled() -> bool:
            for topic in await admin.describe_topics():
                for each in topic.partitions:
                    if each.leader < 0 or {*each.isr} != {*each.replicas}:
                        return False
                    if self.folders(topic.name, each.partition) != {*each.replicas}:
                        return False
            return True

        await until(is_settled)

    def folders(self, topic: str, partition: int) -> set[int]:
        name = f"{topic}-{partition}"
        return {node for node, each in self.brokers.items() if (each.data_dir / name).exists()}


@asynccontextmanager
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with running_etcd(tmp_path) as members:
        brokers = {}
        for node in NODES:
            more = {"node.id": node, "cluster.store": f"etcd:{members.endpoints[0]}"}
            brokers[node] = BrokerProcess(tmp_path / f"broker-{node}", settings={**SETTINGS, **more})
        try:
            await asyncio.gather(*(each.start() for each in brokers.values()))
            yield Site(brokers)
        finally:
            await asyncio.gather(*(each.kill_9() for each in brokers.values() if each.is_running))


async def write(site: Site, acknowledged: dict[int, list[bytes]]) -> None:
    """With acks=all, one after the other in each partition; until cancelled."""
    async with Producer(
        bootstrap_servers=site.bootstrap_servers, delivery_timeout_ms=120_000, **SLOW
    ) as producer:
        number = 0
        while True:
            number += 1
            sent = [await producer.send("t", b"w%d" % number, partition=each) for each in range(PARTITIONS)]
            for partition, future in enumerate(sent):
                await future
                acknowledged[partition].append(b"w%d" % number)


async def transact(site: Site, committed: dict[int, list[bytes]], aborted: set[bytes]) -> None:
    """Each transaction has a record in each partition; every third is aborted. What an error leaves unknown
    is in neither."""
    number = 0
    while True:
        with suppress(ClientError):
            async with Producer(
                bootstrap_servers=site.bootstrap_servers, transactional_id="mover", **SLOW
            ) as producer:
                while True:
                    number += 1
                    value = b"x%d" % number
                    await producer.begin_transaction()
                    for partition in range(PARTITIONS):
                        _ = await producer.send("t", value, partition=partition)
                    if number % 3:
                        await producer.commit_transaction()
                        for partition in range(PARTITIONS):
                            committed[partition].append(value)
                    else:
                        aborted.add(value)
                        await producer.abort_transaction()


async def move(site: Site, admin: Admin, chance: random.Random) -> str:
    """One partition, with something that happens meanwhile."""
    partition = chance.randrange(PARTITIONS)
    key = TopicPartition("t", partition)
    (topic,) = await admin.describe_topics(["t"])
    present = topic.partitions[partition]
    target = chance.sample(NODES, chance.choice((2, 3, 3)))
    adding = [each for each in target if each not in present.replicas]
    what = chance.choice(("nothing", "leader", "adding", "controller", "cancel", "another", "cancel"))
    began = time.monotonic()
    await admin.reassignments.alter({key: target})
    await pause(chance.choice((0, 0.02, 0.1, 0.5)))
    victim = {
        "leader": present.leader,
        "adding": adding[0] if adding else present.leader,
        "controller": (await admin.describe_cluster()).controller_id,
    }.get(what, -1)
    if victim > 0:
        await site.brokers[victim].kill_9()
        await pause(chance.choice((0.1, 1, 3)))
        await site.brokers[victim].start()
    elif what == "cancel":
        for each in await admin.reassignments.list():
            with suppress(ClientError):  # It was completed meanwhile.
                await admin.reassignments.alter({each: None})
    elif what == "another":
        target = chance.sample(NODES, 3)
        await admin.reassignments.alter({key: target})
    seconds = await site.wait_for(admin, since=began)
    async with asyncio.timeout(DEADLINE_SECONDS):  # The broker that is asked may hear of it later.
        while True:
            (topic,) = await admin.describe_topics(["t"])
            now = topic.partitions[partition].replicas
            if now == tuple(target) or (what == "cancel" and {*now} == {*present.replicas}):
                break
    return f"{present.replicas} -> {now} ({what} {victim if victim > 0 else ''}) {seconds:.1f} s"


async def fill(site: Site) -> None:
    async with Producer(bootstrap_servers=site.bootstrap_servers, **SLOW) as producer:
        for partition in range(PARTITIONS):
            for _ in range(FILLED_BYTES // 500_000):
                await producer.send_and_wait("t", b"f" + bytes(500_000), partition=partition)


async def throttle(admin: Admin) -> None:
    of_topic = {f"{side}.replication.throttled.replicas": "*" for side in ("leader", "follower")}
    of_broker = {f"{side}.replication.throttled.rate": str(RATE) for side in ("leader", "follower")}
    await admin.alter_configs({ConfigResource(ConfigResourceType.TOPIC, "t"): of_topic})
    for node in NODES:
        await admin.alter_configs({ConfigResource(ConfigResourceType.BROKER, str(node)): of_broker})


@pytest.mark.parametrize("seed", range(SEED, SEED + PLAYS))
async def test_nothing_is_lost_doubled_or_reordered_while_partitions_move(tmp_path: Path, seed: int) -> None:
    print(f"\nSEED={seed}")
    chance = random.Random(seed)
    async with site(tmp_path) as running, Admin(bootstrap_servers=running.bootstrap_servers, **SLOW) as admin:
        await admin.create_topics([NewTopic("t", PARTITIONS, 3)])
        await fill(running)
        await throttle(admin)
        acknowledged: defaultdict[int, list[bytes]] = defaultdict(list)
        committed: defaultdict[int, list[bytes]] = defaultdict(list)
        aborted: set[bytes] = set()
        writers = [
            asyncio.create_task(write(running, acknowledged)),
            asyncio.create_task(transact(running, committed, aborted)),
        ]
        try:
            for number in range(MOVES):
                print(f"{number:3}  {await move(running, admin, chance)}")
                assert not any(each.done() for each in writers), [
                    each.result() for each in writers if each.done()
                ]
            internal = await admin.describe_topics()
            await admin.reassignments.alter(
                {
                    TopicPartition(topic.name, each.partition): chance.sample(NODES, 3)
                    for topic in internal
                    if topic.is_internal
                    for each in topic.partitions
                }
            )
            print(f"internal topics: {await running.wait_for(admin, since=time.monotonic()):.1f} s")
        finally:
            for each in writers:
                each.cancel()
            await asyncio.wait(writers)
        async with Producer(bootstrap_servers=running.bootstrap_servers, transactional_id="mover", **SLOW):
            """Its start ends the transaction that may be open."""
        await running.settled(admin)
        count = 0
        for partition in range(PARTITIONS):
            found = await values(running, partition)
            for kind, wanted in ((b"w", acknowledged[partition]), (b"x", committed[partition])):
                numbers = [int(each[1:]) for each in found if each[:1] == kind]
                assert numbers == sorted({*numbers}), f"partition {partition}: doubled or reordered"
                assert {*wanted} <= {*found}, f"partition {partition} lacks { ({*wanted} - {*found}) }"
                count += len(wanted)
            assert not aborted & {*found}
        print(f"{count} acknowledged records are there once, in order; {len(aborted)} aborted ones are not")


async def values(running: Site, partition: int) -> list[bytes]:
    """What a reader of committed records finds in a partition."""
    key = TopicPartition("t", partition)
    async with Consumer(
        bootstrap_servers=running.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.assign([key])
        end = (await consumer.end_offsets([key]))[key]
        found: list[bytes] = []
        async with asyncio.timeout(DEADLINE_SECONDS):
            while await consumer.position(key) < end:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += [record.value or b"" for record in records]
        return found
