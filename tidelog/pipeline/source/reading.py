"""What batch and stream reads share: the bounds of the logs, the tasks, and the records of a task.

Owns the choice between the two sources of records, the broker and the segment files (option read.path), and
the report of records that were deleted before they could be read (option failOnDataLoss=false): one warning
per loss through `logging`, and a file in the folder that option losses.path names. With both
bootstrap.servers and read.path, the broker gives the bounds of the logs, and the files give the records.
Those of a partition whose leader's folder is not there come from the broker.

Invariants: a task yields every record of its ranges, in order, or names what it skipped, or fails. Whole
partitions share a task, or pieces that follow one another.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from tidelog.client import OffsetOutOfRangeError
from tidelog.pipeline.arrow.columnar import decode_record_batches
from tidelog.pipeline.offsets import (
    LATEST,
    Logs,
    OffsetRange,
    OptionError,
    Place,
    Positions,
    for_each,
    group_ranges,
    lose,
    require_same_topic,
    split_ranges,
)
from tidelog.pipeline.options.source import SourceOptions
from tidelog.pipeline.segments.data_folders import (
    Segments,
    at_leaders,
    by_place,
    find_segments,
    logs_without_broker,
    offset_at,
    require_readable,
    topic_id_in,
)
from tidelog.pipeline.segments.segment_ranges import Piece, open_piece, plan_pieces
from tidelog.pipeline.segments.segment_transactions import aborted_transactions
from tidelog.pipeline.source.fetch import (
    find_bounds,
    find_ends,
    find_logs,
    find_offsets_at,
    next_offset,
    read_answers,
)
from tidelog.pipeline.source.losses import left_out, note_losses
from tidelog.pipeline.workers import freeze_imports, rows_for_spark
from tidelog.protocol.records import AbortedTransactions
from tidelog.protocol.types import Buffer
from tidelog.wire.cluster_config import ClusterConfig

if TYPE_CHECKING:
    from tidelog.pipeline.segments.remote_pieces import RemotePiece

_RECORDS_PER_TASK = 20_000
"""Of small ranges in one task. A task costs Spark about as much as the reading of so many records."""
_log = logging.getLogger(__name__)


@dataclass
class FetchedPartition(InputPartition):  # type: ignore[misc]
    """One Spark task's ranges, to be fetched one after the other; each with the topic's id if it is known."""

    ranges: tuple[tuple[OffsetRange, str | None], ...]


@dataclass
class PiecePartition(InputPartition):  # type: ignore[misc]
    """One Spark task's share of a segment file, or of a remote segment; the topic's id if it is known."""

    piece: "Piece | RemotePiece"
    topic_id: str | None


def logs_of(options: SourceOptions) -> Logs:
    """The logs that `options` select, with their leaders if there is a broker. Raises ClientError, or as
    `logs_without_broker`."""
    if options.cluster is None:
        return logs_without_broker(options, _folders(options))
    return find_logs(
        options.cluster,
        options.topics,
        options.assigned,
        options.pattern,
        read_committed=options.read_committed,
    )


def ends_are_those_of(options: SourceOptions, logs: Logs) -> bool:
    """Whether the ends of these logs are known not to have changed. False without a broker."""
    if options.cluster is None:
        return False
    ends = {place: end for place, (_, end) in logs.bounds.items()}
    return ends == find_ends(options.cluster, ends, read_committed=options.read_committed)


def starting_positions(options: SourceOptions, bounds: Mapping[Place, tuple[int, int]]) -> Positions:
    """startingOffsets, or the offsets at the starting timestamps. If no record is that new: the log's end or
    OptionError, as startingOffsetsByTimestampStrategy says."""
    if options.starting_times is None:
        return options.starting
    found = _offsets_at("startingOffsetsByTimestamp", options, options.starting_times, bounds)
    for place, offset in found.items():
        if offset < 0 and not options.starts_at_end:
            raise OptionError(
                f"startingOffsetsByTimestamp: {place} holds no record at or after that time. With"
                " startingOffsetsByTimestampStrategy=latest the read starts at the log's end"
            )
    return {place: offset if offset >= 0 else LATEST for place, offset in found.items()}


def ending_positions(options: SourceOptions, bounds: Mapping[Place, tuple[int, int]]) -> Positions:
    """endingOffsets, or the offsets at the ending timestamps; the log's end if no record is that new."""
    if options.ending_times is None:
        return options.ending
    found = _offsets_at("endingOffsetsByTimestamp", options, options.ending_times, bounds)
    return {place: offset if offset >= 0 else LATEST for place, offset in found.items()}


def tasks_of(
    options: SourceOptions, ranges: Sequence[OffsetRange], logs: Logs, losses: list[str] | None
) -> list[InputPartition]:
    """The tasks that read `ranges` of these logs: about `minPartitions`, by default one per piece of a
    segment file, and per range or several small ranges of the broker. Raises as `plan_pieces`."""
    remote: list[RemotePiece] = []
    if options.remote is not None and ranges:
        from tidelog.pipeline.segments.remote_pieces import plan_remote

        remote, ranges = plan_remote(options.remote, ranges, logs.topic_ids)
    segments = _segments(options, ranges, logs) if options.read_paths and ranges else {}
    fetched = [each for each in ranges if options.cluster is not None and each.place not in segments]
    if fetched and options.read_paths:
        warn_once(
            "read.path: no folder has the leader's files of "
            f"{', '.join(str(each.place) for each in fetched)}: their records come from the broker"
        )
    in_files = [each for each in ranges if each not in fetched]
    pieces = plan_pieces(segments, in_files, options.min_partitions, losses)
    left = None if options.min_partitions is None else max(options.min_partitions - len(pieces), 1)
    most = options.max_records_per_partition
    groups = group_ranges(
        split_ranges(fetched, left, most),
        min(most or _RECORDS_PER_TASK, _RECORDS_PER_TASK),
        left,
        options.max_partitions_per_task,
    )
    in_pieces: list[Piece | RemotePiece] = [*remote, *pieces]
    return [
        *(PiecePartition(each, logs.topic_ids.get(each.offsets.topic)) for each in in_pieces),
        *(
            FetchedPartition(tuple((each, logs.topic_ids.get(each.topic)) for each in group))
            for group in groups
        ),
    ]


def _segments(options: SourceOptions, ranges: Iterable[OffsetRange], logs: Logs) -> Segments:
    """The files that hold the logs of `ranges`. Only with a broker may those of some be missing."""
    topics = {each.topic for each in ranges}
    if options.cluster is None:
        return by_place(find_segments(_folders(options), topics))
    try:
        return at_leaders(find_segments(_folders(options), topics), logs.leaders)
    except FileNotFoundError:
        return {}


def note_unread(
    options: SourceOptions, wanted: Mapping[Place, tuple[int, int]], tasks: Iterable[InputPartition]
) -> None:
    """Save the wanted offsets ([start, end) per partition) that no task will read, if losses.path is set."""
    if options.losses_path is not None:
        taken = (
            [offsets for offsets, _ in each.ranges]
            if isinstance(each, FetchedPartition)
            else [each.piece.offsets]
            for each in tasks
        )
        note_losses(options.losses_path, left_out(wanted, chain.from_iterable(taken)))


def read_partition(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The records of one task.

    Raises OffsetsLostError if records were deleted since the query was planned, unless failOnDataLoss is
    false, and if the topic was created again. Other errors as `read_answers`, `SegmentFile.read` and
    `decode_record_batches`.
    """
    freeze_imports()
    if isinstance(partition, PiecePartition):
        if isinstance(partition.piece, Piece):
            return rows_for_spark(_read_piece(options, partition.piece, partition.topic_id))
        return rows_for_spark(_read_remote(options, partition.piece, partition.topic_id))
    if isinstance(partition, FetchedPartition):
        ranges = (_fetch_range(options, *each) for each in partition.ranges)
        return rows_for_spark(chain.from_iterable(ranges))
    # If nothing is to be read, Spark still plans one task, with its own kind of partition.
    return iter(())


def _read_piece(options: SourceOptions, piece: Piece, topic_id: str | None) -> Iterator[pa.RecordBatch]:
    offsets = piece.offsets
    try:
        # Before the records are read: see `segment_transactions`.
        aborted = aborted_transactions(piece) if options.read_committed else []
        file = open_piece(piece)
    except PermissionError:
        if options.cluster is None:
            raise
        file = None
    if file is None and options.cluster is not None:
        # Deleted meanwhile, or not to be seen from here: the broker knows which.
        yield from _fetch_range(options, offsets, topic_id)
        return
    if file is None:
        what = f"{offsets.place}: {piece.path} was deleted after the read was planned"
        losses: list[str] | None = None if options.fail_on_data_loss else []
        lose(f"{what}, with it the offsets {offsets.start} to {offsets.end - 1}", losses)
        report_losses(losses)
        note_losses(options.losses_path, [offsets])
        return
    batch_filter = AbortedTransactions(aborted) if aborted else None
    with file:
        # After the opening: an open file stays that of its topic.
        require_same_topic(offsets.topic, topic_id, topic_id_in(Path(piece.path).parent))
        for data in file.read(offsets.start, offsets.end):
            yield from _rows(options, offsets, data, batch_filter)


def _read_remote(
    options: SourceOptions, piece: "RemotePiece", topic_id: str | None
) -> Iterator[pa.RecordBatch]:
    from tidelog.pipeline.segments.remote_pieces import read_remote

    offsets = piece.offsets
    try:
        for found, batch_filter in read_remote(piece, read_committed=options.read_committed):
            yield from _rows(options, offsets, found.data, batch_filter)
            offsets = offsets._replace(start=found.next_offset)
    except FileNotFoundError:
        # Retention has deleted it meanwhile: the broker knows from where on.
        yield from _fetch_range(options, offsets, topic_id)


def _fetch_range(
    options: SourceOptions, offsets: OffsetRange, topic_id: str | None
) -> Iterator[pa.RecordBatch]:
    cluster = options.cluster or ClusterConfig()
    while offsets.size > 0:
        try:
            for answer in read_answers(
                cluster, offsets, topic_id=topic_id, read_committed=options.read_committed
            ):
                batch_filter = AbortedTransactions(answer.aborted) if answer.aborted else None
                yield from _rows(options, offsets, answer.data, batch_filter)
                offsets = offsets._replace(start=next_offset(answer.data, offsets.start))
            return
        except OffsetOutOfRangeError as error:
            if options.fail_on_data_loss:
                lose(str(error), None)
            place = offsets.place
            log_start, _ = find_bounds(cluster, None, [place])[place]
            if log_start <= offsets.start:
                raise
            report_losses(
                [f"{place} starts at offset {log_start}; the records from {offsets.start} are gone"]
            )
            note_losses(options.losses_path, [offsets._replace(end=min(log_start, offsets.end))])
            offsets = offsets._replace(start=log_start)


def _rows(
    options: SourceOptions, offsets: OffsetRange, data: Buffer, batch_filter: AbortedTransactions | None
) -> Iterator[pa.RecordBatch]:
    """The records of the range in `data`."""
    return decode_record_batches(
        data,
        topic=offsets.topic,
        partition=offsets.partition,
        start_offset=offsets.start,
        end_offset=offsets.end,
        columns=options.columns,
        batch_filter=batch_filter,
    )


def report_losses(losses: list[str] | None) -> None:
    """Log one warning per loss."""
    for loss in losses or ():
        _log.warning("records skipped: %s", loss)


def _offsets_at(
    option: str, options: SourceOptions, times: Positions, bounds: Mapping[Place, tuple[int, int]]
) -> dict[Place, int]:
    wanted = for_each(option, times, bounds)
    if options.cluster is not None:
        return find_offsets_at(options.cluster, wanted, read_committed=options.read_committed)
    topics = {place.topic for place in wanted}
    segments = by_place(find_segments(_folders(options), topics))
    return {place: offset_at(segments[place], bounds[place], time) for place, time in wanted.items()}


def _folders(options: SourceOptions) -> list[Path]:
    """Those of read.path. Without a broker, each must be readable; with one, the others are left out, and a
    warning names them."""
    readable = []
    for path in map(Path, options.read_paths):
        try:
            require_readable(path)
            readable.append(path)
        except OptionError as error:
            if options.cluster is None:
                raise
            warn_once(f"{error}. The records come from the broker meanwhile")
    return readable


@cache
def warn_once(text: str) -> None:
    """Once in a process: a stream asks again for each micro-batch."""
    _log.warning("%s", text)
