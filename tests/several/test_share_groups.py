"""Share groups over several brokers: who leads the partition, keeps its state and coordinates the group are
three of them. Whichever is killed, what was accepted is never delivered again, and nothing is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.several.brokers import Brokers, brokers
from tests.unit.broker.conftest import Clock
from tests.unit.broker.handlers.conftest import Asker
from tests.unit.broker.handlers.sharing import ACCEPT, REJECT, Member
from tests.waiting import DEADLINE_SECONDS, pause, until
from tidelog.broker.app import Broker
from tidelog.broker.cluster.catalog import MIN_INSYNC_REPLICAS, OFFSETS_TOPIC, SHARE_STATE_TOPIC
from tidelog.broker.coordinator.shards import partition_of
from tidelog.broker.coordinator.share_states.state import SharePartitionKey, coordinator_key
from tidelog.broker.replicas import topics
from tidelog.client import Admin, Consumer, DeadLetter, NewTopic, Producer
from tidelog.protocol.errors import ApiError

RECORDS = 300
WORKERS = 3
SETTINGS: dict[str, Any] = {
    "offsets_topic_replication_factor": 3,
    "share_coordinator_state_topic_replication_factor": 3,
    "default_replication_factor": 3,
    "min_insync_replicas": 2,
    "group_share_min_record_lock_duration_ms": 1,
    "group_share_record_lock_duration_ms": 1_000,
    "group_share_delivery_count_limit": 100,
    "group_share_max_delivery_count_limit": 100,
    "broker_session_timeout_ms": 1_000,
    "replica_fetch_wait_max_ms": 50,
    "shutdown_timeout_ms": 0,
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with brokers(tmp_path, **SETTINGS) as running:
        async with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("jobs", 1, 3, {MIN_INSYNC_REPLICAS: "2"})])
        for broker in running.running.values():
            await broker.services.groups.make_topic()
            await broker.services.share.coordinator.make_topic()
        await running.agreed()
        yield running


class Worker:
    """A member that accepts record by record, and begins again wherever the leader is after an error."""

    def __init__(self, cluster: Brokers, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._askers: dict[Broker, Asker] = {}
        self.unanswered: set[int] = set()
        """What it accepted while the broker that was to answer was killed."""
        self.again: list[int] = []
        """Records that it got although they had been accepted, here or by another."""

    def _asker(self, node_id: int) -> Asker:
        broker = self._cluster.running[node_id]
        if broker not in self._askers:
            self._askers[broker] = Asker(broker.services, Clock())
        return self._askers[broker]

    async def run(self, done: set[int]) -> None:
        """Until it is cancelled."""
        while True:
            with suppress(ApiError, KeyError, AssertionError):
                await self._join()
                leader = self._asker(self._cluster.leader_of("jobs", 0))
                member = Member(leader, member_id=self._name, epoch=0)
                while True:
                    await self._work(member, done)
            await pause(0.01)

    async def _join(self) -> None:
        group = self._cluster.topic(OFFSETS_TOPIC)
        leader = group.partitions[partition_of("pool", len(group.partitions))].leader_id
        member = Member(self._asker(leader), member_id=self._name)
        await member.heartbeat(0)

    async def _work(self, member: Member, done: set[int]) -> None:
        before = frozenset(done)
        found = await member.got(max_records=5, max_wait_ms=200)
        self.again += before.intersection(found)
        self.unanswered.update(found)
        for offset in found:
            if not await member.acknowledge((offset, offset, [ACCEPT])):
                self.unanswered.discard(offset)
                done.add(offset)


def state_leader(cluster: Brokers) -> int:
    topic = cluster.topic(SHARE_STATE_TOPIC)
    key = SharePartitionKey("pool", cluster.topic("jobs").topic_id, 0)
    return topic.partitions[partition_of(coordinator_key(key), len(topic.partitions))].leader_id


async def start_offset(cluster: Brokers) -> int:
    """All records before it are done."""
    states = next(iter(cluster.running.values())).services.share.states
    return (await states.summary(SharePartitionKey("pool", cluster.topic("jobs").topic_id, 0))).start_offset


async def test_whichever_broker_is_killed_no_accepted_record_comes_again_and_none_is_lost(
    cluster: Brokers,
) -> None:
    done: set[int] = set()
    await Member(Asker(cluster[1].services, Clock())).configure(**{"share.auto.offset.reset": "earliest"})
    await cluster.agreed()
    workers = [Worker(cluster, f"worker-{number}") for number in range(WORKERS)]
    tasks = [asyncio.ensure_future(worker.run(done)) for worker in workers]
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for part, role in enumerate(("leader", "state", "leader")):
            for number in range(RECORDS // 3):
                await producer.send("jobs", b"%d" % number)
            await until(partial(has_more, done, part * RECORDS // 3))
            victim = cluster.leader_of("jobs", 0) if role == "leader" else state_leader(cluster)
            await cluster.kill(victim)
            await until(lambda: cluster.leader_of("jobs", 0) in cluster.running)
            await until(lambda: state_leader(cluster) in cluster.running)
            await cluster.start(victim)
    async with asyncio.timeout(DEADLINE_SECONDS):
        while await start_offset(cluster) < RECORDS:
            await pause(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    assert done.union(*(worker.unanswered for worker in workers)) == set(range(RECORDS))
    assert [worker.again for worker in workers] == [[]] * WORKERS


async def test_a_dead_letter_goes_to_the_leader_of_its_topic_wherever_that_is(cluster: Brokers) -> None:
    leader = cluster.leader_of("jobs", 0)
    other = next(each for each in cluster.running if each != leader)
    enabled = {"errors.deadletterqueue.group.enable": "true"}
    wanted = topics.NewTopic(assignments={0: [other]}, configs={**enabled, MIN_INSYNC_REPLICAS: "1"})
    await cluster[other].services.topics.create("dlq.jobs", wanted)
    await cluster.agreed()
    asker = Asker(cluster[leader].services, Clock())
    await Member(asker).configure(
        **{"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": "dlq.jobs"}
    )
    await cluster.agreed()
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("jobs", b"poison")
    await Worker(cluster, "worker")._join()
    member = Member(asker, member_id="worker", epoch=0)
    assert await member.got(max_wait_ms=5_000) == {0: 1}
    assert await member.acknowledge((0, 0, [REJECT])) == 0
    async with Consumer(
        "dlq.jobs", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        letter = DeadLetter.of(await consumer.getone())
    assert (letter.topic_partition, letter.offset) == (("jobs", 0), 0)


def has_more(done: set[int], count: int) -> bool:
    return len(done) > count
