"""Partitions that come and go under clients that use them meanwhile."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.test_services import opened, stored
from tests.waiting import until
from tidelog.broker.cluster.store import StoreError
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.roles import Role
from tidelog.broker.replicas.topics import NewTopic
from tidelog.broker.storage.manager import CLEAN_SHUTDOWN


async def test_a_start_that_fails_calls_no_crash_a_clean_shutdown(tmp_path: Path) -> None:
    services = await opened(tmp_path)
    await services.topics.create("t")
    await stored(services, b"v")
    await services.close(clean=False)
    with pytest.raises(StoreError, match=r"belongs to node\.id 1"):
        await opened(tmp_path, node_id=7)
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    services = await opened(tmp_path)
    assert services.replicas["t", 0].log.recovery.clean_shutdown is False
    await services.close()
    with pytest.raises(StoreError):
        await opened(tmp_path, node_id=7)
    services = await opened(tmp_path)
    assert services.replicas["t", 0].log.recovery.clean_shutdown is True
    await services.close()


@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_leader_epoch_that_no_leader_had_costs_no_record_and_no_partition(
    tmp_path: Path, is_clean: bool
) -> None:
    services = await opened(tmp_path)
    await services.topics.create("t")
    for _ in range(3):
        await stored(services, b"v")
    await services.close(clean=is_clean)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    one = len(data) // 3
    data[15] ^= 0x40
    data[2 * one + 12] ^= 0x80
    path.write_bytes(data)
    services = await opened(tmp_path)
    log = services.replicas["t", 0].log
    assert log.end_offset == 3
    assert len(log.recovery.file_problems) == 2
    await stored(services, b"v")
    assert log.end_offset == 4
    await services.close()


async def test_what_the_leader_of_an_earlier_epoch_said_changes_nothing(tmp_path: Path) -> None:
    services = await opened(tmp_path)
    topic: Any = await services.topics.create("t")
    await stored(services, b"v")
    replica, partitions, assigned = services.replicas["t", 0], services.partitions, topic.partitions[0]
    replica.follow(2, 7)
    await partitions.truncate(replica, 1, 0, services.catalog)
    await partitions.start_over(replica, 1, b"", services.catalog)
    before, now = (Role(is_leader=True, assigned=assigned._replace(leader_epoch=each)) for each in (0, 1))
    partitions.change_role(topic, 0, before, now)
    assert services.replicas["t", 0] is replica
    assert (replica.leader_epoch, replica.is_follower, replica.log.end_offset) == (2, True, 1)
    await services.close()


async def test_a_replica_that_is_removed_while_its_log_is_cut_does_not_begin_with_it(tmp_path: Path) -> None:
    services = await opened(tmp_path)
    topic: Any = await services.topics.create("t")
    replica, partitions = services.replicas["t", 0], services.partitions
    replica.follow(2, 7)
    async with partitions.disk_work:
        cut = asyncio.create_task(partitions.truncate(replica, 2, 0, services.catalog))
        await until(lambda: not services.replicas)
        partitions.stop(topic, 0)
    await cut
    assert not services.replicas
    await services.close()


async def test_a_follower_that_is_cut_back_still_knows_what_is_committed(tmp_path: Path) -> None:
    services = await opened(tmp_path)
    topic: Any = await services.topics.create("t")
    for _ in range(3):
        await stored(services, b"v")
    own = topic.partitions[0]
    copied = own._replace(leader_id=7, leader_epoch=2, replicas=(7, own.leader_id), isr=(7, own.leader_id))
    catalog: Any = SimpleNamespace(topic_by_id=lambda _: replace(topic, partitions=(copied,)))
    replica = services.replicas["t", 0]
    replica.follow(2, 7)
    await services.partitions.truncate(replica, 2, 2, catalog)
    again = services.replicas["t", 0]
    assert again is not replica
    assert (again.is_follower, again.log.end_offset, again.high_watermark) == (True, 2, 2)
    await services.close()


async def test_who_cannot_follow_a_role_keeps_no_other_from_it(tmp_path: Path) -> None:
    services = await opened(tmp_path)
    followed: list[tuple[str, int]] = []

    def broken(_: Replica) -> None:
        raise RuntimeError("a fault of ours")

    def follow(replica: Replica) -> None:
        followed.append((replica.topic, replica.partition))

    services.partitions.role_followers += [broken, follow]
    with capture_logs() as events:
        await services.topics.create("t", NewTopic(num_partitions=2))
    assert followed == [("t", 0), ("t", 1)]
    failed = [event for event in events if event["log_level"] == "error"]
    assert [(event["event"], event["partition"]) for event in failed] == [
        ("role_not_followed", 0),
        ("role_not_followed", 1),
    ]
    await stored(services, b"v")
    await services.close()


async def test_the_series_of_a_topic_end_with_it(tmp_path: Path) -> None:
    services = await opened(tmp_path)
    topic: Any = await services.topics.create("t")
    services.metrics.batch_appended("t", 1, 100)
    assert b'{topic="t"}' in services.metrics.render()
    await services.topics.delete(topic.topic_id)
    assert b'topic="t"' not in services.metrics.render()
    await services.close()
