"""What can be read of a partition's log: records by offset, offsets by time and by leader epoch.

Owns `ReadableLog`, the reading half of `PartitionLog`: the way from an offset to bytes, and the answer to a
reader for an offset that the log does not hold, for damage, and for a log that has failed.

`read` with `nowait=False` and the look-ups by time may run in any thread, all else on the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tidelog.broker.storage.holes import holding, number_of
from tidelog.broker.storage.integrity import CorruptSegmentError
from tidelog.broker.storage.leader_epochs import LeaderEpochs
from tidelog.broker.storage.log_lookup import find_first_at, find_max_timestamp
from tidelog.broker.storage.log_types import Read, ReadResult, TimestampedOffset
from tidelog.broker.storage.segment import Segment
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.types import NO_LEADER_EPOCH

_MAX_POSITIONS = 256


class SegmentChain(Protocol):
    """Ascending segments, at least one. The sequence is replaced, never changed."""

    @property
    def segments(self) -> Sequence[Segment]: ...


class ReadableLog:
    """The records from `start_offset` to `end_offset`. A subclass sets what is declared here."""

    folder: Path
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    failure: BaseException | None
    """Why this log serves and accepts nothing more, or None."""
    _segments: SegmentChain
    _positions: dict[int, tuple[Segment, int]]
    """Where reads will probably begin: offset -> segment and position."""
    _epochs: LeaderEpochs

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

        Raises ApiError (OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE for what is damaged or lost,
        KAFKA_STORAGE_ERROR), and ColdRead.
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
            self._check_holds(offset)  # Its segment may be deleted by now, which looks like a hole.
            raise self._unreadable(error) from error
        if found is None:
            return ReadResult([], offset)
        if segment is segments[-1] or found.next_offset < segment.end_offset:
            if len(self._positions) >= _MAX_POSITIONS:
                self._positions.clear()
            self._positions[found.next_offset] = (segment, found.end)
        return ReadResult([found.data], found.next_offset)

    def _check_holds(self, offset: int) -> None:
        if not self.start_offset <= offset <= self.end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic}-{self.partition} holds offsets {self.start_offset} to {self.end_offset},"
                f" {offset} was asked for",
            )

    def _unreadable(self, error: OSError | ProtocolError) -> ApiError:
        """Damage and loss are permanent, so clients report them; after a storage error clients try again."""
        is_lasting = isinstance(error, CorruptSegmentError | ProtocolError)
        code = ErrorCode.CORRUPT_MESSAGE if is_lasting else ErrorCode.KAFKA_STORAGE_ERROR
        return ApiError(code, f"{self.folder}: {error}")

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampedOffset | None:
        """The first record that is not older than `timestamp_ms`. May read the disk; raises ApiError."""
        return self._look_up(lambda segments: find_first_at(segments, timestamp_ms, self.start_offset))

    def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The first record with the largest timestamp. May read the disk; raises ApiError."""
        return self._look_up(lambda segments: find_max_timestamp(segments, self.start_offset))

    def _look_up(
        self, search: Callable[[Sequence[Segment]], tuple[int, int] | None]
    ) -> TimestampedOffset | None:
        if self.failure is not None:
            raise self._failed()
        try:
            found = search(self._segments.segments)
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
        found: list[tuple[int, int]] = []
        segments = self._segments.segments
        try:
            for segment in segments[number_of(segments, offset) :]:
                index = segment.transaction_index
                if index.count:
                    transactions, is_complete = index.aborted(offset, upper_offset, nowait=nowait)
                    found += transactions
                    if is_complete:
                        break
        except OSError as error:
            raise self._unreadable(error) from error
        # The records were read before, maybe in a thread: the list lacks segments that are gone since.
        self._check_holds(offset)
        return found

    def _failed(self) -> ApiError:
        return ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic}-{self.partition} is offline: {self.failure}"
        )
