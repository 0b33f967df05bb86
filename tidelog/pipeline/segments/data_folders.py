"""A data folder without its broker: the partitions in it, and where their logs start and end.

Owns finding segment files, and what a broker would answer about them: bounds of logs, and offsets at
timestamps. Read-only. The layout is Kafka's (TOPIC-PARTITION/OFFSET.log, the two checkpoint files, the marker
of a clean shutdown). Each process of a broker of several has one more such folder in `processes`.

Invariants: the files alone do not show where a log ends. After its last durable record, a running broker may
be writing, and a crashed one may have left records that its next start removes. So without a broker, the end
comes from the user (explicit endingOffsets) or from a clean shutdown.
"""

import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from tidelog.pipeline.offsets import LATEST, OptionError, Place, fits
from tidelog.pipeline.options.source import SourceOptions
from tidelog.pipeline.segments.segment_files import LOG_SUFFIX, SegmentCutError, SegmentFile
from tidelog.protocol.records import decode_batch

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_LOG_START_OFFSETS = "log-start-offset-checkpoint"
_METADATA = "partition.metadata"
_TOPIC_ID = re.compile(r"^topic_id: *(\S{22})$", re.MULTILINE)
_FLUSHED_OFFSETS = "recovery-point-offset-checkpoint"
_SWAP_SUFFIX = ".swap"
_PROCESSES = "processes"
_SWAP_CHECKS = 50
_SWAP_CHECK_SECONDS = 0.1

Bounds = dict[Place, tuple[int, int]]


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


def find_segments(folder: Path, topics: Iterable[str] = ()) -> list[Segment]:
    """The segments in `folder`, a data folder or a partition's; of `topics` only, if any. In each partition
    they are in the order of offsets.

    Raises FileNotFoundError when there is none, and SegmentCutError where a clean of a compacted log began to
    swap its files and does not finish.
    """
    wanted = set(topics)
    folder = folder.resolve()
    found = _files(folder, LOG_SUFFIX, wanted)
    # Listed after the segments: a swap that is over by now has left the new file under the old name.
    checks = 0
    while swaps := _files(folder, LOG_SUFFIX + _SWAP_SUFFIX, wanted):
        if checks == _SWAP_CHECKS:
            raise SegmentCutError(
                f"{swaps[0].path}: the broker has not put this compacted segment in the place of older ones"
                " yet, so the files are not whole. Start the broker, which finishes it, and read again; or"
                " read from the broker, without read.path"
            )
        checks += 1
        time.sleep(_SWAP_CHECK_SECONDS)
        found = _files(folder, LOG_SUFFIX, wanted)
    if not found:
        what = f" of {', '.join(sorted(wanted))}" if wanted else ""
        raise FileNotFoundError(f"no segments{what} below {folder}: expected TOPIC-PARTITION/OFFSET.log")
    return found


def _files(folder: Path, suffix: str, topics: Collection[str]) -> list[Segment]:
    found = []
    patterns = (f"*{suffix}", f"*/*{suffix}", f"{_PROCESSES}/*/*/*{suffix}")
    by_partition = (path for pattern in patterns for path in folder.glob(pattern))
    for path in sorted(by_partition, key=lambda path: (path.parent.name, path)):
        topic, dash, number = path.parent.name.rpartition("-")
        is_base = path.name.removesuffix(suffix).isdecimal()
        if is_base and dash and number.isdecimal() and (not topics or topic in topics):
            found.append(Segment(str(path), topic, int(number)))
    return found


def by_place(segments: Iterable[Segment]) -> dict[Place, list[Segment]]:
    """The segments of each partition, in their order."""
    places: dict[Place, list[Segment]] = {}
    for segment in segments:
        places.setdefault(segment.place, []).append(segment)
    return places


def bounds_without_broker(options: SourceOptions, folder: Path) -> Bounds:
    """Where the log of each partition that `options` select starts and ends in `folder`.

    Raises OptionError where the end is not known, or a topic or partition is not there, and
    FileNotFoundError where no partition is.
    """
    ends = None
    if not isinstance(options.ending, int) and LATEST not in options.ending.values():
        ends = options.ending if options.ending_times is None else None
    if ends is None and not all((each / CLEAN_SHUTDOWN).exists() for each in _homes(folder)):
        raise OptionError(
            f"read.path: {folder} is in use, or its broker did not shut down cleanly, so that what is"
            " committed is not known: give bootstrap.servers, or explicit endingOffsets in a batch"
        )
    found = by_place(find_segments(folder))
    if options.pattern is not None:
        wanted = {place for place in found if fits(options.pattern, place.topic)}
    elif options.assigned is not None:
        wanted = set(options.assigned)
        strange = sorted(map(str, wanted - found.keys()))
    else:
        topics = set(options.topics or ())
        wanted = {place for place in found if place.topic in topics}
        strange = sorted(topics - {place.topic for place in wanted})
    if options.pattern is None and strange:
        raise OptionError(f"read.path: {folder} holds no {', '.join(strange)}")
    return folder_bounds(folder, {place: found[place] for place in sorted(wanted)}, ends)


def folder_bounds(
    folder: Path, segments: Mapping[Place, Sequence[Segment]], ends: Mapping[Place, int] | None = None
) -> Bounds:
    """Where the log of each partition starts and ends: at its end in `ends`, if it exists, else after the
    last whole batch.

    Raises SegmentCutError where that is before what the broker had made durable.
    """
    homes = {
        each.resolve(): (
            _checkpoint(each / _LOG_START_OFFSETS),
            _checkpoint(each / _FLUSHED_OFFSETS),
            (each / CLEAN_SHUTDOWN).exists(),
        )
        for each in _homes(folder)
    }
    bounds = {}
    for place, files in segments.items():
        home = Path(files[0].path).parent.parent
        starts, flushed, is_clean = homes.get(home, homes[folder.resolve()])
        end = None if ends is None else ends.get(place)
        if end is None:
            end = _end_by_file(Path(files[-1].path), flushed.get(place, 0))
        first, saved = files[0].base_offset, starts.get(place, files[0].base_offset)
        # Files that a clean shutdown left were not deleted by the broker, if they are gone.
        bounds[place] = (min(saved if is_clean else max(first, saved), end), end)
    return bounds


def _homes(folder: Path) -> list[Path]:
    """The folder itself, and those of further processes."""
    return [folder, *sorted((folder / _PROCESSES).glob("[1-9]*"))]


def topic_ids_in_folder(folder: Path, places: Iterable[Place]) -> dict[str, str]:
    """The ids of the topics of these partitions, by their `partition.metadata`. A folder may have none."""
    ids: dict[str, str] = {}
    for place in places:
        inside = [home / str(place) / _METADATA for home in _homes(folder)]
        for path in (*inside, folder / _METADATA):
            if place.topic in ids:
                break  # All partitions of a topic have the same id.
            if path.exists() and (found := _TOPIC_ID.search(path.read_text())):
                ids[place.topic] = str(UUID(bytes=urlsafe_b64decode(found[1] + "==")))
    return ids


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
    none. Raises SegmentCutError where it may have been among offsets that no file holds any more."""
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
            f"{segment.path} was there a moment ago: the broker has deleted it or joined it with another, as"
            " retention or compaction asks. Read again"
        ) from None


def _checkpoint(path: Path) -> dict[Place, int]:
    """Kafka's checkpoint file: a version, a count, then topic, partition and offset a line."""
    if not path.exists():
        return {}
    rows = [line.split() for line in path.read_text().splitlines()[2:]]
    return {Place(topic, int(partition)): int(offset) for topic, partition, offset in rows}
