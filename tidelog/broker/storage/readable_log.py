"""What can be read of a partition's log: records by offset, offsets by time and by leader epoch.

Owns `ReadableLog`, the reading half of `PartitionLog`: the way from an offset to bytes, and the answer to a
reader for an offset that the log does not hold, for damage, and for a log that has failed. What is found by
time is exact to the record: the indexes only save reading.

`read` with `nowait=False`, `read_remote` and the look-ups by time may run in any thread, all else on the
event loop's. Source: Kafka's LogSegment.findOffsetByTimestamp.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from tidelog.broker.storage.holes import holding, joined, number_of
from tidelog.broker.storage.integrity import CorruptSegmentError
from tidelog.broker.storage.leader_epochs import LeaderEpochs
from tidelog.broker.storage.log_types import Read, ReadResult, TimestampedOffset
from tidelog.broker.storage.segment import Place, Segment
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.records import Record, decode_batch
from tidelog.protocol.types import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP

_MAX_POSITIONS = 256
RemoteFound: TypeAlias = tuple[ReadResult, list[tuple[int, int]]]
"""Batches, and (producer id, first offset) of the aborted transactions among them."""


class SegmentChain(Protocol):
    """Ascending segments, at least one. The sequence is replaced, never changed."""

    @property
    def segments(self) -> Sequence[Segment]: ...


class RemotePart(Protocol):
    """What of a log lies before its local segments, in remote storage."""

    @property
    def start_offset(self) -> int | None:
        """Where it begins; None while that is not known."""
        ...

    @property
    def size_bytes(self) -> int:
        """Of its segments, those included that are still local too; 0 while that is not known."""
        ...

    def segments(self) -> Sequence[Segment]:
        """In a thread. Raises OSError if it is not known."""
        ...


class ReadableLog:
    """The records from `start_offset` to `end_offset`, in local segments. A subclass sets what is declared
    here."""

    folder: Path
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    failure: BaseException | None
    """Why this log serves and accepts nothing more, or None."""
    remote: RemotePart | None = None
    """What was copied to remote storage, while this broker leads; None for most logs."""
    _segments: SegmentChain
    _positions: dict[int, tuple[Segment, int]]
    """Where reads will probably begin: offset -> segment and position."""
    _epochs: LeaderEpochs

    @property
    def log_start_offset(self) -> int:
        """Where the log begins, remote segments included; -1 while that is not known."""
        if self.remote is None:
            return self.start_offset
        start = self.remote.start_offset
        return NO_OFFSET if start is None else min(start, self.start_offset)

    @property
    def leader_epoch(self) -> int:
        """The epoch of the last batch, or -1."""
        return self._epochs.latest

    def leader_epoch_for(self, offset: int) -> int:
        """The epoch in which the record at `offset` was written, or -1."""
        return self._epochs.epoch_at(offset)

    def end_offset_for_epoch(self, epoch: int, current: int = NO_LEADER_EPOCH) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) for an epoch after `current`, in
        which this broker leads, and after all of this log."""
        return self._epochs.end_offset_for(epoch, self.end_offset, current)

    def read(self, wanted: Read) -> ReadResult:
        """Whole batches from the one that holds `wanted.offset`, from one segment.

        Raises ApiError (OFFSET_OUT_OF_RANGE, OFFSET_MOVED_TO_TIERED_STORAGE where `read_remote` may find it,
        CORRUPT_MESSAGE for what is damaged or lost, KAFKA_STORAGE_ERROR), and ColdRead.
        """
        if self.failure is not None:
            raise self._failed()
        offset = wanted.offset
        self._check_holds(offset)
        if offset >= wanted.upper_offset:
            return ReadResult([], offset)
        segments = self._segments.segments
        try:
            segment = holding(segments, offset)
            known = self._positions.get(offset)
            found = segment.read(wanted, known[1] if known is not None and known[0] is segment else None)
        except OSError as error:
            if segments is not self._segments.segments:  # The file was replaced or deleted meanwhile.
                return self.read(wanted)
            self._check_holds(offset)  # Its segment may be deleted by now, which looks like a hole.
            raise self._unreadable(error) from error
        if found is None:
            return ReadResult([], offset)
        if segment is segments[-1] or found.next_offset < segment.end_offset:
            if len(self._positions) >= _MAX_POSITIONS:
                self._positions.clear()
            self._positions[found.next_offset] = (segment, found.end)
        return ReadResult([found.data], found.next_offset)

    def read_remote(self, wanted: Read, *, with_aborted: bool) -> RemoteFound:
        """`read` of what lies before the local segments, with the aborted transactions in it.

        In a thread: it waits for the object store. Raises ApiError (OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE,
        KAFKA_STORAGE_ERROR).
        """
        offset = wanted.offset
        try:
            segments = self._all_segments()
            if not self.log_start_offset <= offset < self.end_offset:
                raise self._out_of_range(offset)
            found = holding(segments, offset).read(wanted)
            if found is None:
                return ReadResult([], offset), []
            aborted = _aborted_in(segments, offset, found.next_offset) if with_aborted else []
        except OSError as error:
            raise self._unreadable(error) from error
        return ReadResult([found.data], found.next_offset), aborted

    def _all_segments(self) -> Sequence[Segment]:
        """Remote ones, and those that are local. Raises OSError."""
        local = self._segments.segments
        if self.remote is None:
            return local
        first = local[0].base_offset
        return [*(each for each in self.remote.segments() if each.base_offset < first), *local]

    def _check_holds(self, offset: int) -> None:
        if not self.start_offset <= offset <= self.end_offset:
            if offset < self.start_offset and 0 <= offset >= self.log_start_offset:
                raise ApiError(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
            raise self._out_of_range(offset)

    def _out_of_range(self, offset: int) -> ApiError:
        return ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.topic}-{self.partition} holds offsets {self.log_start_offset} to {self.end_offset},"
            f" {offset} was asked for",
        )

    def _unreadable(self, error: OSError | ProtocolError) -> ApiError:
        """Damage and loss are permanent, so clients report them; after a storage error clients try again."""
        is_lasting = isinstance(error, CorruptSegmentError | ProtocolError)
        code = ErrorCode.CORRUPT_MESSAGE if is_lasting else ErrorCode.KAFKA_STORAGE_ERROR
        return ApiError(code, f"{self.folder}: {error}")

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampedOffset | None:
        """The first record that is not older than `timestamp_ms`. May read the disk, and wait for an object
        store where there is a `remote` part; raises ApiError."""
        return self._look_up(lambda segments, start: _find_first_at(segments, timestamp_ms, start))

    def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The first record with the largest timestamp; otherwise as `offset_for_timestamp`."""
        return self._look_up(_find_max_timestamp)

    def _look_up(
        self, search: Callable[[Sequence[Segment], int], tuple[int, int] | None]
    ) -> TimestampedOffset | None:
        if self.failure is not None:
            raise self._failed()
        try:
            segments = self._all_segments()
            found = search(segments, self.log_start_offset)
        except (OSError, ProtocolError) as error:
            raise self._unreadable(error) from error
        if found is None:
            return None
        return TimestampedOffset(found[0], found[1], self._epochs.epoch_at(found[0]))

    def aborted_transactions(
        self, offset: int, upper_offset: int, *, nowait: bool = False
    ) -> list[tuple[int, int]]:
        """(producer id, first offset) of each aborted transaction with records from `offset` on, all before
        `upper_offset`. Raises ApiError (OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR), and ColdRead with
        `nowait`."""
        try:
            found = _aborted_in(self._segments.segments, offset, upper_offset, nowait=nowait)
        except OSError as error:
            raise self._unreadable(error) from error
        # The records were read before, maybe in a thread: the list lacks segments that are gone since.
        self._check_holds(offset)
        return found

    def _failed(self) -> ApiError:
        return ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic}-{self.partition} is offline: {self.failure}"
        )


class RemoteRead(NamedTuple):
    """What to read of a log's remote part."""

    log: ReadableLog
    wanted: Read
    with_aborted: bool

    @property
    def place(self) -> tuple[ReadableLog, int]:
        return self.log, self.wanted.offset


def _aborted_in(
    segments: Sequence[Segment], offset: int, upper_offset: int, *, nowait: bool = False
) -> list[tuple[int, int]]:
    """Raises OSError, and ColdRead with `nowait`."""
    found: list[tuple[int, int]] = []
    for segment in segments[number_of(segments, offset) :]:
        index = segment.transaction_index
        if index.count:
            transactions, is_complete = index.aborted(offset, upper_offset, nowait=nowait)
            found += transactions
            if is_complete:
                break
    return found


def _records(segment: Segment, place: Place, start_offset: int) -> Iterator[Record]:
    for record in decode_batch(segment.read_batch(place)):
        if record.offset >= start_offset:
            yield record


def _find_first_at(
    segments: Sequence[Segment], timestamp_ms: int, start_offset: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record from `start_offset` on that is not older.

    Raises OSError, CorruptSegmentError, ProtocolError, and LogHoleError where it may lie in a hole.
    """
    for segment in joined(segments, start_offset):
        if segment.max_timestamp < timestamp_ms:
            continue
        for place in segment.batches(start_offset, timestamp_ms):
            if place.max_timestamp < timestamp_ms:
                continue
            for record in _records(segment, place, start_offset):
                if record.timestamp >= timestamp_ms:
                    return record.offset, record.timestamp
    return None


def _find_max_timestamp(segments: Sequence[Segment], start_offset: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record with the largest timestamp from `start_offset` on.

    Raises as `_find_first_at`.
    """
    best: tuple[int, int] | None = None
    for segment in joined(segments, start_offset):
        best_timestamp = NO_TIMESTAMP if best is None else best[1]
        if segment.max_timestamp <= best_timestamp:
            continue
        place = _max_place(segment, start_offset)
        if place is None:
            continue
        found = _later(best, _records(segment, place, start_offset))
        if found is not None and found[1] == place.max_timestamp:
            best = found
        else:
            # Compaction removed that record and left the header: the other records have to be read.
            for place in sorted(segment.batches(start_offset), key=lambda each: -each.max_timestamp):
                if best is not None and best[1] > place.max_timestamp:
                    break
                best = _later(best, _records(segment, place, start_offset))
    return best


def _later(best: tuple[int, int] | None, records: Iterable[Record]) -> tuple[int, int] | None:
    """The latest of `best` and the records, of several the first."""
    for record in records:
        offset, timestamp = (0, NO_TIMESTAMP) if best is None else best
        if record.timestamp > timestamp or (record.timestamp == timestamp >= 0 and record.offset < offset):
            best = record.offset, record.timestamp
    return best


def _max_place(segment: Segment, start_offset: int) -> Place | None:
    """The batch that holds the largest timestamp among those that reach `start_offset`."""
    if segment.base_offset >= start_offset:
        return next(segment.batches(segment.max_timestamp_offset), None)
    return max(segment.batches(start_offset), key=lambda place: place.max_timestamp, default=None)
