"""The sources of a replay: the files of an archive, or a topic. Both have bounds and return ranges.

Owns which files of an archive are read, up to the offsets to which its log says that they are complete. So a
replay beside a running archive reads only whole rounds. Parquet files without a log, such as a copy, are read
as they are. Files are chosen by their names; files with other names, as after a compaction by other tools,
are always read. Missing files count too, so a read of their offsets reports them.

Invariants: `read` gives every record of the ranges once. Read-only.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.pipeline.jobs.archive_files import ArchiveError, offsets_in_name
from tidelog.pipeline.jobs.archive_log import archived_topic_ids, missing_files, published_ends
from tidelog.pipeline.jobs.copies import origin_of
from tidelog.pipeline.jobs.replay_settings import Times
from tidelog.pipeline.offsets import OffsetRange, OptionError, Place
from tidelog.pipeline.options.source import options_of_ranges
from tidelog.pipeline.source.fetch import find_bounds, find_offsets_at
from tidelog.wire.cluster_config import ClusterConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

Bounds = dict[Place, tuple[int, int]]
_MS_PER_DAY = 86_400_000
_EPOCH = date(1970, 1, 1).toordinal()


class Records(Protocol):
    """A source of a replay: it tells the bounds of the partitions, and reads ranges of offsets."""

    # True if each task's rows come in the order of one partition's offsets.
    is_ordered: bool

    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics that the records come from, as far as they are known."""

    def bounds(self) -> Bounds:
        """The first offset of each partition, and that after its last one."""

    def read(self, ranges: Sequence[OffsetRange]) -> "DataFrame":
        """The records of the ranges, at most one range per partition, with the source's columns."""


class TopicRecords:
    """Reads the records of a replay from topics of a broker."""

    is_ordered = True

    def __init__(
        self, spark: "SparkSession", cluster: ClusterConfig, topics: Iterable[str], times: Times
    ) -> None:
        self._spark = spark
        self._cluster = cluster
        self._topics = tuple(topics)
        self._times = times

    def topic_ids(self) -> dict[str, str]:
        """Raises ClientError."""
        return asyncio.run(origin_of(self._cluster, self._topics)).topics

    def bounds(self) -> Bounds:
        """Raises ClientError."""
        bounds = find_bounds(self._cluster, self._topics, None)
        start_ms, _ = self._times
        if start_ms is None:
            return bounds
        # All records before it are older, so nothing is missed.
        first = find_offsets_at(self._cluster, dict.fromkeys(bounds, start_ms))
        return {
            place: (max(start, first[place]) if first[place] >= 0 else end, end)
            for place, (start, end) in bounds.items()
        }

    def read(self, ranges: Sequence[OffsetRange]) -> "DataFrame":
        options = self._cluster.to_options() | options_of_ranges(ranges)
        return self._spark.read.format("tidelog").options(**options).load()


class _File(NamedTuple):
    path: str
    topic: str
    day: int | None
    offsets: tuple[int, int, int] | None


class ArchivedRecords:
    """Reads the records of a replay from an archive in a folder."""

    is_ordered = False

    def __init__(
        self, spark: "SparkSession", root: Path, topics: Iterable[str], times: Times, *, allow_gaps: bool
    ) -> None:
        """With `allow_gaps`, missing files cause only a warning. Raises OptionError if there is no
        archive."""
        self._spark = spark
        self._root = root
        self._times = times
        self._allow_gaps = allow_gaps
        chosen = frozenset(topics)
        self._ends = published_ends(root)
        gone = [str(root / name) for name in missing_files(root)]
        paths = {*map(str, root.glob("topic=*/date=*/[!._]*.parquet")), *gone}
        if not paths and self._ends is None:
            raise OptionError(f"there is no archive in {root}")
        if not paths and self._ends:
            raise OptionError(f"no file is left of the archive in {root}: bring back what was taken away")
        self._gone, self._warned_of = frozenset(gone), set[str]()
        files = [_file(path) for path in sorted(paths)]
        self._files = [each for each in files if not chosen or each.topic in chosen]
        if absent := sorted(chosen - {each.topic for each in files}):
            raise OptionError(f"the archive in {root} holds no records of {', '.join(absent)}")

    def topic_ids(self) -> dict[str, str]:
        return archived_topic_ids(self._root)

    def bounds(self) -> Bounds:
        bounds: Bounds = {}
        named = [(each.topic, *each.offsets) for each in self._files if each.offsets]
        for topic, partition, first, last in named:
            start, end = bounds.get(place := Place(topic, partition), (first, last + 1))
            bounds[place] = (min(start, first), max(end, last + 1))
        if len(named) < len(self._files):
            from pyspark.sql import functions as f

            read = self._load(self._present(self._files)).groupBy("topic", "partition")
            for row in read.agg(f.min("offset").alias("first"), f.max("offset").alias("last")).collect():
                bounds[Place(row["topic"], row["partition"])] = (row["first"], row["last"] + 1)
        if self._ends is None:
            return bounds
        known = {place: (start, min(end, self._ends.get(place, 0))) for place, (start, end) in bounds.items()}
        return {place: (start, end) for place, (start, end) in known.items() if start < end}

    def read(self, ranges: Sequence[OffsetRange]) -> "DataFrame":
        from functools import reduce

        from pyspark.sql import functions as f

        files = self._present(self._files_of(ranges))
        wanted = [
            (f.col("topic") == each.topic)
            & (f.col("partition") == each.partition)
            & f.col("offset").between(each.start, each.end - 1)
            for each in ranges
        ]
        return self._load(files).where(reduce(lambda one, other: one | other, wanted))

    def _files_of(self, ranges: Sequence[OffsetRange]) -> list[_File]:
        """The files that may hold records of the ranges and times."""
        by_place = {Place(*each[:2]): each for each in ranges}
        start_ms, end_ms = self._times

        def is_wanted(file: _File) -> bool:
            if file.day is not None:
                if start_ms is not None and file.day < start_ms // _MS_PER_DAY:
                    return False
                if end_ms is not None and file.day > end_ms // _MS_PER_DAY:
                    return False
            if file.offsets is None:
                return True
            partition, first, last = file.offsets
            asked = by_place.get(Place(file.topic, partition))
            return asked is not None and first < asked.end and last >= asked.start

        return [each for each in self._files if is_wanted(each)]

    def _present(self, files: Sequence[_File]) -> list[_File]:
        """Raises ArchiveError for missing files, unless they are allowed."""
        if gone := [each.path for each in files if each.path in self._gone]:
            what = f"{gone[0]} is gone from the archive" + (f", and {len(gone) - 1} more" if gone[1:] else "")
            if not self._allow_gaps:
                raise ArchiveError(f"{what}: bring it back, or replay without its records, with allow_gaps")
            if set(gone) - self._warned_of:
                _log.warning("replayed without its records: %s", what)
            self._warned_of.update(gone)
        return [each for each in files if each.path not in self._gone]

    def _load(self, files: Sequence[_File]) -> "DataFrame":
        from pyspark.sql.types import DateType, StructField, StructType

        from tidelog.pipeline.schema import SCHEMA

        schema = StructType([*SCHEMA.fields, StructField("date", DateType())])
        if not files:
            return self._spark.createDataFrame([], schema)
        # A topic may be named 7, which Spark would read as a number.
        reader = self._spark.read.schema(schema).option("basePath", str(self._root))
        return reader.parquet(*(each.path for each in files))


def _file(path: str) -> _File:
    topic, day, name = (part.rpartition("=")[2] for part in Path(path).parts[-3:])
    try:
        number = date.fromisoformat(day).toordinal() - _EPOCH
    except ValueError:
        number = None
    return _File(path, topic, number, offsets_in_name(name))
