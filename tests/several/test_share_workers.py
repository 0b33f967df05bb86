"""A pool of `ShareConsumer`s over broker processes that are killed: every job is done.

A member that has a job when its broker is killed loses its lock. Its acceptance may still succeed after
another member's, because brokers accept what is before the start offset, as Kafka does. So exactly once holds
for jobs that no kill interrupts: no other member begins or accepts one after that.
"""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from tests.several.served import WAYS, Served, served
from tests.waiting import DEADLINE_SECONDS, until
from tidelog import (
    AcknowledgementError,
    Admin,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    Producer,
    ShareConsumer,
)

JOBS = 120
WORKERS = 3
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1",
    "group.share.record.lock.duration.ms": "15000",
    "group.share.max.delivery.count.limit": "100",
    "group.share.delivery.count.limit": "100",
    "default.replication.factor": "1",
}
REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2"}


class Done:
    """What the workers began, and what they know to be accepted."""

    def __init__(self) -> None:
        self.begun: set[int] = set()
        self.accepted: set[int] = set()
        self.uninterrupted: set[int] = set()
        """Those of them that no kill interrupted."""
        self.again: list[int] = []
        """Jobs that were begun or accepted after they had been accepted without an interruption."""
        self.kills = 0
        """Begins and ends of them."""

    def begin(self, job: int) -> None:
        self.begun.add(job)
        self._check(job)

    def accept(self, job: int, *, is_uninterrupted: bool) -> None:
        self.accepted.add(job)
        if is_uninterrupted:
            self._check(job)
            self.uninterrupted.add(job)

    def _check(self, job: int) -> None:
        if job in self.uninterrupted:
            self.again.append(job)


async def work(address: str, done: Done) -> None:
    """Accept job by job, until cancelled."""
    async with ShareConsumer(
        "jobs",
        group_id="pool",
        bootstrap_servers=address,
        share_acknowledgement_mode="explicit",
        retry_backoff_ms=20,
        max_poll_records=5,
    ) as consumer:
        async for record in consumer:
            job = int(record.value or b"")
            kills = done.kills
            done.begin(job)
            record.accept()
            with suppress(AcknowledgementError):
                await consumer.commit()
                done.accept(job, is_uninterrupted=done.kills == kills)


async def fill(cluster: Served, way: str) -> None:
    replicas = cluster.count if way == "etcd" else 1
    configs = {"min.insync.replicas": "2"} if way == "etcd" else {}
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("jobs", 2, replicas, configs)])
        group = ConfigResource(ConfigResourceType.GROUP, "pool")
        await admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})


async def produce(cluster: Served, jobs: range) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for job in jobs:
            await producer.send_and_wait("jobs", b"%d" % job, key=b"%d" % job)


@pytest.mark.parametrize("way", WAYS)
async def test_every_job_is_done_whichever_broker_is_killed(tmp_path: Path, way: str) -> None:
    settings = SETTINGS | (REPLICATED if way == "etcd" else {})
    async with served(way, tmp_path, **settings) as cluster, asyncio.timeout(DEADLINE_SECONDS):
        await fill(cluster, way)
        done = Done()
        workers = [asyncio.ensure_future(work(cluster.bootstrap_servers, done)) for _ in range(WORKERS)]
        part = JOBS // cluster.count
        for broker in range(cluster.count):
            jobs = range(broker * part, (broker + 1) * part)
            producing = asyncio.ensure_future(produce(cluster, jobs))
            await until(lambda jobs=jobs: len(done.accepted) > jobs.start)  # type: ignore[misc]
            done.kills += 1
            async with cluster.without(broker):
                pass
            done.kills += 1
            await producing
        await until(lambda: done.begun == set(range(JOBS)))
        await until(lambda: len(done.accepted) >= JOBS - WORKERS * cluster.count)
        for worker in workers:
            worker.cancel()
        ended = await asyncio.gather(*workers, return_exceptions=True)
        assert not [each for each in ended if not isinstance(each, asyncio.CancelledError)]
        assert done.uninterrupted
        assert done.again == []
