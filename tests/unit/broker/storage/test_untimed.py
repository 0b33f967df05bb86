"""Batches without timestamps: they age by their file, are found by no time, and no limit refuses them."""

import os
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from tests.unit.broker.storage.support import NOW_MS, append, batch, flush, open_log, stored
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.broker.tiering.copying import copy_segment
from tidelog.protocol.compression import Compression
from tidelog.protocol.records import (
    LOG_OVERHEAD,
    decode_batch,
    pack_prefix,
    read_batch_header,
    with_max_timestamp,
)
from tidelog.remote_log.folder_store import FolderStore
from tidelog.remote_log.partition_objects import PartitionObjects

RETENTION_MS = LogConfig().retention_ms
_BASE_TIMESTAMP = slice(27, 35)


def untimed(
    count: int = 3, *, max_timestamp: int = 0, compression: Compression = Compression.NONE, base: int = -1
) -> bytes:
    """As librdkafka sends records with timestamp -1: BaseTimestamp -1 and, unless told, MaxTimestamp 0."""
    made = bytearray(batch(count=count, timestamp=-1, step_ms=0, compression=compression))
    made[_BASE_TIMESTAMP] = base.to_bytes(8, "big", signed=True)
    return with_max_timestamp(made, max_timestamp)


def log_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def written_at(folder: Path, moment_ms: int) -> None:
    """Give all segments the time of their last write."""
    for path in log_files(folder):
        os.utime(path, ns=(moment_ms * 1_000_000, moment_ms * 1_000_000))


def write_old_segment(folder: Path, batches: Sequence[bytes]) -> int:
    """What a version that believed MaxTimestamp left behind; the end offset."""
    data, offset = b"", 0
    for each in batches:
        copy = bytearray(each)
        copy[:16] = pack_prefix(offset, len(copy) - LOG_OVERHEAD, 0)
        offset = read_batch_header(copy).last_offset + 1
        data += copy
    (folder / f"{0:020d}.log").write_bytes(data)
    return offset


def assert_ages_by_its_file(log: PartitionLog) -> None:
    """Nothing leaves within retention.ms of the last write, all of it afterwards."""
    end = log.end_offset
    written_at(log.folder, NOW_MS)
    assert log.apply_retention(NOW_MS + RETENTION_MS) == 0
    assert log.start_offset == 0
    assert log.apply_retention(NOW_MS + RETENTION_MS + 1) == end
    assert log.start_offset == end


@pytest.mark.parametrize("clean", [True, False])
def test_what_was_stored_with_a_max_timestamp_of_0_does_so_too(tmp_path: Path, clean: bool) -> None:
    end = write_old_segment(tmp_path, [untimed() for _ in range(20)])
    # Its time index said so, too.
    (tmp_path / f"{0:020d}.timeindex").write_bytes(bytes(12))
    (tmp_path / f"{0:020d}.index").write_bytes(b"")
    log = open_log(tmp_path, clean=clean, recovery_point=end)
    assert log.end_offset == end
    assert_ages_by_its_file(log)


def test_a_segment_is_as_old_in_remote_storage_as_on_the_disk(tmp_path: Path) -> None:
    old = batch(timestamp=NOW_MS - 2 * RETENTION_MS)
    (tmp_path / "log").mkdir()
    log = open_log(tmp_path / "log")
    for each in ([old], [untimed()], [old, untimed()], [batch(timestamp=NOW_MS + 5), untimed()]):
        for sent in each:
            append(log, sent)
        log.roll(NOW_MS)
    flush(log)
    written_at(log.folder, NOW_MS)
    objects = PartitionObjects(FolderStore(tmp_path / "remote"), UUID(int=1), 0)
    end_offset = 0
    for latest_ms in (NOW_MS - 2 * RETENTION_MS, NOW_MS, NOW_MS, NOW_MS + 5):
        segment = log.copyable(end_offset, log.end_offset)
        assert segment is not None
        end_offset = segment.end_offset
        copied = copy_segment(objects, log, segment, 0, lambda: True)
        assert copied.latest_ms == segment.latest_ms == latest_ms
        for moment_ms in (latest_ms, latest_ms + 1):
            is_older = moment_ms > latest_ms
            assert copied.is_older_than(moment_ms) == segment.is_older_than(moment_ms) == is_older


def test_what_retention_must_read_of_old_segments_can_be_read_ahead_of_it(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1000, retention_ms=1000)
    log = open_log(tmp_path, config=config)
    for number in range(40):
        append(log, batch(timestamp=NOW_MS - 100_000 + number))
    flush(log)
    log.close(clean=True)

    class CountingDisk(Disk):
        reads = 0

        def preadv(self, fd: int, buffer: memoryview, position: int, flags: int = 0) -> int:
            self.reads += 1
            return super().preadv(fd, buffer, position, flags)

    disk = CountingDisk()
    log = open_log(tmp_path, config=config, clean=True, disk=disk)
    written_at(tmp_path, NOW_MS)
    log.look_up_ages(NOW_MS)
    before = disk.reads
    assert before >= log.segment_count > 2
    assert log.apply_retention(NOW_MS) == 40
    assert disk.reads == before


def test_the_stored_header_says_what_the_records_say(tmp_path: Path) -> None:
    """As Kafka writes it: MaxTimestamp is the largest of the records', -1 where there is none."""
    log = open_log(tmp_path)
    for codec in Compression:
        append(log, untimed(compression=codec))
    flush(log)
    assert [(header.base_timestamp, header.max_timestamp) for header in stored(log)] == [(-1, -1)] * 5
    (data,) = log.read(Read(0, 1 << 20, log.end_offset)).records
    position = 0
    while position < len(data):
        assert [record.timestamp for record in decode_batch(data, position)] == [-1, -1, -1]
        position += read_batch_header(data, position).size_bytes


def test_an_append_reads_nothing_back_though_the_first_batch_has_no_timestamp(tmp_path: Path) -> None:
    class NoReads(Disk):
        def preadv(self, fd: int, buffer: memoryview, position: int, flags: int = 0) -> int:
            raise AssertionError("an append read the disk")

    log = open_log(tmp_path, disk=NoReads())
    for _ in range(3):
        append(log, untimed())
