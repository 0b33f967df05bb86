"""Making topics on a disk that does not let them: whole or not at all, at once, and after a crash."""

import asyncio
import errno
import gc
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from tests.ending_disk import EndingDisk
from tests.unit.broker.conftest import Clock
from tests.unit.broker.handlers.conftest import Asker
from tests.unit.broker.test_services import batch, opened, stored
from tests.waiting import until
from tidelog.broker.cluster.catalog import Delta, TopicCreated
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.cluster.store import StoreError
from tidelog.broker.cluster_stores import STORE_FILE
from tidelog.broker.replicas.topics import NewTopic
from tidelog.broker.services import Services
from tidelog.broker.storage.disk import FULL, Disk
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey


class BadDisk(Disk):
    """Counts the syncs; `refuses` fails whatever opens or makes a path of that beginning."""

    def __init__(self, number: int = errno.EMFILE) -> None:
        self.number = number
        self.refuses = ""
        self.refused = 0
        self.handles = self.limit = 1 << 30
        self.synced_files = 0
        self.synced_directories: list[Path] = []

    def _look(self, path: Path) -> None:
        if self.refuses and f"/{self.refuses}" in f"/{path.parent.name}/{path.name}":
            self.refused += 1
            raise OSError(self.number, os.strerror(self.number))

    def open(self, path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        if self.number not in FULL or flags & os.O_CREAT:
            self._look(path)
        return super().open(path, flags)

    def make_directory(self, path: Path) -> None:
        self._look(path)
        super().make_directory(path)

    def fdatasync(self, fd: int) -> None:
        self.synced_files += 1
        super().fdatasync(fd)

    def fsync_directory(self, path: Path) -> None:
        self._look(path)
        self.synced_directories.append(path)
        super().fsync_directory(path)

    def free_handles(self) -> int:
        return self.handles

    def handle_limit(self) -> int:
        return self.limit


def folders(data_dir: Path) -> list[str]:
    return sorted(path.name for path in data_dir.iterdir() if path.is_dir())


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


async def refused(services: Services, partitions: int, code: ErrorCode) -> str:
    with pytest.raises(ApiError) as caught:
        await services.topics.create("t", NewTopic(num_partitions=partitions))
    assert caught.value.code == code
    return caught.value.message


LASTING, PASSING = ErrorCode.POLICY_VIOLATION, ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(
    ("number", "refuses"),
    [
        (errno.EMFILE, "t-0"),
        (errno.ENFILE, "t-3"),
        (errno.ENOSPC, "t-3/partition.metadata"),
        (errno.EIO, "t-4/00000000000000000000.log"),
    ],
)
async def test_a_topic_that_cannot_be_made_whole_is_not_made_at_all(
    tmp_path: Path, number: int, refuses: str
) -> None:
    disk = BadDisk(number)
    services = await opened(tmp_path, disk=disk)
    await services.topics.create("other")
    before = open_files()
    disk.refuses = refuses
    message = await refused(services, 5, PASSING)
    assert os.strerror(number) in message
    assert services.catalog.topic("t") is None
    assert folders(tmp_path) == ["other-0"]
    assert open_files() == before
    await stored(services, b"goes on", topic="other")
    disk.refuses = ""
    await services.topics.create("t", NewTopic(num_partitions=5))
    await stored(services, b"v")
    await services.close()
    services = await opened(tmp_path)
    assert len(services.replicas) == 6
    assert services.partitions.logs.was_clean
    await services.close()


async def test_a_topic_that_cannot_grow_stays_as_it_was(tmp_path: Path) -> None:
    disk = BadDisk(errno.ENOSPC)
    services = await opened(tmp_path, disk=disk)
    await services.topics.create("t", NewTopic(num_partitions=2))
    disk.refuses = "t-3"
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.KAFKA_STORAGE_ERROR):
        await services.topics.add_partitions("t", 5)
    assert sorted(services.replicas) == [("t", 0), ("t", 1)]
    disk.refuses = ""
    await services.topics.add_partitions("t", 5)
    assert len(services.replicas) == 5
    await stored(services, b"v")
    await services.close()


async def test_too_few_file_handles_are_reported_before_anything_is_created(tmp_path: Path) -> None:
    disk = BadDisk()
    services = await opened(tmp_path, disk=disk)
    disk.handles = 300
    message = await refused(services, 300, PASSING)
    assert "300 partitions need 332 file handles, 300 are free" in message
    disk.limit = 300
    message = await refused(services, 300, LASTING)
    assert "300 partitions need 332 file handles" in message
    assert "may have 300" in message
    assert "ulimit -n" in message
    assert folders(tmp_path) == []
    await services.topics.create("t", NewTopic(num_partitions=10))
    await services.close()


async def test_a_segment_that_cannot_be_begun_for_lack_of_handles_is_begun_later(tmp_path: Path) -> None:
    disk = BadDisk()
    services = await opened(tmp_path, disk=disk)
    await services.topics.create("t", NewTopic(configs={"segment.bytes": "200"}))
    await stored(services, b"a" * 50)
    disk.refuses = "t-0"
    replica = services.replicas["t", 0]
    for _ in range(2):
        with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.KAFKA_STORAGE_ERROR):
            replica.append_as_leader(batch(b"b" * 50), services.clock_ms())
    assert replica.stopped is None
    disk.refuses = ""
    await stored(services, b"c" * 50)
    assert (replica.high_watermark, replica.log.segment_count) == (2, 2)
    await services.close()


async def test_the_process_knows_how_many_files_it_may_open() -> None:
    disk = Disk()
    before = disk.free_handles()
    fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(5)]
    try:
        assert disk.free_handles() == before - 5
    finally:
        for fd in fds:
            os.close(fd)


async def test_many_partitions_cost_one_sync_of_names_and_none_of_files(tmp_path: Path) -> None:
    disk = BadDisk()
    services = await opened(tmp_path, disk=disk)
    disk.synced_files = 0
    disk.synced_directories.clear()
    await services.topics.create("t", NewTopic(num_partitions=200))
    assert disk.synced_directories == [tmp_path]
    assert disk.synced_files == 0
    before = open_files()
    await stored(services, b"v")
    # With its first records a partition's id and names become durable.
    assert tmp_path / "t-0" in disk.synced_directories
    assert open_files() <= before + 1
    disk.synced_directories.clear()
    await services.close()
    assert tmp_path / "t-1" not in disk.synced_directories
    services = await opened(tmp_path)
    assert len(services.replicas) == 200
    assert services.replicas["t", 0].log.end_offset == 1
    await services.close()


async def test_partitions_that_never_held_a_record_cost_no_sync_after_a_crash(tmp_path: Path) -> None:
    services = await opened(tmp_path)
    await services.topics.create("t", NewTopic(num_partitions=50))
    await stored(services, b"v")
    await services.close(clean=False)
    disk = BadDisk()
    services = await opened(tmp_path, disk=disk)
    used = [path for path in disk.synced_directories if path.name.startswith("t-")]
    assert set(used) == {tmp_path / "t-0"}
    assert disk.synced_files < 20
    assert services.replicas["t", 0].log.end_offset == 1
    for index in range(1, 50):
        assert services.replicas["t", index].log.end_offset == 0
    await services.close()


async def test_the_data_folder_and_those_of_partitions_are_for_the_brokers_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    services = await opened(folder)
    await services.topics.create("t")
    await services.close()
    assert [path.stat().st_mode & 0o777 for path in (folder, folder / "t-0")] == [0o700, 0o700]


async def test_names_are_durable_before_the_store_knows_of_them(tmp_path: Path) -> None:
    disk = BadDisk()
    seen: list[bool] = []

    class Store(SqliteStore):
        def _commit(self, deltas: Sequence[Delta], expected_revision: int) -> None:
            seen.append(tmp_path in disk.synced_directories)
            super()._commit(deltas, expected_revision)

    services = await opened(tmp_path, disk=disk, store=Store(tmp_path / STORE_FILE, node_id=1))
    disk.synced_directories.clear()
    seen.clear()
    await services.topics.create("t")
    assert seen == [True]
    await services.close()


async def test_a_folder_whose_id_a_power_cut_took_is_its_topics_again(tmp_path: Path) -> None:
    services = await opened(tmp_path)
    topic = await services.topics.create("t")
    await services.close(clean=False)
    (tmp_path / "t-0" / "partition.metadata").write_bytes(b"")
    services = await opened(tmp_path)
    await stored(services, b"v")
    assert [found.topic_id for found in services.partitions.logs.found_partitions()] == [topic.topic_id]
    await services.close()


async def test_a_refusal_without_a_waiting_request_is_no_failure(tmp_path: Path) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    services = await opened(tmp_path)
    await services.topics.create("t")
    lock = services.topics._locks["t"] = asyncio.Lock()
    async with lock:
        asking = asyncio.create_task(services.topics.create("t"))
        await until(lambda: services.topics._changes._running)
        asking.cancel()
    await until(lambda: not services.topics._changes._running)
    gc.collect()
    assert complaints == []
    with pytest.raises(ApiError, match="already exists"):
        await services.topics.create("t")
    await services.close()


async def test_a_topic_is_deleted_on_a_disk_without_space_for_another_name(tmp_path: Path) -> None:
    class NoNames(Disk):
        has_room = True

        def rename(self, old: Path, new: Path) -> None:
            if not self.has_room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().rename(old, new)

    disk = NoNames()
    services = await opened(tmp_path, disk=disk)
    topic = await services.topics.create("t", NewTopic(num_partitions=2))
    await stored(services, b"v")
    disk.has_room = False
    await services.topics.delete(topic.topic_id)
    assert folders(tmp_path) == []
    await services.close(clean=False)


class DyingStore(SqliteStore):
    """Ends with the process of its disk."""

    def __init__(self, folder: Path, disk: EndingDisk) -> None:
        super().__init__(folder / STORE_FILE, node_id=1)
        self._disk = disk

    def _commit(self, deltas: Sequence[Delta], expected_revision: int) -> None:
        self._disk.change()
        super()._commit(deltas, expected_revision)


async def create_t(services: Services) -> None:
    await services.topics.create("t", NewTopic(num_partitions=3))


async def grow_t(services: Services) -> None:
    await services.topics.add_partitions("t", 4)


async def delete_t(services: Services) -> None:
    topic = services.catalog.topic("t")
    assert topic is not None
    await services.topics.delete(topic.topic_id)


async def has_ended(folder: Path, change: Callable[[Services], Awaitable[None]], changes: int) -> bool:
    """Let a broker end before its change of the disk number `changes` of a `change`; whether there were so
    many, and else the change is done.
    """
    disk = EndingDisk()
    disk.error = OSError(errno.EIO, "the process has ended")
    services = await opened(folder, disk=disk, store=DyingStore(folder, disk))
    disk.left = changes
    with suppress(ApiError):
        await change(services)
    has_ended = disk.left <= 0
    await services.close(clean=False)
    return has_ended


@pytest.mark.parametrize(("change", "partitions"), [(create_t, (0, 3)), (grow_t, (2, 4)), (delete_t, (2, 0))])
async def test_wherever_a_process_ends_a_topic_is_as_before_or_changed_whole_and_no_other_folder_is_left(
    tmp_path: Path, change: Callable[[Services], Awaitable[None]], partitions: tuple[int, int]
) -> None:
    before, after = partitions
    services = await opened(tmp_path / "base")
    await services.topics.create("kept")
    await stored(services, b"v", topic="kept")
    if before:
        await services.topics.create("t", NewTopic(num_partitions=before))
        await stored(services, b"v", topic="t")
    await services.close()
    seen = []
    for changes in range(200):
        folder = tmp_path / "now"
        shutil.copytree(tmp_path / "base", folder)
        ended = await has_ended(folder, change, changes)
        services = await opened(folder)
        services.partitions.logs.purge()
        topic = services.catalog.topic("t")
        seen.append(len(topic.partitions) if topic is not None else 0)
        expected = ["kept-0", *(f"t-{index}" for index in range(seen[-1]))]
        assert folders(folder) == expected, changes
        assert sorted(f"{name}-{index}" for name, index in services.replicas) == expected
        assert services.replicas["kept", 0].high_watermark == 1
        if before and seen[-1]:
            assert services.replicas["t", 0].high_watermark == 1
        await services.close()
        shutil.rmtree(folder)
        if not ended:
            break
    assert not ended
    # As before up to some change of the disk, and changed from there on.
    assert seen == [before] * seen.count(before) + [after] * seen.count(after)
    assert len(seen) > 5
    assert seen.count(before)
    assert seen.count(after)


class CountingStore(SqliteStore):
    """Counts its commits; `refuses` fails those that concern a topic of this name."""

    commits = 0
    refuses = ""

    def _commit(self, deltas: Sequence[Delta], expected_revision: int) -> None:
        if any(isinstance(each, TopicCreated) and each.topic.name == self.refuses for each in deltas):
            raise StoreError("there is no space for it")
        self.commits += 1
        super()._commit(deltas, expected_revision)


SYNCS_OF_A_COMMIT = 2
"""Of SQLite's log, then of the copy."""


class SyncsInARow:
    """Of a broker since `begin`: those of folders' names and those of the catalog, each kind one by one."""

    def __init__(self, folder: Path) -> None:
        self.disk = BadDisk()
        self.store = CountingStore(folder / STORE_FILE, node_id=1)

    def begin(self) -> None:
        self.disk.synced_files = self.store.commits = 0
        self.disk.synced_directories.clear()

    @property
    def count(self) -> int:
        folders_and_files = len(self.disk.synced_directories) + self.disk.synced_files
        return folders_and_files + SYNCS_OF_A_COMMIT * self.store.commits


NAMES = [f"t{number}" for number in range(100)]


async def test_a_hundred_topics_cost_a_few_syncs_in_a_row_in_one_request_or_in_many(tmp_path: Path) -> None:
    syncs = SyncsInARow(tmp_path)
    services = await opened(tmp_path, disk=syncs.disk, store=syncs.store)
    asker = Asker(services, Clock())
    wanted = [
        {"name": name, "num_partitions": 4, "replication_factor": -1, "assignments": [], "configs": []}
        for name in NAMES
    ]
    deleted = [{"name": name, "topic_id": UUID(int=0)} for name in NAMES]
    for _ in range(2):
        syncs.begin()
        made = await asker.ask(ApiKey.CREATE_TOPICS, 7, topics=wanted, timeout_ms=0, validate_only=False)
        assert {topic.error_code for topic in made.topics} == {0}
        assert [topic.name for topic in made.topics] == NAMES
        assert len(services.replicas) == 400
        # However busy the machine is: 20 topics are planned in a turn of the loop, and wait together.
        assert syncs.count <= 15
        syncs.begin()
        gone = await asker.ask(ApiKey.DELETE_TOPICS, 6, topics=deleted, timeout_ms=0)
        assert {topic.error_code for topic in gone.responses} == {0}
        assert folders(tmp_path) == []
        assert syncs.count <= 12
    syncs.begin()
    await asyncio.gather(*(services.topics.create(name, NewTopic(num_partitions=4)) for name in NAMES))
    assert syncs.count <= 6
    await services.close()


async def test_a_deletion_does_not_wait_behind_creations(tmp_path: Path) -> None:
    syncs = SyncsInARow(tmp_path)
    services = await opened(tmp_path, disk=syncs.disk, store=syncs.store)
    topic = await services.topics.create("old")
    making = [asyncio.create_task(services.topics.create(f"n{number}")) for number in range(500)]
    await until(lambda: services.catalog.topic("n0"))
    syncs.begin()
    await services.topics.delete(topic.topic_id)
    # What is under way, at most one group before it, its own commit, and the removal.
    assert syncs.count <= 30
    assert not all(task.done() for task in making)
    await asyncio.gather(*making)
    await services.close()


async def test_of_topics_made_together_each_succeeds_or_fails_alone(tmp_path: Path) -> None:
    syncs = SyncsInARow(tmp_path)
    services = await opened(tmp_path, disk=syncs.disk, store=syncs.store)
    old = await services.topics.create("old")
    syncs.disk.refuses, syncs.store.refuses = "t3-1", "t5"
    made = asyncio.gather(
        *(services.topics.create(name, NewTopic(num_partitions=2)) for name in [*NAMES[:10], "t7", "old"]),
        return_exceptions=True,
    )
    await services.topics.delete(old.topic_id)
    outcomes = [str(each) if isinstance(each, ApiError) else "" for each in await made]
    refused = {index: text for index, text in enumerate(outcomes) if text}
    assert set(refused) == {3, 5, 10}
    assert "partitions could not be made" in refused[3]
    assert "no space for it" in refused[5]
    assert "already exists" in refused[10]
    expected = {name for name in NAMES[:10] if name not in ("t3", "t5")} | {"old"}
    assert {topic.name for topic in services.catalog.topics()} == expected
    assert {name.rsplit("-", 1)[0] for name in folders(tmp_path)} == expected
    syncs.disk.refuses = syncs.store.refuses = ""
    for name in ("t3", "t5"):
        await services.topics.create(name)
    await services.close()
    services = await opened(tmp_path)
    assert {name for name, _ in services.replicas} == expected | {"t3", "t5"}
    await services.close()
