"""The data folder: who may use it, what a start believes, how partitions come and go."""

import errno
import os
import threading
from collections import Counter
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs

from tests.ending_disk import MANY, EndingDisk
from tests.unit.broker.storage.support import (
    NEVER_ISSUED,
    NOW_MS,
    FaultyDisk,
    append,
    batch,
    flush,
    outcome,
    state,
)
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.folders import NewPartitions
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.manager import CLEAN_SHUTDOWN, DataFolderError, LogManager
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.types import NO_OFFSET

TOPIC_ID = UUID("0fc0a9b6-7b3b-4c38-9d7a-5a5c1f0a2b3c")
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200)


def manager(folder: Path, disk: Disk | None = None) -> LogManager:
    made = LogManager(folder, next_producer_id=lambda: NEVER_ISSUED, disk=disk)
    made.lock()
    return made


def create(
    logs: LogManager, topic: str = "topic", partition: int = 0, topic_id: UUID = TOPIC_ID
) -> PartitionLog:
    return logs.open_all([(topic, topic_id, partition, SMALL)], NOW_MS)[topic, partition]


def create_new(logs: LogManager, topic_id: UUID) -> PartitionLog:
    (made,) = logs.create_many([NewPartitions("topic", topic_id, [0], SMALL)], NOW_MS)
    assert not isinstance(made, OSError)
    return made[0]


def fill(log: PartitionLog, count: int = 30) -> None:
    for number in range(count):
        append(log, batch(1, 0, number, timestamp=NOW_MS + number))
    flush(log)


def kill(logs: LogManager) -> None:
    """What is left when the process dies: nothing is written, the lock is gone."""
    for log in logs.logs.values():
        log.close(clean=False)
    logs._disk.close(logs._lock_fd)


def checkpoint(logs: LogManager) -> None:
    for log in logs.logs.values():
        work = log.begin_checkpoint()
        if work is not None:
            logs.finish_checkpoint(log, work, work.attempt())
    logs.write_checkpoints()


def test_a_folder_has_one_broker_at_a_time(tmp_path: Path) -> None:
    first = manager(tmp_path)
    with pytest.raises(DataFolderError, match="another broker is using"):
        manager(tmp_path)
    first.close()
    manager(tmp_path).close()


def test_a_clean_shutdown_counts_once(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    assert logs.was_clean
    fill(create(logs))
    assert logs.close()
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    logs = manager(tmp_path)
    assert logs.was_clean
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    assert create(logs).recovery.replayed_batches == 0
    kill(logs)
    logs = manager(tmp_path)
    assert not logs.was_clean
    assert create(logs).end_offset == 30
    logs.close()


def test_the_checkpoint_spares_a_crashed_broker_the_reading(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    log = create(logs)
    fill(log)
    checkpoint(logs)
    append(log, batch(1, 0, 30))
    before = state(log)
    kill(logs)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\ntopic 0 30\n"
    again = manager(tmp_path)
    log = create(again)
    assert log.recovery.recovery_point == 30
    assert log.recovery.scanned_bytes < log.size_bytes
    assert state(log) == before
    again.close()


def test_the_log_start_survives_a_crash_once_it_was_checkpointed(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    log = create(logs)
    fill(log)
    log.delete_records_before(17)
    logs.write_checkpoints()
    kill(logs)
    again = manager(tmp_path)
    assert create(again).start_offset == 17
    again.close()


def test_a_damaged_checkpoint_means_reading_everything(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    fill(create(logs))
    logs.close()
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n3\nnonsense\n")
    again = manager(tmp_path)
    assert not again.was_clean
    log = create(again)
    assert log.recovery.scanned_bytes == log.size_bytes
    again.close()


def test_a_folder_that_could_not_be_removed_is_recovered_when_it_is_used_again(tmp_path: Path) -> None:
    disk = EndingDisk()
    logs = manager(tmp_path, disk)
    append(create(logs), batch(1, 0, 0))
    disk.left, disk.error = 0, OSError(errno.EIO, "I/O error")
    with pytest.raises(OSError, match="I/O error"):
        logs.delete([("topic", 0)])
    disk.left = MANY
    log = create(logs)
    assert (log.end_offset, log.flushed_end_offset) == (1, 1)
    assert not logs.close()


def test_a_partitions_folder_names_its_topic_as_kafka_does(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    create(logs, "a-topic", 3)
    assert (tmp_path / "a-topic-3" / "partition.metadata").read_text() == (
        "version: 0\ntopic_id: D8Cptns7TDidelpcHworPA"
    )
    assert logs.found_partitions() == [("a-topic", 3, TOPIC_ID)]
    logs.close()


def test_a_deleted_partition_does_not_return_and_its_name_is_free(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    fill(create(logs))
    logs.delete([("topic", 0)])
    assert logs.found_partitions() == []
    assert create(logs, topic_id=uuid4()).end_offset == 0
    assert logs.purge() > 0
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["topic-0"]
    logs.close()


@pytest.mark.parametrize("metadata", [None, b"", b"garbage", "as it was"])
def test_a_new_topic_does_not_read_the_folder_of_an_older_one_of_its_name(
    tmp_path: Path, metadata: bytes | str | None
) -> None:
    logs = manager(tmp_path)
    fill(create(logs))
    logs.close()
    path = tmp_path / "topic-0" / "partition.metadata"
    if metadata is None:
        path.unlink()
    elif isinstance(metadata, bytes):
        path.write_bytes(metadata)
    logs = manager(tmp_path)
    log = create_new(logs, uuid4())
    assert log.end_offset == 0
    logs.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


OTHERS_METADATA = {
    "another topic's": b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
    "of another version": b"version: 1\ntopic_id: D8Cptns7TDidelpcHworPA",
    "garbage": b"\x00\xff" * 20,
    "cut": b"version: 0\ntopic_id: D8Cp",
    "without an id": b"version: 0",
}


@pytest.mark.parametrize("what", OTHERS_METADATA)
def test_a_folder_whose_metadata_contradicts_its_place_is_offline_and_left_as_it_is(
    tmp_path: Path, what: str
) -> None:
    logs = manager(tmp_path)
    for partition in (0, 1):
        fill(create(logs, partition=partition))
    logs.close()
    folder = tmp_path / "topic-0"
    metadata = (folder / "partition.metadata").read_bytes()
    (folder / "partition.metadata").write_bytes(OTHERS_METADATA[what])
    before = contents(folder)
    for _ in range(2):
        logs = manager(tmp_path)
        with capture_logs() as events:
            opened = logs.open_all([("topic", TOPIC_ID, partition, SMALL) for partition in (0, 1)], NOW_MS)
        assert set(opened) == {("topic", 1)}
        (told,) = [event for event in events if event["event"] == "partition_offline"]
        assert (told["topic"], told["partition"]) == ("topic", 0)
        assert "partition.metadata" in told["error"]
        assert "move the folder away" in told["advice"]
        logs.close()
        assert contents(folder) == before
    (folder / "partition.metadata").write_bytes(metadata)
    logs = manager(tmp_path)
    assert create(logs).end_offset == 30
    logs.close()


@pytest.mark.parametrize("content", [None, b"", bytes(43)])
@pytest.mark.parametrize("count", [0, 30])
def test_a_missing_metadata_is_written_again_and_reported_if_the_folder_has_records(
    tmp_path: Path, content: bytes | None, count: int
) -> None:
    logs = manager(tmp_path)
    fill(create(logs), count)
    logs.close()
    path = tmp_path / "topic-0" / "partition.metadata"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    logs = manager(tmp_path)
    with capture_logs() as events:
        assert create(logs).end_offset == count
    assert [event["event"] for event in events] == ["partition_metadata_missing"] * bool(count)
    assert logs.found_partitions() == [("topic", 0, TOPIC_ID)]
    logs.close()


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_checkpoint_missing_after_a_clean_shutdown_is_reported_and_everything_is_read(
    tmp_path: Path, name: str
) -> None:
    logs = manager(tmp_path)
    fill(create(logs))
    logs.close()
    (tmp_path / name).unlink()
    with capture_logs() as events:
        logs = manager(tmp_path)
    assert [(event["event"], event["file"]) for event in events] == [("checkpoint_damaged", name)]
    assert not logs.was_clean
    assert create(logs).end_offset == 30
    logs.close()


def test_a_log_that_cannot_be_opened_does_not_affect_others_and_is_never_trusted(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    for partition in range(2):
        fill(create(logs, partition=partition))
    logs.close()
    disk = FaultyDisk()
    disk.open_error = lambda path: errno.EIO if "topic-0" in str(path) and path.suffix == ".log" else None
    logs = manager(tmp_path, disk)
    wanted = [("topic", TOPIC_ID, partition, SMALL) for partition in range(2)]
    assert list(logs.open_all(wanted, NOW_MS)) == [("topic", 1)]
    assert not logs.close()
    logs = manager(tmp_path)
    assert not logs.was_clean
    assert {key: log.end_offset for key, log in logs.open_all(wanted, NOW_MS).items()} == {
        ("topic", 0): 30,
        ("topic", 1): 30,
    }
    logs.close()


class MeetingDisk(Disk):
    """The first syncs of segments return when 16 are under way; 60 seconds without that are an error."""

    def __init__(self) -> None:
        self.syncs: list[str] = []
        self._meeting = threading.Barrier(16, timeout=60)
        self._left = threading.Semaphore(16)

    def fdatasync(self, fd: int) -> None:
        name = os.readlink(f"/proc/self/fd/{fd}")
        self.syncs.append(Path(name).suffix)
        if name.endswith(".log") and self._left.acquire(blocking=False):
            try:
                self._meeting.wait()
            except threading.BrokenBarrierError:
                raise OSError(errno.EIO, "the syncs are made one after the other") from None

    def fsync_directory(self, path: Path) -> None:
        self.syncs.append("folder")


@pytest.mark.parametrize(("partitions", "batches"), [(16, 1), (1, 200)], ids=["logs", "segments"])
def test_a_start_after_a_kill_makes_logs_and_segments_durable_at_the_same_time(
    tmp_path: Path, partitions: int, batches: int
) -> None:
    logs = manager(tmp_path)
    files = 0
    for partition in range(partitions):
        log = create(logs, partition=partition)
        fill(log, batches)
        files += log.segment_count
    kill(logs)
    disk = MeetingDisk()
    logs = manager(tmp_path, disk)
    disk.syncs.clear()
    wanted = [("topic", TOPIC_ID, partition, SMALL) for partition in range(partitions)]
    opened = logs.open_all(wanted, NOW_MS)
    assert {log.flushed_end_offset for log in opened.values()} == {batches}
    # Indexes and snapshots wait for the first checkpoint.
    of_each_log = Counter({".metadata": partitions, "folder": partitions})
    assert Counter(disk.syncs) == of_each_log + Counter({".log": files})
    kill(logs)


def test_a_start_after_a_kill_syncs_nothing_of_logs_without_records_beyond_the_recovery_point(
    tmp_path: Path,
) -> None:
    logs = manager(tmp_path)
    fill(create(logs))
    checkpoint(logs)
    kill(logs)
    disk = FaultyDisk()
    logs = manager(tmp_path, disk)
    disk.synced.clear()
    (log,) = logs.open_all([("topic", TOPIC_ID, 0, SMALL)], NOW_MS).values()
    assert log.flushed_end_offset == 30
    assert not disk.synced
    logs.close()


def test_a_log_whose_records_cannot_be_made_durable_at_the_start_is_offline(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    fill(create(logs))
    kill(logs)
    disk = FaultyDisk()
    logs = manager(tmp_path, disk)
    disk.fdatasync_error = errno.EIO
    with capture_logs() as events:
        assert not logs.open_all([("topic", TOPIC_ID, 0, SMALL)], NOW_MS)
    assert [event["event"] for event in events if event["log_level"] == "error"] == ["partition_offline"]
    disk.fdatasync_error = None
    assert not logs.close()


def test_a_failed_log_keeps_the_shutdown_from_being_clean(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    fill(create(logs))
    create(logs, partition=1).mark_failed(OSError(errno.EIO, "fdatasync"))
    assert not logs.close()
    logs = manager(tmp_path)
    assert not logs.was_clean
    logs.close()


def test_retention_and_expiry_run_over_all_logs(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    for partition in range(2):
        fill(create(logs, partition=partition))
    assert logs.producer_id_count == 2
    later = NOW_MS + 8 * 86_400_000
    list(logs.run_retention(later))
    checkpoint(logs)
    list(logs.run_retention(later))
    assert logs.purge() > 0
    assert [log.start_offset for log in logs.logs.values()] == [30, 30]
    assert sum(logs.expire_producers(later)) == 2
    assert logs.producer_id_count == 0
    logs.close()


class Machine(Disk):
    """Its `life` is another one after each start of the machine."""

    life = "first"

    def boot_id(self) -> str:
        return self.life


def torn_at_a_roll(folder: Path, machine: Machine) -> Path:
    """A log whose first segment lost its end while the later ones kept their batches."""
    logs = manager(folder, machine)
    log = create(logs)
    fill(log)
    kill(logs)
    first = min(log.folder.glob("*.log"))
    cut(first, 5)
    return first


def cut(path: Path, count: int) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - count)


def told_at_the_start(folder: Path, machine: Disk | None = None) -> tuple[str, str]:
    """The one event that tells what was found, and its level."""
    with capture_logs() as events:
        logs = manager(folder, machine)
        create(logs)
        logs.close()
    told = ("log_tail_truncated", "log_damage_found", "log_recovered", "log_start_moved")
    ((name, level),) = [(event["event"], event["log_level"]) for event in events if event["event"] in told]
    return name, level


@pytest.mark.parametrize("starts_that_were_killed", [0, 1])
def test_what_a_power_cut_leaves_at_a_roll_is_no_damage(tmp_path: Path, starts_that_were_killed: int) -> None:
    machine = Machine()
    first = torn_at_a_roll(tmp_path, machine)
    machine.life = "second"
    for _ in range(starts_that_were_killed):
        kill(manager(tmp_path, machine))
    assert told_at_the_start(tmp_path, machine) == ("log_tail_truncated", "warning")
    assert len(list(first.parent.glob("*.damaged"))) > 0


def test_a_machine_is_known_again_once_its_logs_were_recovered(tmp_path: Path) -> None:
    machine = Machine()
    torn_at_a_roll(tmp_path, machine)
    machine.life = "second"
    logs = manager(tmp_path, machine)
    log = logs.open_all([("topic", TOPIC_ID, 0, SMALL)], NOW_MS)["topic", 0]
    fill(log)
    kill(logs)
    cut(min(log.folder.glob("*.log")), 5)
    assert told_at_the_start(tmp_path, machine) == ("log_damage_found", "error")


@pytest.mark.parametrize("whole_batches", [True, False])
def test_a_log_that_ends_before_its_recovery_point_is_damaged_after_a_power_cut_too(
    tmp_path: Path, whole_batches: bool
) -> None:
    machine = Machine()
    logs = manager(tmp_path, machine)
    log = create(logs)
    fill(log)
    checkpoint(logs)
    kill(logs)
    cut(max(log.folder.glob("*.log")), len(batch(1, 0, 0)) if whole_batches else 5)
    machine.life = "second"
    assert told_at_the_start(tmp_path, machine) == ("log_damage_found", "error")


def test_what_follows_a_loss_is_not_taken_for_durable_by_the_recovery_point_before_it(tmp_path: Path) -> None:
    machine = Machine()
    logs = manager(tmp_path, machine)
    log = create(logs)
    fill(log)
    checkpoint(logs)
    kill(logs)
    first, second, *_ = sorted(log.folder.glob("*.log"))
    for path in log.folder.glob("*.log"):
        if path != first:
            path.unlink()
    logs = manager(tmp_path, machine)
    log = logs.open_all([("topic", TOPIC_ID, 0, SMALL)], NOW_MS)["topic", 0]
    for number in range(20):
        append(log, batch(2, 0, number, timestamp=NOW_MS + number))
    kill(logs)
    cut(second, 5)
    machine.life = "second"
    logs = manager(tmp_path, machine)
    log = create(logs)
    assert not log.holes
    assert log.end_offset == 2 * int(second.stem) - 1
    logs.close()


def test_a_topic_id_is_durable_before_the_first_record_and_all_names_with_one_sync(tmp_path: Path) -> None:
    synced = []

    class Noting(Disk):
        def open(self, path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
            fd = super().open(path, flags)
            names[fd] = path.name
            return fd

        def fdatasync(self, fd: int) -> None:
            synced.append(names[fd])

        def fsync_directory(self, path: Path) -> None:
            synced.append(path.name)

    names: dict[int, str] = {}
    logs = manager(tmp_path, Noting())
    log = create_new(logs, TOPIC_ID)
    synced.clear()
    fill(log, 1)
    assert synced == [
        "leader-epoch-checkpoint.tmp",
        "partition.metadata",
        f"{0:020d}.log",
        "topic-0",
    ]
    logs.close()


def zero(path: Path, count: int) -> None:
    """The last bytes of a file are zeros."""
    data = path.read_bytes()
    path.write_bytes(data[:-count] + bytes(count))


ONE = len(batch(1, 0, 0, timestamp=NOW_MS))


@pytest.mark.parametrize("count", [2, 9, ONE - 1, ONE, ONE + 1, 3 * ONE])
def test_a_tail_of_zeros_is_damage_where_the_machine_did_not_stop(tmp_path: Path, count: int) -> None:
    machine = Machine()
    logs = manager(tmp_path, machine)
    log = create(logs)
    fill(log, 5)
    kill(logs)
    last = max(log.folder.glob("*.log"))
    before = last.read_bytes()
    zero(last, count)
    assert told_at_the_start(tmp_path, machine) == ("log_damage_found", "error")
    (aside,) = last.parent.glob("*.damaged")
    assert last.read_bytes() + aside.read_bytes() == before[:-count] + bytes(count)
    logs = manager(tmp_path, machine)
    fill(create(logs), 5)
    kill(logs)
    zero(max(log.folder.glob("*.log")), count)
    machine.life = "second"
    name, level = told_at_the_start(tmp_path, machine)
    assert (name, level) in [("log_recovered", "warning"), ("log_tail_truncated", "warning")]


@pytest.mark.parametrize("left", [1, 8, 12, 60, 61, ONE - 1])
def test_the_beginning_of_a_batch_is_cut_with_a_warning_after_a_kill(tmp_path: Path, left: int) -> None:
    machine = Machine()
    logs = manager(tmp_path, machine)
    log = create(logs)
    fill(log, 5)
    kill(logs)
    cut(max(log.folder.glob("*.log")), ONE - left)
    assert told_at_the_start(tmp_path, machine) == ("log_recovered", "warning")


def without_its_first_segment(folder: Path, *, clean: bool) -> int:
    """A log that lost its first segment, with a start that was saved; where the second one begins."""
    logs = manager(folder)
    fill(create(logs))
    checkpoint(logs)
    logs.close() if clean else kill(logs)
    first, second = sorted((folder / "topic-0").glob("*.log"))[:2]
    first.unlink()
    return int(second.stem)


def test_a_first_segment_that_is_gone_after_a_clean_shutdown_is_a_hole(tmp_path: Path) -> None:
    base = without_its_first_segment(tmp_path, clean=True)
    assert told_at_the_start(tmp_path) == ("log_damage_found", "error")
    logs = manager(tmp_path)
    log = create(logs)
    assert (log.start_offset, log.holes) == (0, [(0, base)])
    assert log.delete_records_before(base) == base
    logs.close()
    logs = manager(tmp_path)
    with capture_logs() as events:
        assert create(logs).start_offset == base
    assert not events
    logs.close()


def test_a_first_segment_missing_after_a_crash_may_have_been_deleted_and_is_reported(tmp_path: Path) -> None:
    base = without_its_first_segment(tmp_path, clean=False)
    with capture_logs() as events:
        logs = manager(tmp_path)
        log = create(logs)
        assert log.start_offset == base
        refused = outcome(append, log, batch(1, 0, 0, timestamp=NOW_MS))
        assert refused is ErrorCode.KAFKA_STORAGE_ERROR
        log.delete_records_before(base)
        again = append(log, batch(1, 0, 0, timestamp=NOW_MS))
        assert (again.duplicate, again.base_offset) == (True, NO_OFFSET)
        kill(logs)
    (told,) = [event for event in events if event["event"] == "log_start_moved"]
    assert (told["log_level"], told["saved_start_offset"], told["start_offset"]) == ("warning", 0, base)
    assert "put them back" in told["advice"]


@pytest.mark.parametrize("clean", [True, False])
def test_no_snapshot_behind_a_log_start_above_0_is_damage(tmp_path: Path, clean: bool) -> None:
    logs = manager(tmp_path)
    log = create(logs)
    fill(log)
    base = log._segments.segments[1].base_offset
    log.delete_records_before(base)
    for _ in range(3):
        checkpoint(logs)
    assert log._segments.segments[0].base_offset == base
    logs.close() if clean else kill(logs)
    for path in log.folder.glob("*.snapshot"):
        path.unlink()
    with capture_logs() as events:
        logs = manager(tmp_path)
        create(logs)
    (told,) = [event for event in events if event["event"] == "log_damage_found"]
    assert (told["log_level"], told["producers_unknown_before"]) == ("error", base)
    assert f"no snapshot has the producers before offset {base}" in told["advice"]
    logs.close()


@pytest.mark.parametrize("producer_id", [-1, 1])
def test_no_segment_leaves_before_a_snapshot_is_there(tmp_path: Path, producer_id: int) -> None:
    logs = manager(tmp_path)
    log = create(logs)
    for number in range(30):
        append(log, batch(producer_id, 0, number, timestamp=NOW_MS + number))
    flush(log)
    log.delete_records_before(log._segments.segments[1].base_offset)
    assert log._segments.segments[0].base_offset == 0
    checkpoint(logs)
    assert log._segments.segments[0].base_offset == log.start_offset
    kill(logs)
    assert told_at_the_start(tmp_path) == ("log_recovered", "info")


def test_a_torn_tail_is_no_damage_if_the_machine_may_have_stopped(tmp_path: Path) -> None:
    machine = Machine()
    machine.life = ""
    torn_at_a_roll(tmp_path, machine)
    assert told_at_the_start(tmp_path, machine) == ("log_tail_truncated", "warning")
