"""The coordinator of groups: a log that fails gives its own groups a clear error, and others nothing."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.conftest import Clock, OpenServices
from tests.unit.broker.test_stopping import FullDisk
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.cluster.catalog import OFFSETS_TOPIC, PartitionAssignment, PartitionsChanged
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.coordinator import runtime, shards
from tidelog.broker.coordinator.decision import Decision, Parked
from tidelog.broker.coordinator.log_journal import LogJournal
from tidelog.broker.coordinator.offsets.committed_offsets import Committer
from tidelog.broker.coordinator.offsets.offset_records import CommittedOffset, OffsetRecord
from tidelog.broker.coordinator.shards import RELOAD_AFTER_MS, partition_of
from tidelog.broker.services import Services
from tidelog.broker.storage.disk import Disk
from tidelog.protocol.errors import ApiError, ErrorCode

HURT, WHOLE = "hurt", "whole"
"""Two groups of different partitions."""
COMMITS = 30


async def commit(services: Services, group: str, offset: int) -> None:
    records = [OffsetRecord(group, "t", 0, CommittedOffset(offset, metadata="x" * 1_000))]
    await services.groups.run(group, lambda machine: machine.offsets.commit(group, Committer(), records))


async def committed(services: Services, group: str) -> int:
    held: Any = await services.groups.read(group, lambda machine: machine.offsets.fetch(group, None))
    return int(held["t"][0].offset)


async def begun(open_here: OpenServices, disk: Disk | None = None) -> Services:
    services = await open_here(disk=disk)
    assert partition_of(HURT, 5) != partition_of(WHOLE, 5)
    await services.groups.make_topic()
    for group in (HURT, WHOLE):
        await commit(services, group, 1)
    return services


def log_of(folder: Path, group: str) -> Path:
    return next((folder / f"{OFFSETS_TOPIC}-{partition_of(group, 5)}").glob("*.log"))


async def code_of(work: Any) -> ErrorCode:
    with pytest.raises(ApiError) as failed:
        await work
    return failed.value.code


async def test_a_damaged_log_fails_for_its_own_groups_alone_until_it_can_be_read(
    open_here: OpenServices, tmp_path: Path, clock: Clock
) -> None:
    services = await begun(open_here)
    size = services.replicas[OFFSETS_TOPIC, partition_of(HURT, 5)].log.size_bytes
    for offset in range(2, COMMITS + 1):
        await commit(services, HURT, offset)
    await services.close()
    path = log_of(tmp_path, HURT)
    whole = path.read_bytes()
    # Far from the end: the start cuts off damage at the end of a log, and says so.
    path.write_bytes(whole[: size - 1] + bytes([whole[size - 1] ^ 1]) + whole[size:])
    with capture_logs() as events:
        services = await open_here()
        assert await code_of(commit(services, HURT, 99)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await code_of(committed(services, HURT)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(ApiError) as nobody:
        services.groups.check(HURT)
    assert nobody.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "damaged" in nobody.value.message
    (event,) = [event for event in events if event["event"] == "coordinator_not_loaded"]
    assert (event["topic"], event["partition"]) == (OFFSETS_TOPIC, partition_of(HURT, 5))
    services.groups.check(WHOLE)
    await commit(services, WHOLE, 2)
    assert await committed(services, WHOLE) == 2
    path.write_bytes(whole)
    clock.now_ms += RELOAD_AFTER_MS - 1
    assert await code_of(committed(services, HURT)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    clock.now_ms += 1
    assert await committed(services, HURT) == COMMITS


async def test_a_replay_that_ends_by_an_unexpected_error_is_an_error_and_is_tried_again(
    open_here: OpenServices, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    await (await begun(open_here)).close()

    def lacks_memory() -> Any:
        raise MemoryError

    with monkeypatch.context() as patch, capture_logs() as events:
        patch.setattr(runtime, "Pace", lacks_memory)
        services = await open_here()
        assert await code_of(committed(services, HURT)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert any(
        "MemoryError()" in each["error"] for each in events if each["event"] == "coordinator_not_loaded"
    )
    clock.now_ms += RELOAD_AFTER_MS
    assert await committed(services, HURT) == 1


async def test_a_log_that_cannot_be_opened_fails_for_its_own_groups_alone(
    open_here: OpenServices, tmp_path: Path
) -> None:
    await (await begun(open_here)).close()
    path = log_of(tmp_path, HURT)
    path.unlink()
    path.mkdir()
    services = await open_here()
    assert await code_of(commit(services, HURT, 2)) == ErrorCode.NOT_COORDINATOR
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE):
        services.groups.check(HURT)
    assert await committed(services, WHOLE) == 1


async def test_a_long_replay_gives_an_error_and_requests_after_it_are_served(
    open_here: OpenServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await begun(open_here)).close()
    goes_on = asyncio.Event()
    read = LogJournal.news

    async def held_up(journal: LogJournal[Any]) -> Any:
        await goes_on.wait()
        return await read(journal)

    monkeypatch.setattr(LogJournal, "news", held_up)
    monkeypatch.setattr(shards, "LOAD_WAIT_SECONDS", 0.001)
    services = await open_here()
    assert await code_of(committed(services, HURT)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    services.groups.check(HURT)
    monkeypatch.setattr(shards, "LOAD_WAIT_SECONDS", 60)
    waiting = asyncio.create_task(committed(services, HURT))
    await asyncio.sleep(0)
    assert not waiting.done()
    goes_on.set()
    assert await waiting == 1


@pytest.mark.parametrize("ends", ["the leadership", "the broker"])
async def test_a_replay_that_ends_with_the_leadership_or_the_broker_is_no_complaint_about_the_disk(
    open_here: OpenServices, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    await (await begun(open_here)).close()
    ended = asyncio.Event()
    read = LogJournal.news

    async def held_up(journal: LogJournal[Any]) -> Any:
        await ended.wait()
        return await read(journal)

    monkeypatch.setattr(LogJournal, "news", held_up)
    with capture_logs() as events:
        services = await open_here()
        shard = services.groups._shards.of(HURT)
        if ends == "the broker":
            shard._journal.stop_reading()
        else:
            shard.replica.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        ended.set()
        assert await code_of(shard.ready()) == ErrorCode.NOT_COORDINATOR
    assert "coordinator_not_loaded" not in {event["event"] for event in events}


async def test_a_full_disk_refuses_commits_for_a_while_and_keeps_stored_ones(open_here: OpenServices) -> None:
    disk = FullDisk()
    services = await begun(open_here, disk)
    disk.is_full = True
    assert await code_of(commit(services, HURT, 2)) == ErrorCode.NOT_COORDINATOR
    assert await committed(services, HURT) == 1
    disk.is_full = False
    await commit(services, HURT, 3)
    assert await committed(services, HURT) == 3


async def test_a_disk_that_fails_ends_the_coordinator_of_that_partition(open_here: OpenServices) -> None:
    services = await begun(open_here)
    services.replicas[OFFSETS_TOPIC, partition_of(HURT, 5)].fail(OSError(errno.EIO, "the disk fails"))
    assert await code_of(commit(services, HURT, 2)) == ErrorCode.NOT_COORDINATOR
    assert await code_of(committed(services, HURT)) == ErrorCode.NOT_COORDINATOR
    await commit(services, WHOLE, 2)


async def test_a_partition_that_cannot_be_swept_is_logged_and_all_others_are_swept(
    open_here: OpenServices, clock: Clock
) -> None:
    services = await begun(open_here)
    services.replicas[OFFSETS_TOPIC, partition_of(HURT, 5)].fail(OSError(errno.EIO, "the disk fails"))
    clock.now_ms += BrokerConfig().offsets_retention_minutes * 60_000 + 1
    with capture_logs() as events:
        await services.groups.sweep()
    refused = [event["partition"] for event in events if event["event"] == "offsets_not_expired"]
    assert refused == [partition_of(HURT, 5)]
    assert not await services.groups.read(WHOLE, lambda machine: machine.offsets.fetch(WHOLE, None))


async def test_a_topic_that_cannot_be_made_is_a_coordinator_that_does_not_exist(
    open_here: OpenServices,
) -> None:
    disk = FullDisk()
    services = await open_here(disk=disk)
    disk.is_full = True
    assert await code_of(services.groups.make_topic()) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    disk.is_full = False
    await services.groups.make_topic()
    await commit(services, HURT, 1)


async def test_clients_that_need_the_topic_at_the_same_time_create_it_once(open_here: OpenServices) -> None:
    services = await open_here()
    await asyncio.gather(*(services.groups.make_topic() for _ in range(5)))
    await asyncio.gather(*(commit(services, f"g{number}", number) for number in range(50)))
    assert [await committed(services, f"g{number}") for number in range(50)] == list(range(50))


async def test_a_deleted_topic_s_offsets_are_removed_from_the_log_too(open_here: OpenServices) -> None:
    services = await begun(open_here)
    topic = await services.topics.create("t")
    await services.topics.delete(topic.topic_id)

    async def held(group: str) -> Any:
        return await services.groups.read(group, lambda machine: machine.offsets.fetch(group, None))

    for group in (HURT, WHOLE):
        async with asyncio.timeout(DEADLINE_SECONDS):
            while await held(group):  # noqa: ASYNC110 (not ours to signal)
                await asyncio.sleep(0.001)
        assert services.replicas[OFFSETS_TOPIC, partition_of(group, 5)].high_watermark == 2


async def test_groups_are_replayed_when_the_lead_of_their_partition_comes_back(
    open_here: OpenServices,
) -> None:
    services = await begun(open_here)
    partition = partition_of(HURT, 5)
    before = services.groups._shards.of_partition(partition)
    topic = services.catalog.topic(OFFSETS_TOPIC)
    assert topic is not None
    for leader_epoch, leader_id in ((1, -1), (2, 1)):
        led = PartitionAssignment(leader_id, leader_epoch, (1,), (1,))
        change = PartitionsChanged(topic.topic_id, {partition: led})
        await services.cluster.change(lambda _, change=change: change)
        if leader_id == -1:
            assert await code_of(committed(services, HURT)) == ErrorCode.NOT_COORDINATOR
    assert await committed(services, HURT) == 1
    assert services.groups._shards.of_partition(partition) is not before
    await commit(services, HURT, 2)
    assert await committed(services, WHOLE) == 1


async def test_a_request_that_waits_is_not_answered_while_another_broker_may_coordinate(
    open_here: OpenServices,
) -> None:
    services = await open_here()
    await services.groups.make_topic()
    is_cut_off = False
    services.groups.refuse_while(lambda: is_cut_off)
    waiting = services.groups.run(HURT, lambda machine: lambda now_ms: Decision((), Parked("the answer")))
    asked = asyncio.create_task(waiting)
    shard = services.groups._shards.of(HURT)
    await until(lambda: shard.runtime._parked)
    is_cut_off = True
    await shard.runtime.run(lambda now_ms: Decision((), None, released={"the answer": "stale"}))
    assert await code_of(asked) == ErrorCode.NOT_COORDINATOR
