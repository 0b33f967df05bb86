"""The log of an internal partition as the journal of a coordinator.

Owns the conversion between records and batches. Invariants:
- the records of one `write` are one batch, so after a crash all of them are stored or none;
- the first `news` gives what remains of all earlier writes: the last record of each key, in the order of the
  log, each with those that add to it, and then the records of transactions that are open. This bounds
  memory, not the length of the log;
- one `write` is of one kind: records, records of one producer's transaction, or one marker that ends it;
- a thread reads the log, one part at a time, and records are encoded in steps, so the loop continues to
  serve;
- a log that cannot be read completely gives no records at all: some of the offsets would not be the last.

On the event loop, except what it runs in threads. Source: Kafka's CoordinatorLoaderImpl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic

from tidelog.broker.coordinator.decision import RecordT
from tidelog.broker.coordinator.pending_records import InTransaction, PendingRecords
from tidelog.broker.coordinator.record_formats import RecordFormats
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.storage.batch_rules import check_size
from tidelog.broker.storage.log_types import AppendResult, Read
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.records import (
    RecordBatchBuilder,
    TransactionMarker,
    decode_batch_columns,
    iter_batches,
    read_marker,
)
from tidelog.protocol.steps import Pace
from tidelog.protocol.types import Buffer

GROWTH_BYTES = 64
READ_BYTES = 1 << 20


class LogJournal(Generic[RecordT]):
    """The journal over one replica, in its leader epoch of now. Only the journal appends to that replica."""

    def __init__(
        self,
        replica: Replica,
        formats: RecordFormats,
        clock_ms: Callable[[], int],
        may_wait: Callable[[Any], bool] = lambda _: False,
        may_grow: Callable[[Any], bool] | None = None,
    ) -> None:
        """`clock_ms` is the wall clock, for the timestamps of batches; `may_wait` returns whether a record
        may become durable later, with those that are written after it; `may_grow`, whether later records of
        its key are up to GROWTH_BYTES larger and must be written."""
        self._replica = replica
        self._leader_epoch = replica.leader_epoch
        self._formats = formats
        self._clock_ms = clock_ms
        self._may_wait = may_wait
        self._may_grow = may_grow
        self._is_replayed = False
        self._is_stopped = False

    def stop_reading(self) -> None:
        """Make a replay that is running end with ApiError, before the log is closed."""
        self._is_stopped = True

    async def news(self) -> Iterable[RecordT]:
        """What the log held before the first `write`, once. Raises ApiError, also while it is iterated."""
        if self._is_replayed:
            return ()
        values = _Replayed(self._formats)
        replica = self._replica
        try:
            await replica.committed(replica.log.end_offset)
            offset, end_offset = replica.log.start_offset, replica.ends.committed
            while offset < end_offset:
                if self._is_stopped:
                    raise ApiError(ErrorCode.NOT_COORDINATOR, "the broker stops")
                offset = await asyncio.to_thread(self._read, offset, end_offset, values)
        except ProtocolError as error:
            raise self._damaged(error) from error
        return self._decoded(values)

    def _read(self, offset: int, end_offset: int, values: _Replayed) -> int:
        """Read a part of the log from `offset` on into `values`, and return where the next part begins."""
        found = self._replica.read(Read(offset, READ_BYTES, end_offset))
        if found.next_offset <= offset:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"nothing can be read at offset {offset}")
        for stretch in found.records:
            for position, header in iter_batches(stretch):
                if header.is_control:
                    values.end(stretch, position, header.producer_id)
                    continue
                columns = decode_batch_columns(stretch, position, header=header)
                for key, value in zip(columns.keys, columns.values, strict=True):
                    if key is None or not self._formats.knows(key):
                        continue
                    if header.is_transactional:
                        values.pending.add(header.producer_id, header.producer_epoch, key, value)
                    else:
                        values.put(key, value)
        return found.next_offset

    def _decoded(self, values: _Replayed) -> Iterator[Any]:
        try:
            for key, value in values.last.items():
                yield self._formats.decode(key, value)
                for added_key, added in values.added.get(key, ()):
                    yield self._formats.decode(added_key, added)
            for producer_id, epoch, key, written in values.pending:
                yield InTransaction(producer_id, epoch, self._formats.decode(key, written))
        except ProtocolError as error:
            raise self._damaged(error) from error
        self._is_replayed = True

    def _damaged(self, error: ProtocolError) -> ApiError:
        where = f"{self._replica.topic}-{self._replica.partition}"
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"{where} cannot be read: {error}")

    async def write(self, records: Sequence[RecordT]) -> asyncio.Future[AppendResult]:
        """Append the records as one batch. Raises ApiError."""
        now_ms = self._clock_ms()
        first = records[0]
        if isinstance(first, TransactionMarker):
            self._check_epoch()
            return self._replica.append_marker(first, now_ms)
        builder = RecordBatchBuilder(self._replica.log.config.max_message_bytes)
        pace = Pace()
        for record in records:
            held = record.record if isinstance(record, InTransaction) else record
            key, value = self._formats.encode(held)
            if not builder.append(now_ms, key, value):
                raise ApiError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"{len(records)} records do not fit into one batch of {builder.max_size_bytes} bytes",
                )
            if pace.spent():
                await asyncio.sleep(0)
        if isinstance(first, InTransaction):
            batch = builder.build(
                producer_id=first.producer_id, producer_epoch=first.producer_epoch, is_transactional=True
            )
        else:
            batch = builder.build()
        if self._may_grow is not None and any(map(self._may_grow, records)):
            check_size(len(batch) + GROWTH_BYTES, self._replica.log.config)
        may_wait = all(map(self._may_wait, records))
        self._check_epoch()
        return self._replica.append_as_coordinator(batch, now_ms, may_wait=may_wait)

    def _check_epoch(self) -> None:
        """Raise ApiError if another epoch has begun, also one in which this broker leads again: what is
        written was decided without what others have written between the two."""
        if self._replica.leader_epoch != self._leader_epoch:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"leader epoch {self._leader_epoch} has ended; now it is {self._replica.leader_epoch}",
            )


class _Replayed:
    """What remains of the records that were read: the last value of each key, and what is not committed."""

    def __init__(self, formats: RecordFormats) -> None:
        self.last: dict[bytes, bytes] = {}
        self.added: dict[bytes, list[tuple[bytes, bytes | None]]] = {}
        """Key -> the records that add to its last one."""
        self._added_to = formats.added_to
        self.pending: PendingRecords[bytes, bytes | None] = PendingRecords()

    def put(self, key: bytes, value: bytes | None) -> None:
        self.pending.overwritten(key)
        self._put(key, value)

    def _put(self, key: bytes, value: bytes | None) -> None:
        held_by = self._added_to(key)
        if held_by is not None:
            self.added.setdefault(held_by, []).append((key, value))
            return
        self.last.pop(key, None)  # The newest record moves to the end.
        self.added.pop(key, None)
        if value is not None:
            self.last[key] = value

    def end(self, stretch: Buffer, position: int, producer_id: int) -> None:
        """Apply a control batch. One of a kind that this version does not know ends no transaction."""
        try:
            marker = read_marker(stretch, position)
        except ProtocolError:
            return
        for key, value in self.pending.end(producer_id, is_commit=marker.is_commit).items():
            self._put(key, value)
