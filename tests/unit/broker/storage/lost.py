"""A log of several closed segments, and every way in which one of their files may lose its end."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.unit.broker.storage.support import NOW_MS, append, batch, checkpoint, flush, open_log
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import iter_batches

BATCHES = 40
ONE = len(batch(1, 0, 0))
CONFIG = LogConfig(segment_bytes=10 * ONE, index_interval_bytes=2 * ONE)


@dataclass(frozen=True)
class Loss:
    """What happened to one file: it is gone (`size` None), or `size` bytes long."""

    name: str
    size: int | None
    first_offset: int
    """The first offset that is lost."""
    end_offset: int
    """The offset behind the last one that is lost."""

    def happen_to(self, folder: Path) -> None:
        if self.size is None:
            (folder / self.name).unlink()
        else:
            with (folder / self.name).open("r+b") as file:
                file.truncate(self.size)


def written(folder: Path, *, clean: bool = True) -> None:
    """`BATCHES` batches of one record, sequence and timestamp as the offset, in closed segments of ten."""
    log = open_log(folder, config=CONFIG)
    for number in range(BATCHES + 5):
        append(log, batch(1, 0, number, timestamp=NOW_MS + number))
    flush(log)
    checkpoint(log)
    log.close(clean=clean)


def reopened(folder: Path, *, clean: bool = True, start_offset: int = 0) -> PartitionLog:
    return open_log(folder, config=CONFIG, clean=clean, recovery_point=BATCHES + 5, start_offset=start_offset)


def losses(folder: Path, cuts: range | None = None) -> Iterator[Loss]:
    """Each closed segment gone, and cut short at each of `cuts` (by default where its batches begin)."""
    logs = sorted(folder.glob("*.log"))
    for path, following in pairwise(logs):
        base, end = int(path.stem), int(following.stem)
        yield Loss(path.name, None, base, end)
        for size in cuts or range(0, path.stat().st_size, ONE):
            yield Loss(path.name, size, base + size // ONE, end)


def answer(log: PartitionLog, offset: int) -> list[int] | ErrorCode:
    """The base offsets of the batches that a read from `offset` brings, or why it brings none."""
    try:
        found = log.read(Read(offset, 1 << 20, log.end_offset))
    except ApiError as error:
        return error.code
    return [header.base_offset for records in found.records for _, header in iter_batches(records)]


def resent(log: PartitionLog, number: int) -> int | ErrorCode:
    """The offset by which a batch that is sent again is acknowledged, or the code by which it is refused."""
    try:
        result = append(log, batch(1, 0, number, timestamp=NOW_MS + number))
    except ApiError as error:
        return error.code
    assert result.duplicate
    return result.base_offset
