"""The reconciler: replicas begin, change their role and end as the catalog says, whoever changed it."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.unit.broker.conftest import NOW_MS, Clock
from tests.unit.broker.handlers.conftest import Asker, make_batch
from tests.unit.broker.replicas.test_topic_making import BadDisk, folders
from tests.unit.broker.test_services import batch, opened, stored
from tests.waiting import until
from tidelog.broker.cluster.catalog import (
    BrokerRegistered,
    BrokerRegistration,
    Change,
    Delta,
    PartitionAssignment,
    PartitionsAdded,
    PartitionsChanged,
    Topic,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
)
from tidelog.broker.cluster.placement import assign
from tidelog.broker.replicas.reconciler import STEP_COST_REPLICA
from tidelog.broker.replicas.topics import NewTopic
from tidelog.broker.services import Services
from tidelog.broker.storage.checkpoints import read_topic_id
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.log_types import Read
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import ELEMENTS_PER_STEP

MANY = 2 * ELEMENTS_PER_STEP


class ManyHandles(Disk):
    """Says that files may be opened as many as it takes: logs without records keep none open."""

    def free_handles(self) -> int:
        return 1 << 30

    def handle_limit(self) -> int:
        return 1 << 30


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Services]:
    made = await opened(tmp_path, disk=ManyHandles())
    yield made
    await made.close()


async def changed(services: Services, delta: Delta) -> None:
    """Let somebody else than this broker's own requests change the catalog."""
    await services.cluster.change(lambda _: delta)
    await services.reconciler.settled()


def led_by(leader_id: int, leader_epoch: int, *replicas: int) -> PartitionAssignment:
    return PartitionAssignment(leader_id, leader_epoch, replicas or (1, 2), (leader_id,))


async def created_by_others(services: Services, *partitions: PartitionAssignment, name: str = "t") -> UUID:
    topic = Topic(name, uuid4(), partitions)
    await changed(services, TopicCreated(topic))
    return topic.topic_id


def refusal(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value.code


async def test_a_topic_that_others_created_is_made_and_served_here(
    services: Services, tmp_path: Path
) -> None:
    await created_by_others(services, led_by(1, 7), led_by(2, 3), led_by(2, 3, 2))
    assert folders(tmp_path) == ["t-0", "t-1"]
    await stored(services, b"v")
    assert services.replica("t", 0, 7).leader_epoch == 7
    assert services.replica("t", 0).log.leader_epoch == 7
    for index in (1, 2):
        assert refusal(lambda: services.replica("t", index)) == ErrorCode.NOT_LEADER_OR_FOLLOWER  # noqa: B023


async def test_partitions_that_others_added_are_served_here(services: Services) -> None:
    topic = await services.topics.create("t")
    await changed(services, PartitionsAdded(topic.topic_id, assign(2, [1])))
    assert sorted(services.replicas) == [("t", 0), ("t", 1), ("t", 2)]
    assert services.replica("t", 2).append_as_leader(batch(), NOW_MS).base_offset == 0


async def test_a_topic_that_others_deleted_ends_here_with_its_folders(
    services: Services, tmp_path: Path
) -> None:
    topic = await services.topics.create("t", NewTopic(num_partitions=2))
    replica = services.replicas["t", 0]
    replica.append_as_leader(batch(), NOW_MS)
    await changed(services, TopicDeleted(topic.topic_id, (1,)))
    assert (services.replicas, folders(tmp_path)) == ({}, [])
    assert replica.stopped == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # It is remembered until a later deletion says that its folders are gone.
    assert services.catalog.deleted.keys() == {topic.topic_id}
    other = await services.topics.create("u")
    await services.topics.delete(other.topic_id)
    assert services.catalog.deleted.keys() == {other.topic_id}


async def test_settings_that_others_changed_hold_in_the_running_logs(services: Services) -> None:
    topic = await services.topics.create("t", NewTopic(num_partitions=2))
    await changed(services, TopicConfigsChanged(topic.topic_id, {"segment.bytes": "4321"}))
    assert {replica.log.config.segment_bytes for replica in services.replicas.values()} == {4321}


class StuckFlushes(Disk):
    """Lets no flush of a log end until the test says so."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.may_end.set()

    def fdatasync(self, fd: int) -> None:
        self.may_end.wait(60)
        super().fdatasync(fd)


async def test_another_leader_ends_the_service_and_its_return_begins_it_in_a_later_epoch(
    tmp_path: Path,
) -> None:
    disk = StuckFlushes()
    services = await opened(tmp_path, disk=disk)
    topic_id = await created_by_others(services, led_by(1, 0))
    await stored(services, b"kept")
    replica = services.replica("t", 0)
    disk.may_end.clear()
    replica.append_as_leader(batch(b"not durable yet"), NOW_MS)
    waiting = replica.committed(2)
    await changed(services, PartitionsChanged(topic_id, {0: led_by(2, 1)}))
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER):
        await waiting
    for call in (
        lambda: services.replica("t", 0),
        lambda: replica.append_as_leader(batch(), NOW_MS),
        lambda: replica.read(Read(0, 100, 1)),
    ):
        assert refusal(call) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await changed(services, PartitionsChanged(topic_id, {0: led_by(1, 2)}))
    disk.may_end.set()
    assert services.replica("t", 0, 2) is replica
    assert refusal(lambda: services.replica("t", 0, 0)) == ErrorCode.FENCED_LEADER_EPOCH
    assert refusal(lambda: services.replica("t", 0, 3)) == ErrorCode.UNKNOWN_LEADER_EPOCH
    await stored(services, b"of the later epoch")
    assert (replica.high_watermark, replica.log.leader_epoch) == (3, 2)
    assert replica.end_offset_for_epoch(0) == (0, 2)
    await services.close()


async def test_what_was_appended_before_another_leads_becomes_durable_all_the_same(
    services: Services,
) -> None:
    topic_id = await created_by_others(services, led_by(1, 0))
    replica = services.replica("t", 0)
    replica.append_as_leader(batch(), NOW_MS)
    await changed(services, PartitionsChanged(topic_id, {0: led_by(2, 1)}))
    await until(lambda: replica.log.flushed_end_offset == 1)


async def test_an_offline_partition_stays_offline_under_any_leader(tmp_path: Path) -> None:
    services = await opened(tmp_path)
    topic_id = await created_by_others(services, led_by(1, 0))
    services.replicas["t", 0].fail(OSError(errno.EIO, "the disk"))
    for epoch, leader in ((1, 2), (2, 1)):
        await changed(services, PartitionsChanged(topic_id, {0: led_by(leader, epoch)}))
        assert refusal(lambda: services.replica("t", 0)) == ErrorCode.KAFKA_STORAGE_ERROR
    await services.close()


async def test_a_partition_that_is_taken_from_this_broker_ends_here_with_its_folder(
    services: Services, tmp_path: Path
) -> None:
    topic_id = await created_by_others(services, led_by(1, 0), led_by(1, 0))
    await changed(services, PartitionsChanged(topic_id, {1: led_by(2, 1, 2)}))
    assert (list(services.replicas), folders(tmp_path)) == ([("t", 0)], ["t-0"])
    await stored(services, b"v")


async def test_roles_are_those_of_the_catalog_at_the_next_start_too(tmp_path: Path) -> None:
    services = await opened(tmp_path)
    topic_id = await created_by_others(services, led_by(1, 0), led_by(1, 0))
    await stored(services, b"v")
    await changed(services, PartitionsChanged(topic_id, {0: led_by(1, 5), 1: led_by(2, 6)}))
    await services.close()
    services = await opened(tmp_path)
    assert services.replica("t", 0, 5).high_watermark == 1
    assert refusal(lambda: services.replica("t", 1)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await services.close()


async def test_clients_get_the_leader_the_epoch_and_the_replicas_of_the_catalog(
    services: Services,
) -> None:
    asker = Asker(services, Clock())
    await changed(services, BrokerRegistered(BrokerRegistration(2, ())))
    topic_id = await created_by_others(services, led_by(1, 4), PartitionAssignment(2, 9, (2, 1), (2, 1)))
    metadata = await asker.ask(ApiKey.METADATA, 9, topics=[{"name": "t"}])
    told = [
        (each.leader_id, each.leader_epoch, list(each.replica_nodes), list(each.isr_nodes))
        for each in metadata.topics[0].partitions
    ]
    assert told == [(1, 4, [1, 2], [1]), (2, 9, [2, 1], [2, 1])]
    assert (await asker.produce("t", make_batch(b"v"))).error_code == 0
    refused = await asker.produce("t", make_batch(b"v"), partition=1)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await changed(services, PartitionsChanged(topic_id, {1: led_by(1, 10)}))
    assert (await asker.produce("t", make_batch(b"v"), partition=1)).error_code == 0
    ends = await asker.ask(
        ApiKey.LIST_OFFSETS,
        4,
        replica_id=-1,
        isolation_level=0,
        topics=[
            {"name": "t", "partitions": [{"partition_index": 1, "current_leader_epoch": 10, "timestamp": -1}]}
        ],
    )
    (end,) = ends.topics[0].partitions
    assert (end.error_code, end.offset, end.leader_epoch) == (0, 1, 10)


async def most_in_a_turn(count: Callable[[], int], done: Callable[[], bool]) -> int:
    """By how much `count` changes at most in one turn of the loop, until `done`."""
    most, before = 0, count()
    while not done():
        await asyncio.sleep(0)
        now = count()
        most, before = max(most, abs(now - before)), now
    return most


async def test_thousands_of_partitions_begin_and_end_some_in_each_turn_of_the_loop(
    services: Services,
) -> None:
    a_turn = ELEMENTS_PER_STEP // STEP_COST_REPLICA
    creating = asyncio.create_task(services.topics.create("t", NewTopic(num_partitions=MANY)))
    assert 0 < await most_in_a_turn(lambda: len(services.replicas), creating.done) <= a_turn
    assert len(services.replicas) == MANY
    growing = asyncio.create_task(services.topics.add_partitions("t", 2 * MANY))
    assert 0 < await most_in_a_turn(lambda: len(services.replicas), growing.done) <= a_turn
    assert len(services.replicas) == 2 * MANY
    deleting = asyncio.create_task(services.topics.delete((await creating).topic_id))
    assert 0 < await most_in_a_turn(lambda: len(services.replicas), deleting.done) <= a_turn
    assert services.replicas == {}


async def test_settings_and_roles_of_thousands_of_partitions_change_some_in_each_turn(
    services: Services,
) -> None:
    topic = await services.topics.create("t", NewTopic(num_partitions=MANY))
    replicas = list(services.replicas.values())
    changing = asyncio.create_task(services.topics.change_configs("t", lambda _: {"segment.bytes": "4321"}))
    reconfigured = [0]

    def count() -> int:
        reconfigured[0] = sum(replica.log.config.segment_bytes == 4321 for replica in replicas)
        return reconfigured[0]

    assert 0 < await most_in_a_turn(count, changing.done) <= ELEMENTS_PER_STEP
    assert count() == MANY
    all_led_anew = PartitionsChanged(topic.topic_id, {index: led_by(2, 1) for index in range(MANY)})
    led = asyncio.create_task(changed(services, all_led_anew))
    most = await most_in_a_turn(lambda: sum(each.stopped is not None for each in replicas), led.done)
    assert 0 < most <= ELEMENTS_PER_STEP


async def test_a_small_topic_is_served_from_the_moment_that_the_catalog_shows_it(services: Services) -> None:
    seen: list[bool] = []
    services.cluster.follow(lambda _: seen.append(len(services.replicas) == 3))
    await services.topics.create("t", NewTopic(num_partitions=3))
    assert seen == [True]


async def test_a_client_that_meets_a_large_topic_in_the_making_is_to_come_again(services: Services) -> None:
    asker = Asker(services, Clock())
    creating = asyncio.create_task(services.topics.create("t", NewTopic(num_partitions=MANY)))
    await until(lambda: services.catalog.topic("t"))
    last = MANY - 1
    assert services.missing("t", last).code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    metadata = await asker.ask(ApiKey.METADATA, 9, topics=[{"name": "t"}])
    codes = {each.error_code for each in metadata.topics[0].partitions}
    assert codes <= {0, ErrorCode.LEADER_NOT_AVAILABLE}
    await creating
    metadata = await asker.ask(ApiKey.METADATA, 9, topics=[{"name": "t"}])
    assert {each.error_code for each in metadata.topics[0].partitions} == {0}


class Gate(Disk):
    """Holds whoever makes a folder of these until the test opens it."""

    def __init__(self, prefix: str = "t-") -> None:
        self.prefix = prefix
        self.reached = threading.Event()
        self.open_gate = threading.Event()

    def make_directory(self, path: Path) -> None:
        if path.name.startswith(self.prefix) and not self.open_gate.is_set():
            self.reached.set()
            self.open_gate.wait(60)
        super().make_directory(path)


async def test_of_two_who_create_one_name_at_once_the_store_decides_and_nothing_of_the_other_stays(
    tmp_path: Path,
) -> None:
    gate = Gate()
    services = await opened(tmp_path, disk=gate)
    creating = asyncio.create_task(services.topics.create("t", NewTopic(num_partitions=2)))
    await until(gate.reached.is_set)
    theirs = Topic("t", uuid4(), assign(1, [1]))
    await services.cluster.change(lambda _: TopicCreated(theirs))
    gate.open_gate.set()
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.TOPIC_ALREADY_EXISTS):
        await creating
    assert services.catalog.topic("t") == theirs
    assert (list(services.replicas), folders(tmp_path)) == ([("t", 0)], ["t-0"])
    await stored(services, b"v")
    await services.close(clean=False)
    services = await opened(tmp_path)
    assert services.replicas["t", 0].topic_id == theirs.topic_id
    assert services.replicas["t", 0].log.end_offset == 1
    await services.close()


async def test_logs_that_wait_to_be_made_are_not_taken_for_those_of_a_topic_that_others_created(
    tmp_path: Path,
) -> None:
    services = await opened(tmp_path)
    reconciler = services.reconciler
    ours, theirs = (Topic("t", uuid4(), assign(1, [1])) for _ in range(2))
    preparing = asyncio.create_task(reconciler.prepare(ours, 0))
    await asyncio.sleep(0)  # It takes its turn in the next step of the loop.
    reconciler.follow(Change(TopicCreated(theirs), after=theirs))
    await preparing
    reconciler.discard(ours.topic_id)
    await reconciler.settled()
    await stored(services, b"v")
    assert read_topic_id(Disk(), tmp_path / "t-0") == services.replicas["t", 0].topic_id == theirs.topic_id
    await services.close()


async def test_roles_change_and_replicas_begin_while_many_logs_are_being_opened(tmp_path: Path) -> None:
    gate = Gate("t-300")
    services = await opened(tmp_path, disk=gate)
    topic_id = await created_by_others(services, led_by(2, 0), name="u")
    await services.cluster.change(lambda _: TopicCreated(Topic("t", uuid4(), assign(301, [1]))))
    await until(gate.reached.is_set)
    await services.cluster.change(lambda _: PartitionsChanged(topic_id, {0: led_by(1, 1)}))
    await until(lambda: services.replicas["u", 0].stopped is None and ("t", 0) in services.replicas)
    assert services.replica("u", 0).leader_epoch == 1
    assert ("t", 300) not in services.replicas
    gate.open_gate.set()
    await services.reconciler.settled()
    assert len(services.replicas) == 302
    await services.close()


class CountingGate(Gate):
    """Counts how often the names in the data folder become durable."""

    data_dir = Path()
    name_syncs = 0

    def fsync_directory(self, path: Path) -> None:
        self.name_syncs += path == self.data_dir
        super().fsync_directory(path)


async def test_topics_that_wait_in_a_row_are_opened_together_and_those_behind_a_deletion_later(
    tmp_path: Path,
) -> None:
    gate = CountingGate("t-0")
    gate.data_dir = tmp_path
    services = await opened(tmp_path, disk=gate)
    topics = [Topic(f"u{number}", uuid4(), assign(3, [1])) for number in range(50)]
    again = Topic("u0", uuid4(), assign(1, [1]))
    await services.cluster.change(lambda _: TopicCreated(Topic("t", uuid4(), assign(1, [1]))))
    await until(gate.reached.is_set)
    deltas = [*map(TopicCreated, topics), TopicDeleted(topics[0].topic_id, (1,)), TopicCreated(again)]
    for delta in deltas:
        await services.cluster.change(lambda _, delta=delta: delta)
    gate.name_syncs = 0
    gate.open_gate.set()
    await services.reconciler.settled()
    assert services.replica("u49", 2).log.end_offset == 0
    assert read_topic_id(Disk(), tmp_path / "u0-0") == again.topic_id
    assert gate.name_syncs <= 4  # For t, for the topics in a row, for the removal, and for the last one.
    assert len(services.replicas) == 1 + 49 * 3 + 1
    await services.close()


async def test_a_log_that_a_removal_deletes_later_does_not_follow_after_it_is_added_again(
    tmp_path: Path,
) -> None:
    gate = Gate("t-300")
    services = await opened(tmp_path, disk=gate)
    topic_id = await created_by_others(services, led_by(2, 0), name="u")
    removed = services.replicas["u", 0]
    await services.cluster.change(lambda _: TopicCreated(Topic("t", uuid4(), assign(301, [1]))))
    await until(gate.reached.is_set)
    for assigned in (led_by(2, 1, 2), led_by(2, 1, 2, 1), led_by(2, 2, 2, 1)):
        await services.cluster.change(lambda _, now=assigned: PartitionsChanged(topic_id, {0: now}))  # type: ignore[misc]
    await services.reconciler._changing_roles.ended()
    assert (removed.leader_epoch, removed.is_follower) == (0, False)
    gate.open_gate.set()
    await services.reconciler.settled()
    added = services.replicas["u", 0]
    assert (added is removed, added.leader_epoch, added.is_follower) == (False, 2, True)
    await services.close()


async def test_what_others_created_and_the_disk_does_not_take_is_offline_and_nothing_else(
    tmp_path: Path,
) -> None:
    disk = BadDisk(errno.EIO)
    services = await opened(tmp_path, disk=disk)
    disk.refuses = "t-1"
    await created_by_others(services, *assign(3, [1]))
    assert sorted(services.replicas) == [("t", 0), ("t", 2)]
    assert refusal(lambda: services.replica("t", 1)) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.refuses = ""
    await services.topics.create("u")
    await services.close()
    services = await opened(tmp_path)
    assert sorted(services.replicas) == [("t", 0), ("t", 1), ("t", 2), ("u", 0)]
    await services.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EMFILE])
async def test_what_the_disk_has_no_space_or_handle_for_is_opened_later(tmp_path: Path, number: int) -> None:
    disk = BadDisk(number)
    services = await opened(tmp_path, disk=disk)
    disk.refuses = "t-1"
    await created_by_others(services, *assign(3, [1]))
    assert refusal(lambda: services.replica("t", 1)) == ErrorCode.KAFKA_STORAGE_ERROR
    services.reconciler.open_again(services.catalog)
    await services.reconciler.settled()
    assert refusal(lambda: services.replica("t", 1)) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.refuses = ""
    services.reconciler.open_again(services.catalog)
    await services.reconciler.settled()
    assert sorted(services.replicas) == [("t", 0), ("t", 1), ("t", 2)]
    assert not services.partitions.unopened
    for index in range(3):
        services.replica("t", index).append_as_leader(batch(), NOW_MS)
    await services.close()


async def test_a_start_on_a_full_disk_serves_all_partitions_once_there_is_space(tmp_path: Path) -> None:
    services = await opened(tmp_path)
    await services.topics.create("t", NewTopic(num_partitions=2))
    await stored(services, b"v")
    await services.close()
    disk = BadDisk(errno.ENOSPC)
    disk.refuses = "t-0"
    services = await opened(tmp_path, disk=disk)
    assert sorted(services.replicas) == [("t", 1)]
    disk.refuses = ""
    services.reconciler.open_again(services.catalog)
    await services.reconciler.settled()
    assert services.replica("t", 0).log.end_offset == 1
    await stored(services, b"v")
    await services.close()


async def test_a_topic_that_is_deleted_before_there_is_space_is_not_opened(tmp_path: Path) -> None:
    disk = BadDisk(errno.ENOSPC)
    services = await opened(tmp_path, disk=disk)
    disk.refuses = "t-0"
    topic_id = await created_by_others(services, led_by(1, 0))
    disk.refuses = ""
    await changed(services, TopicDeleted(topic_id, (1,)))
    services.reconciler.open_again(services.catalog)
    await services.reconciler.settled()
    assert (services.replicas, services.partitions.logs.logs, folders(tmp_path)) == ({}, {}, [])
    await services.close()


async def test_work_that_breaks_off_keeps_no_later_one_from_being_done(
    services: Services, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as patched:
        patched.setattr(services.partitions, "begin", broken)
        for count in (1, MANY):  # In the first step, and in a later one.
            await services.topics.create(f"t{count}", NewTopic(num_partitions=count))
    assert capsys.readouterr().out.count("reconciliation_failed") == 2
    await services.topics.create("u")
    await stored(services, b"v", topic="u")


async def test_a_broker_that_stops_leads_no_new_partition(services: Services) -> None:
    asker = Asker(services, Clock())
    await changed(services, BrokerRegistered(BrokerRegistration(2, (), is_stopping=True)))
    topic = {"name": "t", "num_partitions": 2, "replication_factor": 2}
    await asker.ask(ApiKey.CREATE_TOPICS, 5, topics=[topic])
    await asker.ask(ApiKey.CREATE_PARTITIONS, 2, topics=[{"name": "t", "count": 4, "assignments": None}])
    made = asker.topic("t").partitions
    assert [(each.leader_id, each.isr, set(each.replicas)) for each in made] == [(1, (1,), {1, 2})] * 4


async def test_a_broker_that_stops_gets_no_new_replica_where_others_suffice(services: Services) -> None:
    asker = Asker(services, Clock())
    for node_id, is_stopping in ((2, True), (3, False)):
        await changed(services, BrokerRegistered(BrokerRegistration(node_id, (), is_stopping=is_stopping)))
    for factor in (1, 2):
        topic = {"name": f"t{factor}", "num_partitions": 4, "replication_factor": factor}
        await asker.ask(ApiKey.CREATE_TOPICS, 5, topics=[topic])
        grown = {"name": f"t{factor}", "count": 8, "assignments": None}
        await asker.ask(ApiKey.CREATE_PARTITIONS, 2, topics=[grown])
        placed = [each.replicas for each in asker.topic(f"t{factor}").partitions]
        assert len(placed) == 8
        assert {replica for replicas in placed for replica in replicas} == {1, 3}
    await changed(services, BrokerRegistered(BrokerRegistration(3, (), is_stopping=True)))
    await changed(services, BrokerRegistered(BrokerRegistration(1, (), is_stopping=True)))
    await asker.ask(
        ApiKey.CREATE_TOPICS, 5, topics=[{"name": "u", "num_partitions": 3, "replication_factor": 1}]
    )
    assert {each.leader_id for each in asker.topic("u").partitions} == {1, 2, 3}
