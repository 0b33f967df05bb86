"""The records of a partition: a page of them, one of them, its batches, what matches, what comes.

Owns `Records`, what one broker's console knows beside its services: the reading in steps, the schemas, and
the search of each visitor.

Invariants: a caller gets what Fetch would give, in answers whose records and bytes are bounded. One search
per visitor: a new search ends the earlier one. What is computed of many bytes runs in a thread, in turn. To
stop iterating ends the work.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import Final, NamedTuple, Self, TypedDict

from tidelog.broker.console.records.filters import Filter
from tidelog.broker.console.records.shown_values import (
    MOST_DETAIL_BYTES,
    MOST_SHOWN_BYTES,
    Decode,
    Format,
    ShownBytes,
    not_decoded,
    shown,
)
from tidelog.broker.console.records.stepwise_reading import (
    EVERYTHING,
    STEP_BYTES,
    Batch,
    Limits,
    StepwiseReader,
    Unreadable,
    size_of,
    start_of,
)
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.services import Services
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.json_lines import line_of
from tidelog.protocol.records import Record, TimestampType
from tidelog.protocol.types import NO_TIMESTAMP
from tidelog.schemas.decoded_values import DecodedValues
from tidelog.schemas.registry import SchemaRegistry

MOST_PAGE_BYTES: Final = 2 << 20
"""Of the records of one answer, as they are stored."""
MOST_SCANNED_BYTES: Final = 16 << 20
"""Of the log for one page; what follows is on the next."""
MOST_SEARCHES: Final = 16
STEP_RECORDS: Final = 100
"""Records that a search finds in one step."""
PROGRESS_SECONDS: Final = 0.25
FOLLOW_SECONDS: Final = 0.5
"""Between two looks of one follower."""
MOST_FOLLOWED: Final = 100
"""Records that a follower gets in one look; what came before them is left out."""
MOST_FILTERED: Final = 100_000
"""Offsets that a follower with a filter lags behind at most."""
_WHOLE_STEP: Final = Limits(10_000, MOST_PAGE_BYTES)
_MOST_NAME: Final = 128


class HeaderRow(TypedDict):
    """A header of a record."""

    name: str
    value: ShownBytes | None


class RecordRow(TypedDict):
    """A record, or a batch whose records cannot be read (then `problem` says why)."""

    offset: int
    last_offset: int
    """That of the batch where it cannot be read, else the record's."""
    timestamp: int
    """Milliseconds since the epoch; -1: none."""
    timestamp_type: str
    key: ShownBytes | None
    value: ShownBytes | None
    headers: list[HeaderRow]
    header_count: int
    """How many there are; `headers` has the first of them."""
    problem: str


class RecordRows(TypedDict):
    """Records of a partition, and where it begins and ends at this moment."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    """After the last record that may be read with this isolation level."""
    offset: int
    """Where these records begin."""
    next_offset: int
    """Where the next ones begin."""
    rows: list[RecordRow]


class BatchRow(TypedDict):
    """A batch, as its header describes it."""

    base_offset: int
    last_offset: int
    records: int
    size_bytes: int
    compression: str
    timestamp_type: str
    max_timestamp: int
    leader_epoch: int
    producer_id: int
    """-1: none."""
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_aborted: bool
    """Whether consumers of committed records leave it out."""
    control: str
    """The kind of a control batch: commit, abort, or unknown; empty for a batch of records."""
    delete_horizon_ms: int | None
    """From when on tombstones in it may be removed."""


class BatchRows(TypedDict):
    """Batches of a partition, those of open and aborted transactions included."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    offset: int
    next_offset: int
    rows: list[BatchRow]


class Found(TypedDict):
    """A message of a search: the records found since the last one, and how far it is."""

    rows: list[RecordRow]
    partition: int
    """The one that is searched, which has these records."""
    partitions: int
    """How many are searched, one after the other."""
    not_served: int
    """Those of them so far that this broker does not serve: they are left out."""
    begin_offset: int
    """Where the search began in this partition."""
    offset: int
    """All before it was looked at."""
    end_offset: int
    """Where the search ends in this partition."""
    size_bytes: int
    """Of the log, looked at so far."""
    found: int
    """Records so far."""
    state: str
    """searching, done, full (as many as wanted were found), or replaced (by this visitor's next search)."""


class Followed(TypedDict):
    """A message to a follower: what can be read since the last one."""

    rows: list[RecordRow]
    offset: int
    """Where they begin: after the `end_offset` of the last message if records came too fast."""
    end_offset: int
    """All before it was looked at."""


class Place(NamedTuple):
    """Where to begin: at an offset, at the first record that is not older than a time, or (with neither) so
    that the last records are seen."""

    offset: int | None = None
    timestamp_ms: int | None = None


class Reading(NamedTuple):
    """How records are read and shown."""

    isolation_level: int = 0
    key_format: Format = Format.AUTO
    value_format: Format = Format.AUTO
    wanted: Filter = EVERYTHING


class Records:
    """The views of records of one broker's console."""

    def __init__(self, services: Services) -> None:
        self._services = services
        tiering = services.tiering
        self.reader = StepwiseReader(None if tiering is None else tiering.fetches)
        """What reads logs for all visitors."""
        config = services.config
        url, user = config.console_schema_registry_url, config.console_schema_registry_basic_auth_user_info
        self._registered = DecodedValues(SchemaRegistry(url, user)) if url else None
        self._searches: dict[str, object] = {}

    async def page(
        self, topic: str, partition: int, place: Place, limit: int, reading: Reading
    ) -> RecordRows:
        """At most `limit` records. Raises ApiError."""
        replica = self._services.replica(topic, partition)
        end = replica.ends.visible(reading.isolation_level)
        if place == Place():
            found, next_offset = await self._last(replica, end, limit, reading), end
            offset = found[0].offset if found else end
        else:
            offset = await self._begin(replica, place, end)
            found, next_offset = await self._some(replica, offset, end, limit, reading)
        return {
            "topic": topic,
            "partition": partition,
            "start_offset": start_of(replica),
            "end_offset": end,
            "offset": offset,
            "next_offset": next_offset,
            "rows": await self._rows(found, reading),
        }

    async def record(self, topic: str, partition: int, offset: int, reading: Reading) -> RecordRow:
        """One record with all that can be shown of it. Raises ApiError(OFFSET_OUT_OF_RANGE)."""
        replica = self._services.replica(topic, partition)
        end = replica.ends.visible(reading.isolation_level)
        found: Sequence[Record | Unreadable] = ()
        if offset < end:
            found, _ = await self._some(replica, offset, end, 1, reading)
        if not found or found[0].offset != offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"no record at offset {offset} can be read")
        (row,) = await self._rows(found, reading, MOST_DETAIL_BYTES)
        return row

    async def batches(self, topic: str, partition: int, offset: int | None, limit: int) -> BatchRows:
        """At most `limit` batches from the one that holds `offset` on. Raises ApiError."""
        replica = self._services.replica(topic, partition)
        end, start = replica.high_watermark, start_of(replica)
        at = first = start if offset is None else min(max(offset, start), end)
        rows: list[BatchRow] = []
        size_bytes = 0
        while at < end and len(rows) < limit and size_bytes < MOST_SCANNED_BYTES:
            batches, next_offset = await self.reader.batches(replica, at, end)
            for batch in batches[: limit - len(rows)]:
                rows.append(_batch_row(batch))
                size_bytes += batch.header.size_bytes
            if next_offset == at:
                break
            at = rows[-1]["last_offset"] + 1 if len(rows) == limit else next_offset
        return {
            "topic": topic,
            "partition": partition,
            "start_offset": start,
            "end_offset": end,
            "offset": first,
            "next_offset": at,
            "rows": rows,
        }

    async def search(
        self, visitor: str, topic: str, partitions: Sequence[int], place: Place, most: int, reading: Reading
    ) -> AsyncGenerator[Found, None]:
        """The records that match, at most `most`: of one partition after the other, from `place` (else the
        start) to the present end. Raises ApiError."""
        if visitor not in self._searches and len(self._searches) >= MOST_SEARCHES:
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{MOST_SEARCHES} searches are in progress, which is the limit",
            )
        this = self._searches[visitor] = object()
        loop = asyncio.get_running_loop()
        tell_at = loop.time() + PROGRESS_SECONDS
        state: Found = {
            "rows": [],
            "partition": partitions[0],
            "partitions": len(partitions),
            "not_served": 0,
            "begin_offset": 0,
            "offset": 0,
            "end_offset": 0,
            "size_bytes": 0,
            "found": 0,
            "state": "searching",
        }
        try:
            for partition in partitions:
                try:
                    replica = self._services.replica(topic, partition)
                except ApiError:
                    state["not_served"] += 1
                    continue
                end = replica.ends.visible(reading.isolation_level)
                offset = await self._begin(replica, Place(0) if place == Place() else place, end)
                state["partition"], state["begin_offset"] = partition, offset
                state["offset"], state["end_offset"] = offset, end
                while offset < end:
                    offset = max(offset, start_of(replica))  # Retention continues meanwhile.
                    limits = Limits(min(STEP_RECORDS, most - state["found"]), MOST_PAGE_BYTES)
                    step = await self.reader.step(
                        replica, offset, end, reading.isolation_level, limits, reading.wanted
                    )
                    if self._searches.get(visitor) is not this:
                        yield {**state, "state": "replaced"}
                        return
                    state["offset"] = step.next_offset
                    state["size_bytes"] += step.size_bytes
                    state["found"] += len(step.found)
                    if step.found or loop.time() >= tell_at:
                        yield {**state, "rows": await self._rows(step.found, reading)}
                        tell_at = loop.time() + PROGRESS_SECONDS
                    if state["found"] >= most:
                        yield {**state, "state": "full"}
                        return
                    if step.next_offset == offset:
                        break
                    offset = step.next_offset
            yield {**state, "state": "done"}
        finally:
            if self._searches.get(visitor) is this:
                del self._searches[visitor]

    async def follow(self, topic: str, partition: int, reading: Reading) -> AsyncGenerator[Followed, None]:
        """What becomes readable from now on. Raises ApiError when the partition stops being served here."""
        replica = self._services.replica(topic, partition)
        offset = end = replica.ends.visible(reading.isolation_level)
        # Of what matches a filter nothing is to be missed as long as it can be looked through.
        most_offsets, most_bytes = MOST_FOLLOWED, STEP_BYTES
        if not reading.wanted.is_empty:
            most_offsets, most_bytes = MOST_FILTERED, MOST_SCANNED_BYTES
        with _Changes(replica) as changes:
            yield {"rows": [], "offset": offset, "end_offset": end}
            while True:
                if offset >= end:
                    await changes.next()
                    self._services.replica(topic, partition)
                    end = replica.ends.visible(reading.isolation_level)
                    continue
                first = max(offset, end - most_offsets)
                found, offset = await self._some(replica, first, end, MOST_FOLLOWED, reading, most_bytes)
                rows = await self._rows(found, reading)
                yield {"rows": rows, "offset": first, "end_offset": offset}
                await asyncio.sleep(FOLLOW_SECONDS)
                end = replica.ends.visible(reading.isolation_level)

    async def lines(
        self, topic: str, partition: int, place: Place, reading: Reading
    ) -> AsyncGenerator[bytes, None]:
        """Lines of whole records from `place` (else the start) to the present end, as `tidelog consume
        --json` prints them. Raises ApiError."""
        replica = self._services.replica(topic, partition)
        end = replica.ends.visible(reading.isolation_level)
        offset = await self._begin(replica, Place(0) if place == Place() else place, end)
        while offset < end:
            offset = max(offset, start_of(replica))  # Retention continues meanwhile.
            step = await self.reader.step(
                replica, offset, end, reading.isolation_level, _WHOLE_STEP, reading.wanted
            )
            if step.found:
                yield await self.reader.in_turn(_lines, topic, partition, step.found)
            if step.next_offset == offset:
                return
            offset = step.next_offset

    async def _begin(self, replica: Replica, place: Place, end: int) -> int:
        """The offset of a place, within what can be read."""
        offset = place.offset
        if offset is None and place.timestamp_ms is not None:
            found = await self.reader.offset_for_timestamp(replica, place.timestamp_ms)
            offset = end if found is None else found.offset
        return min(max(offset or 0, start_of(replica)), end)

    async def _some(
        self,
        replica: Replica,
        offset: int,
        end: int,
        limit: int,
        reading: Reading,
        most_scanned_bytes: int = MOST_SCANNED_BYTES,
    ) -> tuple[Sequence[Record | Unreadable], int]:
        """At most `limit` records from `offset` on, and where the next ones begin."""
        found: list[Record | Unreadable] = []
        scanned_bytes = held_bytes = 0
        while (
            offset < end
            and len(found) < limit
            and held_bytes < MOST_PAGE_BYTES
            and scanned_bytes < most_scanned_bytes
        ):
            limits = Limits(limit - len(found), MOST_PAGE_BYTES - held_bytes)
            step = await self.reader.step(
                replica, offset, end, reading.isolation_level, limits, reading.wanted
            )
            found += step.found
            scanned_bytes += step.size_bytes
            held_bytes += sum(map(size_of, step.found))
            if step.next_offset == offset:
                break
            offset = step.next_offset
        return found, offset

    async def _last(
        self, replica: Replica, end: int, limit: int, reading: Reading
    ) -> Sequence[Record | Unreadable]:
        """The last `limit` records, fewer if they are large. If offsets have no records (markers, or after
        compaction) it looks further back."""
        last: Sequence[Record | Unreadable] = ()
        for offsets in (max(1, limit // 16), limit, limit * 8, limit * 64):
            start_offset = start_of(replica)
            first = max(start_offset, end - offsets)
            found = await self._last_from(replica, first, end, limit, reading)
            if found is None:
                break
            last = found
            if len(last) == limit or first == start_offset:
                break
        return last

    async def _last_from(
        self, replica: Replica, offset: int, end: int, limit: int, reading: Reading
    ) -> Sequence[Record | Unreadable] | None:
        """The last `limit` of all records from `offset` on; None if that is too much to read."""
        found: deque[Record | Unreadable] = deque()
        held_bytes = scanned_bytes = 0
        while offset < end:
            step = await self.reader.step(
                replica, offset, end, reading.isolation_level, _WHOLE_STEP, reading.wanted
            )
            scanned_bytes += step.size_bytes
            if scanned_bytes > MOST_SCANNED_BYTES:
                return None
            for record in step.found:
                found.append(record)
                held_bytes += size_of(record)
                while len(found) > limit or (held_bytes > MOST_PAGE_BYTES and len(found) > 1):
                    held_bytes -= size_of(found.popleft())
            if step.next_offset == offset:
                break
            offset = step.next_offset
        return list(found)

    async def _rows(
        self, found: Sequence[Record | Unreadable], reading: Reading, most_bytes: int = MOST_SHOWN_BYTES
    ) -> list[RecordRow]:
        if not found:
            return []
        decode: Decode = not_decoded
        if self._registered is not None:
            records = [each for each in found if isinstance(each, Record)]
            for form, values in (
                (reading.key_format, [record.key for record in records]),
                (reading.value_format, [record.value for record in records]),
            ):
                if form in (Format.AUTO, Format.AVRO):
                    await self._registered.fetch(values)
            decode = self._registered.decode
        return await self.reader.in_turn(_record_rows, found, reading, decode, most_bytes)


class _Changes:
    """Watches a replica: `next` returns once it has changed since the last call."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._changed = asyncio.Event()

    def __enter__(self) -> Self:
        self._replica.watch(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._replica.unwatch(self)

    def replica_changed(self, replica: Replica) -> None:
        self._changed.set()

    async def next(self) -> None:
        await self._changed.wait()
        self._changed.clear()


def _lines(topic: str, partition: int, found: Sequence[Record | Unreadable]) -> bytes:
    lines = []
    for record in found:
        if isinstance(record, Unreadable):
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, record.reason)
        lines.append(line_of(topic, partition, record))
    return b"".join(lines)


def _record_rows(
    found: Sequence[Record | Unreadable], reading: Reading, decode: Decode, most_bytes: int
) -> list[RecordRow]:
    return [
        _unreadable_row(each)
        if isinstance(each, Unreadable)
        else _record_row(each, reading, decode, most_bytes)
        for each in found
    ]


def _record_row(record: Record, reading: Reading, decode: Decode, most_bytes: int) -> RecordRow:
    return {
        "offset": record.offset,
        "last_offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": TimestampType(record.timestamp_type).name,
        "key": shown(record.key, reading.key_format, decode, most_bytes),
        "value": shown(record.value, reading.value_format, decode, most_bytes),
        "headers": [
            {"name": name[:_MOST_NAME], "value": shown(value, most_bytes=most_bytes // 8)}
            for name, value in record.headers[: most_bytes // 128]
        ],
        "header_count": len(record.headers),
        "problem": "",
    }


def _unreadable_row(batch: Unreadable) -> RecordRow:
    return {
        "offset": batch.offset,
        "last_offset": batch.last_offset,
        "timestamp": NO_TIMESTAMP,
        "timestamp_type": TimestampType.CREATE_TIME.name,
        "key": None,
        "value": None,
        "headers": [],
        "header_count": 0,
        "problem": batch.reason,
    }


def _batch_row(batch: Batch) -> BatchRow:
    header = batch.header
    try:
        compression = header.compression.name.lower()
    except ProtocolError:
        compression = "unknown"
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "size_bytes": header.size_bytes,
        "compression": compression,
        "timestamp_type": header.timestamp_type.name,
        "max_timestamp": header.largest_timestamp,
        "leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "is_transactional": header.is_transactional,
        "is_aborted": batch.is_aborted,
        "control": batch.control,
        "delete_horizon_ms": header.delete_horizon_ms,
    }
