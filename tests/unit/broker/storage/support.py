"""What the tests of the log share: batches by a few numbers, logs in a folder, a disk that fails on order."""

import errno
import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import pack
from threading import Event
from typing import ParamSpec, TypeVar

from tidelog.broker.storage.batch_rules import AppendOrigin
from tidelog.broker.storage.compaction.cleaner import CleanStats, LogClean, Pacing
from tidelog.broker.storage.compaction.selection import Cleanable
from tidelog.broker.storage.disk import Disk, SyncError
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import AppendResult, PartitionLog, Read
from tidelog.broker.storage.producer_table import ProducerEntry, last_offsets_of, producer_ids_of
from tidelog.broker.storage.recovery import Opening
from tidelog.protocol.compression import Compression, compress
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import BatchHeader, RecordBatchBuilder, iter_batches, read_batch_header
from tidelog.protocol.records.header import write_header
from tidelog.protocol.types import Buffer

P = ParamSpec("P")
R = TypeVar("R")
NOW_MS = 1_700_000_000_000
NEVER_ISSUED = 1_000


def batch(
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    count: int = 1,
    *,
    timestamp: int = NOW_MS,
    step_ms: int = 1,
    value: bytes = b"v" * 20,
    compression: Compression = Compression.NONE,
    is_transactional: bool = False,
) -> bytes:
    """One batch of `count` records, `step_ms` apart; without a producer id it carries no sequence either."""
    builder = RecordBatchBuilder()
    for number in range(count):
        builder.append(timestamp + number * step_ms, None, value)
    if producer_id < 0:
        return bytes(builder.build(compression, -1, -1, -1))
    return bytes(builder.build(compression, producer_id, epoch, sequence, is_transactional=is_transactional))


def marker(
    producer_id: int, epoch: int = 0, coordinator_epoch: int = 0, *, commits: bool = True, key: bytes = b""
) -> bytes:
    """The control batch by which a coordinator ends a transaction of this producer."""
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, key or pack(">hh", 0, commits), pack(">hi", 0, coordinator_epoch))
    return bytes(
        builder.build(Compression.NONE, producer_id, epoch, -1, is_transactional=True, is_control=True)
    )


def encoded(
    records: bytes,
    count: int,
    codec: Compression = Compression.NONE,
    *,
    is_compressed: bool = False,
    producer_id: int = -1,
    base_sequence: int = 0,
) -> bytes:
    """A batch with a right CRC of any bytes for records; `count` is what its header says of them."""
    packed = records if is_compressed else compress(codec, records)
    builder = RecordBatchBuilder.from_encoded(packed, count, NOW_MS, NOW_MS)
    sequence = (producer_id, 0, base_sequence) if producer_id >= 0 else (-1, -1, -1)
    data = builder.build(Compression.NONE, *sequence)
    write_header(data, read_batch_header(data)._replace(attributes=codec.value))
    return bytes(data)


def header(
    producer_id: int, epoch: int, sequence: int, count: int = 1, *, attributes: int = 0
) -> BatchHeader:
    """The header of a batch, without the batch."""
    return BatchHeader(
        0, 100, 0, 2, 0, attributes, count - 1, NOW_MS, NOW_MS, producer_id, epoch, sequence, count
    )


def open_log(
    folder: Path,
    *,
    config: LogConfig | None = None,
    disk: Disk | None = None,
    clean: bool = False,
    recovery_point: int = 0,
    start_offset: int | None = None,
    has_copies: bool = False,
    now_ms: int = NOW_MS,
) -> PartitionLog:
    """A log whose files are closed when nobody holds it any more: a process of tests opens thousands. What
    recovery read back is durable."""
    opening = Opening(
        config or LogConfig(),
        lambda: NEVER_ISSUED,
        now_ms,
        clean,
        recovery_point,
        start_offset,
        has_copies=has_copies,
    )
    log = PartitionLog.open(folder, "topic", 0, disk or Disk(), opening)
    weakref.finalize(log, log._segments.close)
    flush(log)
    return log


def append(log: PartitionLog, data: Buffer, *, now_ms: int = NOW_MS, leader_epoch: int = 0) -> AppendResult:
    return log.append(data, leader_epoch=leader_epoch, now_ms=now_ms)


def append_transactional(
    log: PartitionLog, producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0
) -> AppendResult:
    """As a producer does whose coordinator has this partition in its transaction."""
    data = batch(producer_id, epoch, sequence, count, is_transactional=True)
    return log.append(data, leader_epoch=0, now_ms=NOW_MS, permit=lambda begins: None)


def append_own(log: PartitionLog, data: Buffer, *, now_ms: int = NOW_MS) -> AppendResult:
    """As a coordinator of this broker does."""
    return log.append(data, leader_epoch=0, now_ms=now_ms, origin=AppendOrigin.COORDINATOR)


def append_from_leader(log: PartitionLog, data: Buffer, *, now_ms: int = NOW_MS) -> AppendResult:
    """As a follower does, with what the partition's leader gave it."""
    return log.append(data, leader_epoch=-1, now_ms=now_ms, origin=AppendOrigin.LEADER)


def outcome(call: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R | ErrorCode:
    """What the call returns, or the code of the ApiError that it raises."""
    try:
        return call(*arguments, **named)
    except ApiError as error:
        return error.code


def flush(log: PartitionLog) -> None:
    work = log.begin_flush()
    if work is not None:
        work.run()
        log.finish_flush(work)


def checkpoint(log: PartitionLog) -> None:
    work = log.begin_checkpoint()
    if work is not None:
        work.run()
        log.finish_checkpoint(work)


def stored(log: PartitionLog, max_bytes: int = 1 << 20) -> list[BatchHeader]:
    """Every batch from the log's start, read as a consumer would."""
    headers: list[BatchHeader] = []
    offset = log.start_offset
    while offset < log.end_offset:
        result = log.read(Read(offset, max_bytes, log.end_offset))
        for records in result.records:
            headers += [found for _, found in iter_batches(records)]
        assert result.next_offset > offset
        offset = result.next_offset
    return headers


def sequences(log: PartitionLog) -> list[tuple[int, int, int, int]]:
    """(base offset, producer id, epoch, base sequence) of every batch stored."""
    return [(h.base_offset, h.producer_id, h.producer_epoch, h.base_sequence) for h in stored(log)]


def state(log: PartitionLog) -> dict[int, ProducerEntry]:
    """Producers without the time of their last append, which a replay cannot know."""
    return {entry.producer_id: entry._replace(last_append_ms=0) for entry in log.producers.entries()}


class FaultyDisk(Disk):
    """A disk whose next writes, syncs or reads go wrong as told. A fault is used up by happening."""

    def __init__(self) -> None:
        self.write_faults: list[Callable[[int, Sequence[Buffer], int], int]] = []
        self.fdatasync_error: int | None = None
        self.truncate_error: int | None = None
        self.read_error: int | None = None
        self.open_error: Callable[[Path], int | None] = lambda path: None
        self.cold = False
        self.synced: list[int] = []
        self.writes = 0

    def open(self, path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        number = self.open_error(path)
        if number is not None:
            raise _os_error(number)
        return super().open(path, flags)

    def writev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self.writes += 1
        if self.write_faults:
            return self.write_faults.pop(0)(fd, buffers, position)
        return super().writev(fd, buffers, position)

    def short_write(self, size: int) -> None:
        """The next write writes only its first `size` bytes, and says so."""
        self.write_faults.append(lambda fd, buffers, at: os.pwrite(fd, b"".join(buffers)[:size], at))

    def fail_write(self, number: int, written: int = 0) -> None:
        """The next write leaves `written` bytes behind and raises errno `number`."""

        def fault(fd: int, buffers: Sequence[Buffer], position: int) -> int:
            os.pwrite(fd, b"".join(buffers)[:written], position)
            raise _os_error(number)

        self.write_faults.append(fault)

    def fdatasync(self, fd: int) -> None:
        if self.fdatasync_error is not None:
            raise SyncError(self.fdatasync_error, os.strerror(self.fdatasync_error))
        self.synced.append(fd)
        super().fdatasync(fd)

    def truncate(self, fd: int, size: int) -> None:
        if self.truncate_error is not None:
            raise _os_error(self.truncate_error)
        super().truncate(fd, size)

    def preadv(self, fd: int, buffer: memoryview, position: int, flags: int = 0) -> int:
        if self.read_error is not None:
            raise _os_error(self.read_error)
        if self.cold and flags:
            raise _os_error(errno.EAGAIN)
        return super().preadv(fd, buffer, position, flags)


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def keyed(
    records: Sequence[tuple[bytes | None, bytes | None]],
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    *,
    timestamp: int = NOW_MS,
    step_ms: int = 1,
    compression: Compression = Compression.NONE,
    is_transactional: bool = False,
) -> bytes:
    """One batch of records with these keys and values."""
    builder = RecordBatchBuilder()
    for number, (key, value) in enumerate(records):
        builder.append(timestamp + number * step_ms, key, value)
    numbers = (producer_id, epoch, sequence) if producer_id >= 0 else (-1, -1, -1)
    return bytes(builder.build(compression, *numbers, is_transactional=is_transactional))


def cover(log: PartitionLog, found: Cleanable) -> None:
    """The snapshots that a clean needs are written."""
    if not log.compaction.is_covered(found):
        checkpoint(log)
        assert log.compaction.is_covered(found)


def clean(
    log: PartitionLog,
    *,
    now_ms: int = NOW_MS,
    map_bytes: int = 1 << 20,
    stable_offset: int | None = None,
) -> CleanStats | None:
    """One clean of all that may be cleaned, as the broker's cleaner does it; None if nothing may be."""
    compaction = log.compaction
    stable = log.flushed_end_offset if stable_offset is None else stable_offset
    found = compaction.cleanable(log.config, stable, now_ms)
    if not found.dirty_bytes:
        return None
    cover(log, found)
    table = log.producers.view()
    task = compaction.begin(log.config, found, stable, now_ms, map_bytes)
    pacing = Pacing(float("inf"), Event())
    work = LogClean(task, pacing, last_offsets_of(table), producer_ids_of(table))
    work.build_map()
    for group in work.groups():
        new = work.write(group)
        if new is not None:
            assert compaction.begin_swap(group)
            compaction.swap(group, new)
            compaction.finish_swap(group, new)
    compaction.save_first_dirty(work.stats.end_offset)
    for path in compaction.take_deleted_files():
        path.unlink()
    if compaction.needs_snapshot():
        checkpoint(log)
    return work.stats
