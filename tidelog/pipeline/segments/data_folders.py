"""Data folders without their brokers: the partitions in them, and where their logs start and end.

Owns finding segment files, and what a broker would answer about them: bounds of logs, and offsets at
timestamps. Read-only. The layout is Kafka's (TOPIC-PARTITION/OFFSET.log, the two checkpoint files, the marker
of a clean shutdown). Each process of a broker of several has one more such folder in `processes`.

Invariants: the files alone do not show where a log ends. After its last durable record, a running broker may
be writing, and a crashed one may have left records that its next start removes. So without a broker, the end
comes from the user (explicit endingOffsets) or from a clean shutdown. All segments of a partition that are
read lie in one data folder: with a broker, in that of the leader.
"""

import os
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from tidelog.pipeline.offsets import LATEST, Logs, OptionError, Place, fits
from tidelog.pipeline.options.source import SourceOptions
from tidelog.pipeline.segments.segment_files import LOG_SUFFIX, SegmentCutError, SegmentFile
from tidelog.protocol.records import decode_batch

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_LOG_START_OFFSETS = "log-start-offset-checkpoint"
_METADATA = "partition.metadata"
_IDENTITY = "meta.properties"
_TOPIC_ID = re.compile(r"^topic_id: *(\S{22})$", re.MULTILINE)
_NODE_ID = re.compile(r"^node\.id=(\d+)$", re.MULTILINE)
_FLUSHED_OFFSETS = "recovery-point-offset-checkpoint"
_SWAP_SUFFIX = ".swap"
_PROCESSES = "processes"
_SWAP_CHECKS = 50
_SWAP_CHECK_SECONDS = 0.1

Bounds = dict[Place, tuple[int, int]]
Segments = dict[Place, list["Segment"]]


class Segment(NamedTuple):
    """One `.log` file of a partition."""

    path: str
    topic: str
    partition: int

    @property
    def place(self) -> Place:
        return Place(self.topic, self.partition)

    @property
    def base_offset(self) -> int:
        return int(Path(self.path).stem)

    @property
    def home(self) -> Path:
        """The data folder that has the partition's folder."""
        return Path(self.path).parent.parent


def require_readable(folder: Path) -> None:
    """Raises OptionError if this data folder, or that of a further process in it, cannot be listed."""
    try:
        os.listdir(folder)
        if (folder / _PROCESSES).exists():
            for process in os.listdir(folder / _PROCESSES):
                if (folder / _PROCESSES / process).is_dir():
                    os.listdir(folder / _PROCESSES / process)
    except OSError as error:
        raise OptionError(
            f"read.path: {error.filename} cannot be read ({error.strerror}). Run Spark as the broker's user"
            " on a machine that has the folder, or leave the folder out"
        ) from None


def find_segments(folders: Iterable[Path], topics: Iterable[str] = ()) -> list[Segment]:
    """The segments in `folders`, which are data folders or partitions'; of `topics` only, if any. In each
    folder of a partition they are in the order of offsets.

    Raises FileNotFoundError when there is none, and SegmentCutError where a clean of a compacted log began to
    swap its files and does not finish.
    """
    wanted = set(topics)
    places = [folder.resolve() for folder in folders]
    found = _files(places, LOG_SUFFIX, wanted)
    # Listed after the segments: a swap that is over by now has left the new file under the old name.
    checks = 0
    while swaps := _files(places, LOG_SUFFIX + _SWAP_SUFFIX, wanted):
        if checks == _SWAP_CHECKS:
            raise SegmentCutError(
                f"{swaps[0].path}: the broker has not put this compacted segment in the place of older ones"
                " yet, so the files are not whole. Start the broker, which finishes it, and read again; or"
                " read from the broker, without read.path"
            )
        checks += 1
        time.sleep(_SWAP_CHECK_SECONDS)
        found = _files(places, LOG_SUFFIX, wanted)
    if not found:
        what = f" of {', '.join(sorted(wanted))}" if wanted else ""
        below = ", ".join(map(str, places))
        raise FileNotFoundError(f"no segments{what} below {below}: expected TOPIC-PARTITION/OFFSET.log")
    return found


def _files(folders: Iterable[Path], suffix: str, topics: Collection[str]) -> list[Segment]:
    found = []
    patterns = (f"*{suffix}", f"*/*{suffix}", f"{_PROCESSES}/*/*/*{suffix}")
    by_partition = {path for folder in folders for pattern in patterns for path in folder.glob(pattern)}
    for path in sorted(by_partition, key=lambda path: (path.parent.name, path)):
        topic, dash, number = path.parent.name.rpartition("-")
        is_base = path.name.removesuffix(suffix).isdecimal()
        if is_base and dash and number.isdecimal() and (not topics or topic in topics):
            found.append(Segment(str(path), topic, int(number)))
    return found


def by_place(segments: Iterable[Segment]) -> Segments:
    """The segments of each partition, in their order.

    Raises OptionError for a partition that is in two data folders.
    """
    places: Segments = {}
    for segment in segments:
        before = places.setdefault(segment.place, [])
        if before and before[0].home != segment.home:
            raise OptionError(
                f"read.path: {segment.place} is in {before[0].home} and in {segment.home}. Name only the"
                " folder that counts, or give bootstrap.servers"
            )
        before.append(segment)
    return places


def at_leaders(segments: Iterable[Segment], leaders: Mapping[Place, int]) -> Segments:
    """The segments of each partition that lie in a data folder of its leader, in their order. A folder that
    does not say whose it is (`meta.properties`) may be any broker's.

    Raises OptionError as `by_place`.
    """
    nodes: dict[Path, int | None] = {}
    kept = []
    for segment in segments:
        if segment.home not in nodes:
            nodes[segment.home] = _node_id(segment.home)
        if nodes[segment.home] in (None, leaders.get(segment.place)):
            kept.append(segment)
    return by_place(kept)


def _node_id(home: Path) -> int | None:
    try:
        found = _NODE_ID.search((home / _IDENTITY).read_text())
    except FileNotFoundError:
        return None
    return int(found[1]) if found else None


def logs_without_broker(options: SourceOptions, folders: Sequence[Path]) -> Logs:
    """The logs of the partitions that `options` select in `folders`.

    Raises OptionError if the end is not known, or a topic or partition is not there, and
    FileNotFoundError where no partition is.
    """
    ends = None
    if not isinstance(options.ending, int) and LATEST not in options.ending.values():
        ends = options.ending if options.ending_times is None else None
    segments = find_segments(folders)
    homes = sorted({segment.home for segment in segments})
    if ends is None and (unclean := [each for each in homes if not (each / CLEAN_SHUTDOWN).exists()]):
        raise OptionError(
            f"read.path: {unclean[0]} is in use, or its broker did not shut down cleanly, so that what is"
            " committed is not known: give bootstrap.servers, or explicit endingOffsets in a batch"
        )
    found = {segment.place for segment in segments}
    if options.pattern is not None:
        wanted = {place for place in found if fits(options.pattern, place.topic)}
    elif options.assigned is not None:
        wanted = set(options.assigned)
        strange = sorted(map(str, wanted - found))
    else:
        topics = set(options.topics or ())
        wanted = {place for place in found if place.topic in topics}
        strange = sorted(topics - {place.topic for place in wanted})
    if options.pattern is None and strange:
        raise OptionError(f"read.path: {', '.join(map(str, folders))} holds no {', '.join(strange)}")
    chosen = dict(sorted(by_place(each for each in segments if each.place in wanted).items()))
    return Logs(bounds_in_files(chosen, ends), _topic_ids(chosen))


def bounds_in_files(
    segments: Mapping[Place, Sequence[Segment]], ends: Mapping[Place, int] | None = None
) -> Bounds:
    """Where the log of each partition starts and ends: at its end in `ends`, if it exists, else after the
    last whole batch.

    Raises SegmentCutError if that is before what the broker had made durable.
    """
    homes = {
        home: (
            _checkpoint(home / _LOG_START_OFFSETS),
            _checkpoint(home / _FLUSHED_OFFSETS),
            (home / CLEAN_SHUTDOWN).exists(),
        )
        for home in {files[0].home for files in segments.values()}
    }
    bounds = {}
    for place, files in segments.items():
        starts, flushed, is_clean = homes[files[0].home]
        end = None if ends is None else ends.get(place)
        if end is None:
            end = _end_by_file(Path(files[-1].path), flushed.get(place, 0))
        first, saved = files[0].base_offset, starts.get(place, files[0].base_offset)
        # Files that a clean shutdown left were not deleted by the broker, if they are gone.
        bounds[place] = (min(saved if is_clean else max(first, saved), end), end)
    return bounds


def _topic_ids(segments: Mapping[Place, Sequence[Segment]]) -> dict[str, str]:
    ids: dict[str, str] = {}
    for place, files in segments.items():
        # All partitions of a topic have the same id.
        if place.topic not in ids and (found := topic_id_in(Path(files[0].path).parent)):
            ids[place.topic] = found
    return ids


def topic_id_in(folder: Path) -> str | None:
    """The id of the topic of a partition's folder, by its `partition.metadata`, which it may lack."""
    path = folder / _METADATA
    if path.exists() and (found := _TOPIC_ID.search(path.read_text())):
        return str(UUID(bytes=urlsafe_b64decode(found[1] + "==")))
    return None


def _end_by_file(path: Path, flushed: int) -> int:
    with SegmentFile(path) as last:
        end = last.end_offset()
    if end < flushed:
        raise SegmentCutError(
            f"{path}: the last whole batch ends at offset {end}, and the broker had made all before {flushed}"
            " durable"
        )
    return end


def offset_at(segments: Sequence[Segment], bounds: tuple[int, int], timestamp: int) -> int:
    """The first offset within `bounds` whose timestamp is not before the given one (ms), -1 where there is
    none. Raises SegmentCutError if it may have been among offsets that no file holds any more."""
    start, end = bounds
    reached = start
    for segment in segments:
        if segment.base_offset > reached:
            raise SegmentCutError(
                f"{segment.place}: no segment file holds the offsets {reached} to {segment.base_offset - 1}"
            )
        with _opened(segment) as file:
            for batch in file.walk():
                reached = max(reached, batch.header.last_offset + 1)
                if batch.header.base_offset >= end:
                    return -1
                if batch.header.largest_timestamp < timestamp or batch.header.is_control:
                    continue
                for record in decode_batch(file.bytes_of(batch)):
                    if record.timestamp >= timestamp and start <= record.offset < end:
                        return record.offset
    return -1


def _opened(segment: Segment) -> SegmentFile:
    try:
        return SegmentFile(Path(segment.path))
    except FileNotFoundError:
        raise SegmentCutError(
            f"{segment.path} does not exist any more: retention or compaction has deleted or joined "
            "it. Read again"
        ) from None


def _checkpoint(path: Path) -> dict[Place, int]:
    """Kafka's checkpoint file: a version, a count, then topic, partition and offset a line."""
    if not path.exists():
        return {}
    rows = [line.split() for line in path.read_text().splitlines()[2:]]
    return {Place(topic, int(partition)): int(offset) for topic, partition, offset in rows}
