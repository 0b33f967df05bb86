"""One assigned partition: where its reader stands, and what was fetched ahead.

Owns: the position (the next record to hand out), the place from which to fetch on, and the fetched bytes
between the two, decoded one batch at a time. Pure. Invariants: the position moves only when a record is
handed out, in the same call, so a read that is cancelled has moved nothing. A seek throws away what was
fetched, and what is still being fetched when it happens (`generation` tells them apart). Records come in
offset order, each once.
"""

from collections import deque

from tidelog.client.conversion import opened
from tidelog.client.errors import ClientError, CorruptRecordError
from tidelog.client.types import ConsumerRecord, TopicPartition
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import LOG_OVERHEAD, BatchHeader, iter_batches
from tidelog.protocol.types import Buffer

__all__ = ["PartitionReader"]


class PartitionReader:
    """`position` is None until it was set or found by the reset policy. Sizes in bytes."""

    __slots__ = (
        "_batches",
        "_check_crc",
        "_end",
        "_next",
        "_records",
        "buffered_bytes",
        "error",
        "fetch_offset",
        "generation",
        "high_watermark",
        "is_paused",
        "key",
        "position",
        "reset_timestamp",
    )

    def __init__(self, key: TopicPartition, *, check_crc: bool) -> None:
        self.key = key
        self.position: int | None = None
        self.fetch_offset = -1
        self.high_watermark = -1
        self.is_paused = False
        self.error: ClientError | None = None
        self.buffered_bytes = 0
        self.generation = 0
        # With no position: the ListOffsets timestamp (-2 earliest, -1 latest) that is to give it.
        self.reset_timestamp: int | None = None
        self._check_crc = check_crc
        self._batches: deque[tuple[bytes, int, BatchHeader]] = deque()
        self._records: list[ConsumerRecord] = []
        self._next = 0
        self._end = 0

    def seek(self, offset: int) -> None:
        """Read on from `offset`; an error is forgotten."""
        self._forget()
        self.position = self.fetch_offset = offset
        self.reset_timestamp = None

    def reset(self, timestamp: int) -> None:
        """Have the position found by its timestamp: -2 the beginning, -1 the end."""
        self._forget()
        self.position = None
        self.reset_timestamp = timestamp

    def fail(self, error: ClientError) -> None:
        """Have reads raise `error`, once what was fetched before it has been read, until the next seek."""
        self.error = error

    @property
    def is_between_batches(self) -> bool:
        """Whether the batch read last has no more records to give."""
        return self._next >= len(self._records)

    @property
    def has_data(self) -> bool:
        """Whether bytes are there to be read; they may yet hold no record."""
        return not self.is_paused and self.has_unread

    @property
    def has_unread(self) -> bool:
        """As `has_data`, paused or not."""
        return self._next < len(self._records) or bool(self._batches)

    def add(self, data: Buffer) -> None:
        """What a fetch from `fetch_offset` gave: whole batches, perhaps with a truncated one behind them.
        It is copied out of `data`, whose bytes may change afterwards.

        Raises CorruptRecordError when these are no batches; nothing is added then.
        """
        batches: list[tuple[bytes, int, BatchHeader]] = []
        fetch_offset = self.fetch_offset
        size_bytes = 0
        data = bytes(data)
        try:
            for at, header in iter_batches(data):
                last_offset = header.base_offset + header.last_offset_delta
                if last_offset >= fetch_offset:
                    batches.append((data, at, header))
                    fetch_offset = last_offset + 1
                    size_bytes += LOG_OVERHEAD + header.batch_length
        except ProtocolError as error:
            raise self._corrupt(fetch_offset, error) from error
        if data and not batches:
            raise self._corrupt(
                fetch_offset, ProtocolError(f"{len(data)} bytes hold no batch with this offset")
            )
        self._batches += batches
        self.fetch_offset = fetch_offset
        self.buffered_bytes += size_bytes

    def next_record(self) -> ConsumerRecord | None:
        """As `take(1)`, quickly; None where the batch read last has not two more to give."""
        at = self._next
        if self.is_paused or at + 1 >= len(self._records):
            return None
        record = self._records[at]
        self._next = at + 1
        self.position = record.offset + 1
        return record

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Up to `limit` (>= 1) records from the position on, which moves past them.

        Empty when nothing is there. A corrupt batch becomes `error`; the position stays before it.
        """
        taken: list[ConsumerRecord] = []
        while not self.is_paused:
            records = self._records
            if self._next < len(records):
                room = limit - len(taken)
                if self._next or room < len(records):
                    records = records[self._next : self._next + room]
                self._next += len(records)
                if taken:
                    taken += records
                else:
                    taken = records
                if self._next < len(self._records):
                    self.position = records[-1].offset + 1
                    break
                # Past the batch, not only past its last record: compaction may have taken some behind it.
                self.position = self._end
                self._records = []
                self._next = 0
                if len(taken) == limit:
                    break
            if not self._batches:
                break
            try:
                self._open_next()
            except CorruptRecordError as error:
                # What lies behind it cannot be reached without a seek, which fetches anew.
                self._drop_fetched()
                self.error = error
        return taken

    def _open_next(self) -> None:
        data, at, header = self._batches[0]
        # A copy that lives for a moment: its bytes are in the processor's cache for all that is done to them.
        batch = data[at : at + LOG_OVERHEAD + header.batch_length]
        position = self.position or 0
        try:
            records = [] if header.is_control else opened(self.key, batch, header, check_crc=self._check_crc)
        except ProtocolError as error:
            raise self._corrupt(position, error) from error
        self._batches.popleft()
        self.buffered_bytes -= len(batch)
        if header.base_offset < position:
            records = [record for record in records if record.offset >= position]
        self._records, self._next, self._end = records, 0, header.last_offset + 1
        if not records:
            self.position = self._end

    def _forget(self) -> None:
        self.generation += 1
        self.error = None
        self._drop_fetched()

    def _drop_fetched(self) -> None:
        self.buffered_bytes = 0
        self._batches.clear()
        self._records = []
        self._next = 0

    def _corrupt(self, offset: int, error: ProtocolError) -> CorruptRecordError:
        return CorruptRecordError(f"{self.key.topic}-{self.key.partition} at offset {offset}: {error}")
