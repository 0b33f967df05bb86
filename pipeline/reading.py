"""What batch and stream have in common: the bounds of what is read, and a task's records.

Owns the calls from the planner and the tasks to the broker, and the report of records that were gone before
they could be read (option failOnDataLoss=false): a warning for each loss through `logging`.

Invariants: a task yields every record of its range, in order, or fails, or names what it skipped.
Called by `pipeline.source` and `pipeline.stream_source`.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from client.errors import OffsetOutOfRangeError
from pipeline.columnar import decode_record_batches
from pipeline.fetch import find_bounds, find_offsets_at, next_offset, read_record_sets
from pipeline.offsets import LATEST, OffsetRange, OptionError, Place, Positions, SourceOptions

_log = logging.getLogger(__name__)


@dataclass
class OffsetRangePartition(InputPartition):  # type: ignore[misc]
    """One Spark task's share of a topic's partition."""

    offsets: OffsetRange


def bounds_of(options: SourceOptions) -> dict[Place, tuple[int, int]]:
    """Where the log of each partition that `options` select starts and ends now. Raises ClientError."""
    return find_bounds(options.bootstrap_servers, options.topics, options.assigned, options.pattern)


def starting_positions(options: SourceOptions, bounds: Mapping[Place, tuple[int, int]]) -> Positions:
    """startingOffsets, or the offsets at the starting timestamps. OptionError where no record is as young."""
    if options.starting_times is None:
        return options.starting
    found = _offsets_at("startingOffsetsByTimestamp", options, options.starting_times, bounds)
    for place, offset in found.items():
        if offset < 0:
            raise OptionError(f"startingOffsetsByTimestamp: {place} holds no record as young as asked for")
    return found


def ending_positions(options: SourceOptions, bounds: Mapping[Place, tuple[int, int]]) -> Positions:
    """endingOffsets, or the offsets at the ending timestamps; the log's end where no record is as young."""
    if options.ending_times is None:
        return options.ending
    found = _offsets_at("endingOffsetsByTimestamp", options, options.ending_times, bounds)
    return {place: offset if offset >= 0 else LATEST for place, offset in found.items()}


def read_partition(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The records of one task's range.

    Raises OffsetOutOfRangeError where records have gone since the query was planned, unless failOnDataLoss is
    false; other errors as `read_record_sets` and `decode_record_batches`.
    """
    if not isinstance(partition, OffsetRangePartition):
        # Where there is nothing to read, Spark plans one task all the same, with a partition of its own.
        return
    offsets = partition.offsets
    while offsets.size > 0:
        try:
            for data in read_record_sets(options.bootstrap_servers, offsets):
                yield from decode_record_batches(
                    data,
                    topic=offsets.topic,
                    partition=offsets.partition,
                    start_offset=offsets.start,
                    end_offset=offsets.end,
                    columns=options.columns,
                )
                offsets = offsets._replace(start=next_offset(data, offsets.start))
            return
        except OffsetOutOfRangeError:
            if options.fail_on_data_loss:
                raise
            place = Place(offsets.topic, offsets.partition)
            log_start, _ = find_bounds(options.bootstrap_servers, None, [place])[place]
            if log_start <= offsets.start:
                raise
            report_losses(
                [f"{place} starts at offset {log_start}, the records from {offsets.start} are gone"]
            )
            offsets = offsets._replace(start=log_start)


def report_losses(losses: list[str] | None) -> None:
    """One warning for each."""
    for loss in losses or ():
        _log.warning("records skipped: %s", loss)


def _offsets_at(
    option: str, options: SourceOptions, times: Positions, bounds: Mapping[Place, tuple[int, int]]
) -> dict[Place, int]:
    wanted = dict.fromkeys(bounds, times) if isinstance(times, int) else dict(times)
    if wanted.keys() != bounds.keys():
        strange = ", ".join(map(str, sorted(wanted.keys() ^ bounds.keys())))
        raise OptionError(f"{option} must name exactly the partitions that are read: see {strange}")
    return find_offsets_at(options.bootstrap_servers, wanted)
