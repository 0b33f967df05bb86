"""A partition's name used again, and names at their longest; starts that fail, and starts on a full disk."""

import errno
import shutil
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.storage.support import NOW_MS, FaultyDisk, append, batch, flush
from tests.unit.broker.storage.test_manager import (
    SMALL,
    TOPIC_ID,
    checkpoint,
    create,
    create_new,
    fill,
    kill,
    manager,
)
from tidelog.broker.storage.folders import NewPartitions
from tidelog.broker.storage.log_types import Read
from tidelog.broker.storage.manager import CLEAN_SHUTDOWN
from tidelog.broker.storage.producer_state import ProducerRules
from tidelog.protocol.errors import ApiError, ErrorCode


@pytest.mark.parametrize("is_many", [False, True])
def test_a_topic_made_again_inherits_no_offset_of_the_old_one_over_a_crash(
    tmp_path: Path, is_many: bool
) -> None:
    logs = manager(tmp_path)
    old = create(logs)
    fill(old, 50)
    old.delete_records_before(20)
    checkpoint(logs)
    logs.delete([("topic", 0)])
    new_id = uuid4()
    if is_many:
        new = create_new(logs, new_id)
    else:
        new = create(logs, topic_id=new_id)
    fill(new, 30)
    kill(logs)
    logs = manager(tmp_path)
    new = create(logs, topic_id=new_id)
    assert (new.start_offset, new.end_offset) == (0, 30)
    assert new.recovery.recovery_point == 0
    assert not new.recovery.below_recovery_point
    logs.close()


def test_offsets_that_one_file_took_and_the_other_did_not_are_not_the_next_ones(tmp_path: Path) -> None:
    disk, new_id = FaultyDisk(), uuid4()
    logs = manager(tmp_path, disk)
    fill(create(logs), 50)
    disk.open_error = lambda path: errno.ENOSPC if path.name.startswith("log-start-offset") else None
    with pytest.raises(OSError, match="No space"):
        checkpoint(logs)
    disk.open_error = lambda path: None
    logs.delete([("topic", 0)])
    fill(create(logs, topic_id=new_id), 30)
    kill(logs)
    logs = manager(tmp_path)
    new = create(logs, topic_id=new_id)
    assert (new.end_offset, new.recovery.recovery_point) == (30, 0)
    assert not new.recovery.below_recovery_point
    logs.close()


def test_offsets_of_a_topic_that_was_deleted_before_a_crash_are_not_the_next_ones(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    fill(create(logs))
    logs.logs["topic", 0].delete_records_before(20)
    checkpoint(logs)
    kill(logs)
    new_id = uuid4()
    for is_made in (False, True):
        logs = manager(tmp_path)
        if not is_made:
            create_new(logs, new_id)
        log = create(logs, topic_id=new_id)
        assert log.start_offset == 0
        if not log.end_offset:
            fill(log)
        kill(logs)


def test_the_longest_name_can_be_deleted_and_used_again(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    name = "n" * 249
    fill(create(logs, name))
    logs.delete([(name, 0)])
    fill(create(logs, name, topic_id=uuid4()), 3)
    assert logs.purge() > 0
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [f"{name}-0"]
    logs.close()


def test_a_start_that_fails_leaves_the_folder_free_and_as_clean_as_it_was(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    fill(create(logs))
    logs.close()
    disk = FaultyDisk()
    disk.open_error = lambda path: errno.EIO if path.name.startswith("recovery-point") else None
    with pytest.raises(OSError, match="Input/output"):
        manager(tmp_path, disk)
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    logs = manager(tmp_path)
    assert logs.was_clean
    logs.close()


def test_a_start_works_on_a_disk_without_space_for_optional_files(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.open_error = lambda path: errno.ENOSPC if path.name.startswith(".boot_id") else None
    logs = manager(tmp_path, disk)
    fill(create(logs))
    logs.close()


def test_a_full_disk_keeps_no_log_of_a_crash_from_being_read(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    fill(create(logs))
    kill(logs)
    disk = FaultyDisk()
    disk.open_error = lambda path: errno.ENOSPC if path.suffix == ".tmp" else None
    logs = manager(tmp_path, disk)
    log = logs.open_all([("topic", TOPIC_ID, 0, SMALL)], NOW_MS)["topic", 0]
    assert (log.end_offset, log.flushed_end_offset, log.recovery_point) == (30, 30, 0)
    assert len(log.read(Read(0, 10_000, 30)).records[0]) > 0
    disk.open_error = lambda path: None
    checkpoint(logs)
    assert list(log.folder.glob("*.snapshot"))
    kill(logs)
    assert create(manager(tmp_path)).end_offset == 30


def test_foreign_files_do_not_prevent_a_deletion(tmp_path: Path) -> None:
    (tmp_path / "a-0.1-delete" / "folder").mkdir(parents=True)
    (tmp_path / "b-delete").write_bytes(b"")
    (tmp_path / "other-0").write_bytes(b"somebody's")
    logs = manager(tmp_path)
    fill(create(logs))
    logs.delete([("topic", 0)])
    with capture_logs() as events:
        assert logs.purge() > 0
        (refused,) = logs.create_many([NewPartitions("other", uuid4(), [0], SMALL)], NOW_MS)
        assert isinstance(refused, FileExistsError)
    left = [event["path"] for event in events if event["event"] == "deleted_file_left"]
    assert left[0] == str(tmp_path / "a-0.1-delete" / "folder")
    assert sorted(path.name for path in tmp_path.glob("*-*") if path.is_dir()) == ["a-0.1-delete"]
    assert (tmp_path / "other-0").read_bytes() == b"somebody's"
    logs.close()


def test_a_folder_that_is_missing_at_the_start_is_reported(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    fill(create(logs))
    logs.close()
    shutil.move(tmp_path / "topic-0", tmp_path / "elsewhere")
    logs = manager(tmp_path)
    with capture_logs() as events:
        assert create(logs).end_offset == 0
        create(logs, partition=1)
    (told,) = [event for event in events if event["event"] == "partition_folder_missing"]
    assert (told["topic"], told["partition"], told["records_before"]) == ("topic", 0, 30)
    logs.close()


def test_a_partition_that_comes_back_after_its_removal_and_a_crash_misses_no_folder(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    fill(create(logs))
    checkpoint(logs)
    logs.write_checkpoints()
    logs.delete([("topic", 0)])
    kill(logs)
    logs = manager(tmp_path)
    with capture_logs() as events:
        assert create(logs).end_offset == 0
    assert "partition_folder_missing" not in [event["event"] for event in events]
    logs.close()


@pytest.mark.parametrize("is_clean", [False, True])
def test_the_batch_of_an_evicted_producer_is_stored_once_over_a_restart(
    tmp_path: Path, is_clean: bool
) -> None:
    config = replace(SMALL, producers=ProducerRules(max_producers=2))
    logs = manager(tmp_path)
    log = logs.open_all([("topic", TOPIC_ID, 0, config)], NOW_MS)["topic", 0]
    for producer_id in range(5):
        append(log, batch(producer_id, 0, 0))
    flush(log)
    if is_clean:
        logs.close()
    else:
        checkpoint(logs)
        kill(logs)
    logs = manager(tmp_path)
    log = logs.open_all([("topic", TOPIC_ID, 0, config)], NOW_MS)["topic", 0]
    for producer_id in range(3):
        with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.UNKNOWN_PRODUCER_ID):
            append(log, batch(producer_id, 0, 0))
    assert log.end_offset == 5
    logs.close()
