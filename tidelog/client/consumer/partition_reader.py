"""One assigned partition: its position, and the bytes that were fetched ahead.

Owns: the position (offset of the next record to return), the offset to fetch next, and the fetched bytes
between the two, decoded one batch or a few small ones at a time. Pure. Invariants: the position moves only in
the call that returns a record, so a cancelled read moves nothing. A seek drops fetched bytes, and also the
answer to a fetch that is in flight (it has an older `generation`). Records come in offset order, each once.
"""

from collections import deque
from collections.abc import Callable
from typing import Final
from uuid import UUID

from tidelog.client.consumer.conversion import columns_of, opened, part, record_columns, rows
from tidelog.client.errors import CorruptRecordError
from tidelog.client.types import ConsumerRecord, RecordColumns
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import AbortedTransactions, BatchHeader, Columns, iter_batches
from tidelog.protocol.types import NO_LEADER_EPOCH, Buffer, TopicPartition
from tidelog.wire.errors import ClientError

# Rows that are made together if records are read one by one.
_FEWEST_ROWS: Final = 256


class PartitionReader:
    """`position` is None until it is set, or found by the reset policy. Sizes are in bytes."""

    __slots__ = (
        "_at", "_batches", "_check_crc", "_columns", "_end", "_next", "_on_failure", "_records",
        "buffered_bytes", "doubted_image", "error", "fetch_epoch", "fetch_offset", "generation",
        "high_watermark", "is_paused", "is_suspended", "key", "lost", "lost_at", "position",
        "position_epoch", "read_replica", "read_replica_until", "reset_timestamp", "topic_id", "valid_in",
    )  # fmt: skip

    def __init__(
        self,
        key: TopicPartition,
        *,
        check_crc: bool,
        on_failure: Callable[["PartitionReader", ClientError], None] | None = None,
    ) -> None:
        self.key = key
        self._on_failure = on_failure
        self.position: int | None = None
        self.fetch_offset = -1
        # The leader epochs of the records before `position` and `fetch_offset`, -1 if they are not known.
        self.position_epoch: int = NO_LEADER_EPOCH
        self.fetch_epoch: int = NO_LEADER_EPOCH
        # The leader epoch in which the leader has the records before `fetch_offset`.
        self.valid_in: int = NO_LEADER_EPOCH
        # The node that the leader named to read from, until that moment of the loop's clock (KIP-392).
        self.read_replica: int | None = None
        self.read_replica_until = 0.0
        self.high_watermark = -1
        self.is_paused = False
        # The group takes the partition away, or has not given it completely.
        self.is_suspended = False
        self.error: ClientError | None = None
        self.buffered_bytes = 0
        # Why the log does not hold `fetch_offset`. What was fetched before it is read first.
        self.lost: str | None = None
        # The offset that the log did not hold, until the reset policy has found another.
        self.lost_at: int | None = None
        self.generation = 0
        # If there is no position: the ListOffsets timestamp (-2 earliest, -1 latest) to find it with.
        self.reset_timestamp: int | None = None
        # The metadata in which a broker did not find the topic.
        self.doubted_image: object | None = None
        # The id of the topic to which the position belongs, once it is known.
        self.topic_id: UUID | None = None
        self._check_crc = check_crc
        # Without bytes if a batch has no records to return.
        self._batches: deque[tuple[bytes, BatchHeader]] = deque()
        # The open batches, the number of its first record of which no row was made, and the offset after it.
        self._columns: Columns | None = None
        self._at = 0
        self._end = 0
        # Its last rows, and the number of the one to return next.
        self._records: list[ConsumerRecord] = []
        self._next = 0

    def seek(self, offset: int, leader_epoch: int = NO_LEADER_EPOCH, topic_id: UUID | None = None) -> None:
        """Continue at `offset`, after a record of that leader epoch, in the topic of that id, if they are
        known. Clears an error."""
        self._forget()
        self.topic_id = topic_id
        self.position = self.fetch_offset = offset
        self.position_epoch = self.fetch_epoch = leader_epoch
        self.reset_timestamp = None

    def fetch_again(self) -> None:
        """Forget what was fetched and not returned yet."""
        self._drop_fetched()
        self.fetch_offset = self.fetch_offset if self.position is None else self.position
        self.fetch_epoch, self.valid_in = self.position_epoch, NO_LEADER_EPOCH
        self.generation += 1

    def is_valid_in(self, leader_epoch: int) -> bool:
        """Whether the position need not be validated at a leader of this epoch (KIP-320)."""
        if self.fetch_epoch == NO_LEADER_EPOCH:
            self.valid_in = leader_epoch
        return leader_epoch in (self.valid_in, NO_LEADER_EPOCH)

    def reset(self, timestamp: int) -> None:
        """Clear the position, so it is found by `timestamp`: -2 the beginning, -1 the end."""
        self._forget()
        self.position = None
        self.reset_timestamp = timestamp

    def fail(self, error: ClientError) -> None:
        """Reads raise `error` after the records fetched before it were read, until a seek or `retry`."""
        self.error = error
        if self._on_failure is not None:
            self._on_failure(self, error)

    def retry(self, error: ClientError) -> bool:
        """Continue where `error` came. Returns whether it was still the reader's error."""
        if self.error is not error:
            return False
        self.error = None
        return True

    def is_of(self, topic_id: UUID | None) -> bool:
        """Whether the position belongs to the topic of this id. The first one counts after a seek that named
        none; None is an id that is not known."""
        if self.topic_id is None:
            self.topic_id = topic_id
        return topic_id is None or topic_id == self.topic_id

    @property
    def lag(self) -> int | None:
        """Records from the position to the high watermark of the last fetch; None before the first fetch."""
        if self.high_watermark < 0 or self.position is None:
            return None
        return max(0, self.high_watermark - self.position)

    @property
    def is_between_batches(self) -> bool:
        """Whether the open batches have no more records to return."""
        return self._next >= len(self._records) and self._columns is None

    @property
    def has_data(self) -> bool:
        """Whether there are bytes to read. They may hold no record."""
        return not self.is_stopped and self.has_unread

    @property
    def is_stopped(self) -> bool:
        """Whether neither records are returned nor bytes are fetched now."""
        return self.is_paused or self.is_suspended

    @property
    def needs_committed(self) -> bool:
        """Whether its position is the group's committed offset, which is not known yet."""
        return self.position is None and self.reset_timestamp is None and self.error is None

    @property
    def has_unread(self) -> bool:
        """As `has_data`, whether stopped or not."""
        return self._next < len(self._records) or self._columns is not None or bool(self._batches)

    def add(self, data: Buffer, aborted: AbortedTransactions | None = None) -> None:
        """Add the bytes of a fetch from `fetch_offset`: whole batches, and perhaps a truncated one at the
        end. They are copied, so `data` may change afterwards. What `aborted` hides has no records to return.

        Raises CorruptRecordError if they are not batches; nothing is added then.
        """
        batches: list[tuple[bytes, BatchHeader]] = []
        fetch_offset, fetch_epoch = self.fetch_offset, self.fetch_epoch
        size_bytes = 0
        try:
            for at, header in iter_batches(data):
                last_offset = header.base_offset + header.last_offset_delta
                is_aborted = aborted is not None and aborted.hides(data, at, header)
                if last_offset >= fetch_offset:
                    batch_bytes = header.size_bytes
                    is_hidden = is_aborted or header.is_control
                    batches.append((b"" if is_hidden else bytes(data[at : at + batch_bytes]), header))
                    fetch_offset = last_offset + 1
                    fetch_epoch = header.partition_leader_epoch
                    size_bytes += batch_bytes
        except ProtocolError as error:
            raise self._corrupt(fetch_offset, error) from error
        if len(data) and not batches:
            raise self._corrupt(
                fetch_offset, ProtocolError(f"{len(data)} bytes hold no batch with this offset")
            )
        self._batches += batches
        self.fetch_offset, self.fetch_epoch = fetch_offset, fetch_epoch
        self.buffered_bytes += size_bytes

    def next_record(self) -> ConsumerRecord | None:
        """A fast `take(1)`. None unless the last batch has at least two more rows."""
        at = self._next
        if self.is_paused or self.is_suspended or at + 1 >= len(self._records):
            return None
        record = self._records[at]
        self._next = at + 1
        self.position = record.offset + 1
        return record

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Up to `limit` (>= 1) records from the position on. The position moves past them.

        Empty if there are none. For a corrupt batch, `error` is set and the position stays before it.
        """
        taken: list[ConsumerRecord] = []
        while not self.is_stopped:
            records = self._records
            if self._next < len(records):
                missing = limit - len(taken)
                if self._next or missing < len(records):
                    records = records[self._next : self._next + missing]
                self._next += len(records)
                if taken:
                    taken += records
                else:
                    taken = records
                if self._next < len(self._records):
                    self.position = records[-1].offset + 1
                    break
                # Past the batch, not only past its last record: compaction may have removed later ones.
                self.position = self._end if self._columns is None else records[-1].offset + 1
                self._records = []
                self._next = 0
                if len(taken) == limit:
                    break
            if not self._has_open:
                break
            more = self._from_open(max(limit - len(taken), _FEWEST_ROWS))
            self._records, self._next = rows(self.key, more, self.position_epoch), 0
        return taken

    def take_columns(self, limit: int) -> list[RecordColumns]:
        """As `take`, but as columns, and without an object per record for all batches that are taken whole.
        Empty if there are no records; no element is empty."""
        taken: list[RecordColumns] = []
        while limit > 0 and not self.is_stopped:
            if self._next < len(self._records):
                records = self._records[self._next : self._next + limit]
                taken.append(columns_of(records))
                limit -= len(records)
                self._next += len(records)
                is_end = self._columns is None and self._next == len(self._records)
                self.position = self._end if is_end else records[-1].offset + 1
            elif self._has_open:
                columns = self._from_open(limit)
                limit -= len(columns.offsets)
                taken.append(record_columns(columns))
                self.position = self._end if self._columns is None else columns.offsets[-1] + 1
            else:
                break
        return taken

    @property
    def _has_open(self) -> bool:
        """Whether a batch is open or can be opened."""
        while self._columns is None and self._batches:
            self._open_next()
        return self._columns is not None

    def _from_open(self, limit: int) -> Columns:
        """Up to `limit` more records of the open batch."""
        columns, at = self._columns, self._at
        if columns is None:
            raise RuntimeError("no batch is open: ask _has_open first")
        count = len(columns.offsets)
        self._at = min(at + limit, count)
        if self._at == count:
            self._columns = None
        return part(columns, at, self._at) if self._at - at < count else columns

    def _open_next(self) -> None:
        """Open the next batch, or several. The position moves past a batch without records to return. For a
        corrupt one, `error` is set and the fetched bytes are dropped."""
        position = self.position or 0
        columns, opened_count = None, 1
        try:
            if self._batches[0][0]:
                columns, opened_count = opened(self._batches, position, check_crc=self._check_crc)
        except ProtocolError as error:
            # Only a seek gets past this batch, and a seek fetches again.
            self._drop_fetched()
            self.error = self._corrupt(position, error)
            return
        for _ in range(opened_count):
            _, header = self._batches.popleft()
            self.buffered_bytes -= header.size_bytes
        self._end = header.last_offset + 1
        self.position_epoch = header.partition_leader_epoch
        if columns is None or not columns.offsets:
            self.position = self._end
        else:
            self._columns, self._at = columns, 0

    def _forget(self) -> None:
        self.generation += 1
        self.error = None
        self.lost = self.lost_at = None
        self.topic_id = None
        self.position_epoch = self.fetch_epoch = self.valid_in = NO_LEADER_EPOCH
        self._drop_fetched()

    def _drop_fetched(self) -> None:
        self.buffered_bytes = 0
        self._batches.clear()
        self._columns = None
        self._records = []
        self._next = 0

    def _corrupt(self, offset: int, error: ProtocolError) -> CorruptRecordError:
        return CorruptRecordError(f"{self.key.topic}-{self.key.partition} at offset {offset}: {error}")
