"""The two offset checkpoints of a data folder: where each log's recovery has to begin, and where it starts.

Owns what the files said when the folder was locked and what they say now.

Invariants: a file that cannot be understood counts as empty and is reported; `forget` returns whether a file
may still name a deleted partition, also after a failed write. Until they are written without it, a crash
would give its offsets to the next log of that name, which would lose the records before them.

For one thread at a time.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import structlog

from tidelog.broker.storage.checkpoints import (
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CheckpointError,
    TopicPartition,
    read_offsets,
    write_offsets,
)
from tidelog.broker.storage.disk import Disk

Offsets = dict[TopicPartition, int]
logger = structlog.get_logger(__name__)


class OffsetCheckpoints:
    """Reads and writes the two offset checkpoints of one data folder. `load` before anything else."""

    def __init__(self, disk: Disk, data_dir: Path) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self._recovery_points: Offsets = {}
        self._start_offsets: Offsets = {}
        self._written: tuple[Offsets, Offsets] | None = None
        """What both files say, where that is known."""
        self._named: set[TopicPartition] = set()
        """Partitions that either file may name."""

    def exist(self) -> bool:
        """Whether either file exists."""
        return any(self._disk.exists(self._data_dir / name) for name in (RECOVERY_POINTS, LOG_START_OFFSETS))

    def load(self, *, must_exist: bool) -> bool:
        """Read both; whether both could be understood and, with `must_exist`, both exist. Raises OSError."""
        points, starts = self._read(RECOVERY_POINTS, must_exist), self._read(LOG_START_OFFSETS, must_exist)
        self._recovery_points, self._start_offsets = points or {}, starts or {}
        self._named = self._recovery_points.keys() | self._start_offsets.keys()
        self._written = (dict(self._recovery_points), dict(self._start_offsets))
        return points is not None and starts is not None

    def _read(self, name: str, must_exist: bool) -> Offsets | None:
        try:
            if must_exist and not self._disk.exists(self._data_dir / name):
                raise CheckpointError(f"{name} is missing")
            return read_offsets(self._disk, self._data_dir / name)
        except CheckpointError as error:
            logger.error(
                "checkpoint_damaged",
                file=name,
                error=str(error),
                advice="every log is read from its start instead, this once; records that were deleted may be"
                " there again: delete them again if they must not be read",
            )
            return None

    def recovery_point(self, key: TopicPartition) -> int:
        """As the last process left it; 0 where it is not known."""
        return self._recovery_points.get(key, 0)

    def start_offset(self, key: TopicPartition) -> int | None:
        """As the last process left it; None if it is not known."""
        return self._start_offsets.get(key)

    def note(self, key: TopicPartition, recovery_point: int, start_offset: int) -> None:
        """The values of a log that is not open, from the next `write` on."""
        self._recovery_points[key], self._start_offsets[key] = recovery_point, start_offset

    def forget(self, keys: Iterable[TopicPartition]) -> bool:
        """These partitions are deleted, or begin again; whether the files have to be written for it."""
        is_written = False
        for key in keys:
            self._recovery_points.pop(key, None)
            self._start_offsets.pop(key, None)
            is_written |= key in self._named
        return is_written

    def write(
        self, recovery_points: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int]
    ) -> None:
        """Write both, durably, if they changed: what the open logs say, and what was read of the others.

        Raises OSError.
        """
        points = self._recovery_points | dict(recovery_points)
        start_offsets = self._start_offsets | dict(starts)
        if (points, start_offsets) == self._written:
            return
        keys = points.keys() | start_offsets.keys()
        self._written = None
        self._named |= keys
        write_offsets(self._disk, self._data_dir / RECOVERY_POINTS, points)
        write_offsets(self._disk, self._data_dir / LOG_START_OFFSETS, start_offsets)
        self._written = (points, start_offsets)
        self._named = keys
