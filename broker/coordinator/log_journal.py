"""The log of an internal partition as the journal of a coordinator.

Owns the conversion between records and batches. Invariants:
- the records of one `write` are one batch, so after a crash all of them are stored or none;
- the first `news` gives what remains of all earlier writes: the last record of each key, in the order of the
  log. This bounds memory, not the length of the log;
- a thread reads the log, one part at a time, and records are encoded in steps, so the loop goes on serving;
- a log that cannot be read completely gives no records at all: some of the offsets would not be the last.

On the event loop, except what it runs in threads. Source: Kafka's CoordinatorLoaderImpl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic

from tidelog.broker.coordinator.decision import RecordT
from tidelog.broker.coordinator.record_formats import RecordFormats
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.storage.log_types import AppendResult
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.records import RecordBatchBuilder, decode_batch_columns, iter_batches
from tidelog.protocol.steps import Pace

READ_BYTES = 1 << 20


class LogJournal(Generic[RecordT]):
    """The journal over one replica. Only the journal appends to that replica."""

    def __init__(self, replica: Replica, formats: RecordFormats, clock_ms: Callable[[], int]) -> None:
        """`clock_ms` is the wall clock, for the timestamps of batches."""
        self._replica = replica
        self._formats = formats
        self._clock_ms = clock_ms
        self._is_replayed = False
        self._is_stopped = False

    def stop_reading(self) -> None:
        """Make a replay that is running end with ApiError, before the log is closed."""
        self._is_stopped = True

    async def news(self) -> Iterable[RecordT]:
        """What the log held before the first `write`, once. Raises ApiError, also while it is iterated."""
        if self._is_replayed:
            return ()
        values: dict[bytes, bytes | None] = {}
        replica = self._replica
        try:
            await replica.caught_up()
            offset, end_offset = replica.log.start_offset, replica.ends.durable
            while offset < end_offset:
                if self._is_stopped:
                    raise ApiError(ErrorCode.NOT_COORDINATOR, "the broker stops")
                offset = await asyncio.to_thread(self._read, offset, end_offset, values)
        except ProtocolError as error:
            raise self._damaged(error) from error
        return self._decoded(values)

    def _read(self, offset: int, end_offset: int, values: dict[bytes, bytes | None]) -> int:
        """Read a part of the log from `offset` on into `values`, and return where the next part begins."""
        found = self._replica.read(offset, READ_BYTES, end_offset)
        if found.next_offset <= offset:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"nothing can be read at offset {offset}")
        for stretch in found.records:
            for position, header in iter_batches(stretch):
                if header.is_control:
                    continue
                columns = decode_batch_columns(stretch, position, header=header)
                for key, value in zip(columns.keys, columns.values, strict=True):
                    if key is not None and self._formats.knows(key):
                        values.pop(key, None)  # The newest record moves to the end.
                        if value is not None:
                            values[key] = value
        return found.next_offset

    def _decoded(self, values: dict[bytes, bytes | None]) -> Iterator[Any]:
        try:
            for key, value in values.items():
                yield self._formats.decode(key, value)
        except ProtocolError as error:
            raise self._damaged(error) from error
        self._is_replayed = True

    def _damaged(self, error: ProtocolError) -> ApiError:
        where = f"{self._replica.topic}-{self._replica.partition}"
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"{where} cannot be read: {error}")

    async def write(self, records: Sequence[RecordT]) -> asyncio.Future[AppendResult]:
        """Append the records as one batch. Raises ApiError."""
        now_ms = self._clock_ms()
        builder = RecordBatchBuilder(self._replica.log.config.max_message_bytes)
        pace = Pace()
        for record in records:
            key, value = self._formats.encode(record)
            if not builder.append(now_ms, key, value):
                raise ApiError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"{len(records)} records do not fit into one batch of {builder.max_size_bytes} bytes",
                )
            if pace.spent():
                await asyncio.sleep(0)
        return self._replica.append_as_coordinator(builder.build(), now_ms)
