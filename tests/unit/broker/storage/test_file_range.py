"""Ranges of a log's files: which bytes are read as one, and what becomes of it when the log changes."""

from dataclasses import replace
from mmap import PAGESIZE
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.unit.broker.storage.support import (
    NEVER_ISSUED,
    NOW_MS,
    append,
    batch,
    checkpoint,
    clean,
    flush,
    keyed,
    open_log,
)
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.file_range import LEAST_BYTES, FileRange
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.manager import LogManager
from tidelog.broker.storage.partition_log import PartitionLog, Read

VALUE = b"v" * LEAST_BYTES
CONFIG = LogConfig(segment_bytes=3 * LEAST_BYTES)


def fill(log: PartitionLog, value: bytes = VALUE, batches: int = 6) -> PartitionLog:
    for number in range(batches):
        append(log, batch(1, 0, number, value=value, timestamp=NOW_MS + number))
    flush(log)
    return log


def read(log: PartitionLog, offset: int, *, by_range: bool) -> Any:
    found = log.read(Read(offset, 1 << 20, log.flushed_end_offset, nowait=True, by_range=by_range))
    (data,) = found.records
    return data


def test_a_range_holds_the_bytes_that_a_copy_holds(tmp_path: Path) -> None:
    log = fill(open_log(tmp_path, config=CONFIG))
    for offset in range(6):
        stored, copy = read(log, offset, by_range=True), read(log, offset, by_range=False)
        assert isinstance(stored, FileRange)
        assert len(stored) == len(copy)
        taken = [stored.take(1000) for _ in range(0, len(copy), 1000)]
        assert b"".join(taken) == copy
        assert not stored


def test_few_bytes_are_copied(tmp_path: Path) -> None:
    log = fill(open_log(tmp_path), b"small")
    assert bytes(read(log, 0, by_range=True)) == bytes(read(log, 0, by_range=False))


def test_bytes_that_were_not_checked_since_the_start_are_copied_once(tmp_path: Path) -> None:
    fill(open_log(tmp_path)).close(clean=True)
    log = open_log(tmp_path, recovery_point=6)
    assert isinstance(read(log, 0, by_range=True), memoryview)
    assert isinstance(read(log, 0, by_range=True), FileRange)


def test_bytes_outside_the_page_cache_are_no_range(tmp_path: Path) -> None:
    class Uncached(Disk):
        def is_cached(self, fd: int, position: int, size: int) -> bool:
            return False

    log = fill(open_log(tmp_path, disk=Uncached()))
    assert isinstance(read(log, 0, by_range=True), memoryview)


def test_a_page_that_is_missing_anywhere_is_noticed(tmp_path: Path) -> None:
    disk, page = Disk(), PAGESIZE
    fd = disk.open(tmp_path / "file")
    disk.truncate(fd, 5 * page)  # Without pages until they are written.
    for number in (0, 1, 4):
        disk.write_all(fd, [bytes(page)], number * page)
    assert disk.is_cached(fd, 0, 2 * page)
    assert disk.is_cached(fd, page - 1, 2)
    assert not disk.is_cached(fd, 0, 3 * page)
    assert not disk.is_cached(fd, 2 * page - 1, 2)
    assert not disk.is_cached(fd, page, 4 * page)
    assert not disk.is_cached(fd, 5 * page - 1, 2)
    disk.close(fd)


def test_a_range_outlives_retention_and_the_end_of_its_log(tmp_path: Path) -> None:
    log = fill(open_log(tmp_path, config=replace(CONFIG, retention_bytes=0)))
    first, last = read(log, 0, by_range=True), read(log, 5, by_range=True)
    copies = [bytes(read(log, offset, by_range=False)) for offset in (0, 5)]
    assert log.apply_retention(NOW_MS) > 0
    log.close(clean=False)
    for path in tmp_path.glob("*.log*"):
        path.unlink()
    assert [bytes(stored.take(1 << 20)) for stored in (first, last)] == copies


def test_a_range_outlives_compaction(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=replace(CONFIG, cleanup_policy=("compact",)))
    for value in (VALUE, b"new"):
        append(log, keyed([(b"key", value)]))
        log.roll(NOW_MS)
    flush(log)
    checkpoint(log)
    stored, copy = read(log, 0, by_range=True), bytes(read(log, 0, by_range=False))
    clean(log)
    assert bytes(read(log, 0, by_range=False)) != copy
    assert bytes(stored.take(1 << 20)) == copy


def test_a_range_of_a_log_that_is_truncated_gives_nothing_more(tmp_path: Path) -> None:
    logs = LogManager(tmp_path, next_producer_id=lambda: NEVER_ISSUED, disk=Disk())
    logs.lock()
    logs.create("topic", UUID(int=17), 0, CONFIG, NOW_MS)
    stored = read(fill(logs.logs["topic", 0]), 0, by_range=True)
    shorter = logs.truncate_to("topic", 0, 3, NOW_MS)
    with pytest.raises(OSError, match="truncated"):
        stored.take(1)
    assert len(read(shorter, 0, by_range=True)) == len(stored)
    assert logs.close()
