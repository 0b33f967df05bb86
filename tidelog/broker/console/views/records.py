"""The records of a topic: the newest or a page of them, one of them, its batches, what matches, what comes.

Owns `Records`, what one broker's console knows beside its services: the reading in steps, the schemas, and
the search of each visitor.

Invariants: a caller gets what Fetch would give, in answers whose records and bytes are bounded. One search
per visitor: a new search ends the earlier one. What is computed of many bytes runs in a thread, in turn. To
stop iterating ends the work.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final, NamedTuple, Self, TypedDict

from tidelog.broker.configuration.masking_rules import masking_rules
from tidelog.broker.console.caller import Caller
from tidelog.broker.console.records.expressions import Expression
from tidelog.broker.console.records.filters import Filter
from tidelog.broker.console.records.masking import Masks
from tidelog.broker.console.records.rows import BatchRow, RecordRow, batch_row, record_rows
from tidelog.broker.console.records.shown_values import (
    MOST_DETAIL_BYTES,
    MOST_SHOWN_BYTES,
    Decode,
    Format,
    not_decoded,
)
from tidelog.broker.console.records.stepwise_reading import (
    EVERYTHING,
    STEP_BYTES,
    Limits,
    Seen,
    Step,
    StepwiseReader,
    Unreadable,
    size_of,
    start_of,
)
from tidelog.broker.console.views.of_cluster import OfCluster
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.security.required_access import ALTER_TOPIC
from tidelog.broker.services import Services
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.json_lines import line_of
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
MOST_POSITIONS_CHARACTERS: Final = 6_000
"""A longer URL is refused by the HTTP server."""


class Position(TypedDict):
    """Where a partition is read on: at `offset`, or before it if the newest come first."""

    partition: int
    offset: int
    start_offset: int
    end_offset: int
    """After the last record that may be read with this isolation level."""


class RecordRows(OfCluster):
    """Records of the partitions of a topic, merged by their times: the newest first, or from a place on the
    oldest first. The order of the offsets of a partition holds, whatever its times are."""

    topic: str
    newest_first: bool
    rows: list[RecordRow]
    positions: list[Position]
    """Of each partition that was asked for and is served."""
    next: str
    """The `positions` of the page after this one; empty if there is none."""
    is_complete: bool
    """False: so much was to be looked through that some partitions were not."""


class BatchRows(TypedDict):
    """Batches of a partition, those of open and aborted transactions included."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    offset: int
    next_offset: int
    rows: list[BatchRow]


class Searched(TypedDict):
    """What a search looked through since its last message."""

    rows: list[RecordRow]
    begin_offset: int
    """Where the search began in this partition."""
    offset: int
    """All before it was looked at."""
    end_offset: int
    """Where the search ends in this partition."""
    size_bytes: int
    """Of the log."""


class Followed(TypedDict):
    """A message to a follower: what can be read since the last one, oldest first."""

    rows: list[RecordRow]
    left_out: int
    """Offsets that were passed because records came too fast."""


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
    masks: Callable[[], Masks | None] = lambda: None
    """What the visitor may not see at this moment."""


class Records:
    """The views of records of one broker's console."""

    def __init__(self, services: Services) -> None:
        self._services = services
        tiering = services.tiering
        self.reader = StepwiseReader(None if tiering is None else tiering.fetches)
        """What reads logs for all visitors."""
        config = services.config
        url, user = config.console_schema_registry_url, config.console_schema_registry_basic_auth_user_info
        self.registry = SchemaRegistry(url, user) if url else None
        self._registered = None if self.registry is None else DecodedValues(self.registry)
        self._rules = masking_rules(config.console_masking_rules)
        self._searches: dict[str, object] = {}

    def masks(self, topic: str, caller: Caller) -> Masks | None:
        """What the caller may not see of the records of a topic."""
        if self._services.acls.authorizer is not None and caller.may(ALTER_TOPIC, topic):
            return None
        return Masks.of(self._rules, topic)

    async def page(
        self, topic: str, offsets: Mapping[int, int | None], place: Place, limit: int, reading: Reading
    ) -> RecordRows:
        """At most `limit` records of these partitions, read on at their offsets, else at `place`: oldest
        first; without a place the newest. Partitions that are not served here are left out."""
        if place == Place():
            return await self._newest(topic, offsets, limit, reading)
        return await self._oldest(topic, offsets, place, limit, reading)

    def _served(
        self, topic: str, partitions: Iterable[int], reading: Reading
    ) -> Iterator[tuple[int, Replica, int]]:
        """Those of the partitions that are served here, with where they end for a reader."""
        for partition in partitions:
            try:
                replica = self._services.replica(topic, partition)
            except ApiError:
                continue
            yield partition, replica, replica.ends.visible(reading.isolation_level)

    async def _oldest(
        self, topic: str, offsets: Mapping[int, int | None], place: Place, limit: int, reading: Reading
    ) -> RecordRows:
        budget = _Budget()
        lists, positions = [], []
        for partition, replica, end in self._served(topic, offsets, reading):
            wanted = offsets[partition]
            offset = await self._begin(replica, place if wanted is None else Place(wanted), end)
            found: Sequence[Seen | Unreadable] = ()
            if budget.left_bytes > 0:
                found, offset = await self._some(replica, offset, end, limit, reading, budget)
            lists.append(await self._rows(partition, found, reading))
            positions.append(_position(replica, partition, offset, end))
        return merged(topic, lists, positions, limit, is_complete=budget.left_bytes > 0)

    async def _newest(
        self, topic: str, untils: Mapping[int, int | None], limit: int, reading: Reading
    ) -> RecordRows:
        """It looks at a few offsets of each partition, and further back only where older records may be among
        the newest of all."""
        budget = _Budget()
        tails = []
        for partition, replica, end in self._served(topic, untils, reading):
            until = untils[partition]
            tails.append(_Tail(replica, partition, end, end if until is None else min(until, end)))
        looked = list(tails)
        offsets = max(1, limit // (16 * max(1, len(tails))))
        while looked and budget.left_bytes > 0:
            for tail in looked:
                if budget.left_bytes > 0:
                    await self._look_back(tail, offsets, limit, reading, budget)
            newest = heapq.nlargest(limit, (row["timestamp"] for tail in tails for row in tail.rows))
            cut = newest[-1] if len(newest) == limit else NO_TIMESTAMP - 1
            looked = [tail for tail in tails if tail.may_have_after(cut, limit)]
            offsets *= 8
        positions = [_position(tail.replica, tail.partition, tail.first, tail.end) for tail in tails]
        lists = [list(reversed(tail.rows)) for tail in tails]
        return merged(topic, lists, positions, limit, is_complete=not looked, newest_first=True)

    async def _look_back(
        self, tail: _Tail, offsets: int, limit: int, reading: Reading, budget: _Budget
    ) -> None:
        """Put what is in the `offsets` before `tail` in front of it: the last `limit` records, fewer if they
        are large."""
        end, start = tail.first, start_of(tail.replica)
        first = offset = max(start, end - offsets)
        found: deque[Seen | Unreadable] = deque()
        held_bytes = 0
        while offset < end and budget.left_bytes > 0:
            # Up to the end of all: the last of these records may be in the middle of a batch.
            step = await self._step(tail.replica, offset, tail.end, reading, _WHOLE_STEP, budget)
            for record in step.found:
                if record.offset >= end:
                    break
                found.append(record)
                held_bytes += size_of(record)
                while len(found) > limit or (held_bytes > MOST_PAGE_BYTES and len(found) > 1):
                    first = found[0].offset + 1
                    held_bytes -= size_of(found.popleft())
            if step.next_offset == offset:
                break
            offset = step.next_offset
        if offset < end:  # What is nearest to the end was not looked at.
            tail.is_cut = True
            return
        tail.first = first
        tail.rows = [*await self._rows(tail.partition, found, reading), *tail.rows]

    async def record(self, topic: str, partition: int, offset: int, reading: Reading) -> RecordRow:
        """One record with all that can be shown of it. Raises ApiError(OFFSET_OUT_OF_RANGE)."""
        replica = self._services.replica(topic, partition)
        end = replica.ends.visible(reading.isolation_level)
        found: Sequence[Seen | Unreadable] = ()
        if offset < end:
            found, _ = await self._some(replica, offset, end, 1, reading, _Budget())
        if not found or found[0].offset != offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"no record at offset {offset} can be read")
        (row,) = await self._rows(partition, found, reading, MOST_DETAIL_BYTES)
        return row

    async def time_of(self, topic: str, partition: int, offset: int) -> int:
        """The time in milliseconds of the first record at or after an offset; -1: none. Raises ApiError."""
        replica = self._services.replica(topic, partition)
        at, end = max(offset, start_of(replica)), replica.high_watermark
        found, _ = await self._some(replica, at, end, 1, Reading(), _Budget(STEP_BYTES))
        return found[0].timestamp if found and isinstance(found[0], Seen) else NO_TIMESTAMP

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
                rows.append(batch_row(batch))
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

    @contextmanager
    def only_search(self, visitor: str) -> Iterator[Callable[[], bool]]:
        """A search of a visitor, with what says whether it is still the newest one. Raises ApiError."""
        if visitor not in self._searches and len(self._searches) >= MOST_SEARCHES:
            message = f"{MOST_SEARCHES} searches are in progress, which is the limit"
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)
        this = self._searches[visitor] = object()
        try:
            yield lambda: self._searches.get(visitor) is this
        finally:
            if self._searches.get(visitor) is this:
                del self._searches[visitor]

    async def search(
        self, topic: str, partition: int, place: Place, most: int, reading: Reading
    ) -> AsyncGenerator[Searched, None]:
        """The records of a partition that match, at most `most`, from `place` (else the start) to the present
        end. Raises ApiError."""
        replica, offset, end = await self._range(topic, partition, place, reading)
        clock = asyncio.get_running_loop().time
        tell_at, size_bytes = clock() + PROGRESS_SECONDS, 0
        searched: Searched = {
            "rows": [],
            "begin_offset": offset,
            "offset": offset,
            "end_offset": end,
            "size_bytes": 0,
        }
        async for step in self._steps(replica, offset, end, most, STEP_RECORDS, reading):
            searched["offset"], size_bytes = step.next_offset, size_bytes + step.size_bytes
            if step.found or clock() >= tell_at or step.next_offset >= end:
                rows = await self._rows(partition, step.found, reading)
                yield {**searched, "rows": rows, "size_bytes": size_bytes}
                tell_at, size_bytes = clock() + PROGRESS_SECONDS, 0

    async def follow(
        self, topic: str, partitions: Sequence[int], reading: Reading
    ) -> AsyncGenerator[Followed, None]:
        """What becomes readable from now on. Raises ApiError when a partition stops being served here."""
        replicas = {each: self._services.replica(topic, each) for each in partitions}
        offsets = {each: at.ends.visible(reading.isolation_level) for each, at in replicas.items()}
        # Of what matches a filter nothing is to be missed as long as it can be looked through.
        most_offsets, most_bytes = MOST_FOLLOWED, STEP_BYTES
        if not reading.wanted.is_empty:
            most_offsets, most_bytes = MOST_FILTERED, MOST_SCANNED_BYTES
        with _Changes(replicas.values()) as changes:
            yield {"rows": [], "left_out": 0}
            while True:
                ends = {each: at.ends.visible(reading.isolation_level) for each, at in replicas.items()}
                moved = [each for each in partitions if ends[each] > offsets[each]]
                if not moved:
                    await changes.next()
                    for each in partitions:
                        self._services.replica(topic, each)
                    continue
                lists, left_out = [], 0
                share = max(1, MOST_FOLLOWED // len(moved))
                for each in moved:
                    first = max(offsets[each], ends[each] - max(1, most_offsets // len(moved)))
                    left_out += first - offsets[each]
                    found, offsets[each] = await self._some(
                        *(replicas[each], first, ends[each], share, reading),
                        _Budget(max(STEP_BYTES, most_bytes // len(moved))),
                    )
                    lists.append(await self._rows(each, found, reading))
                yield {"rows": list(heapq.merge(*lists, key=_time)), "left_out": left_out}
                await asyncio.sleep(FOLLOW_SECONDS)

    async def lines(
        self, topic: str, partition: int, place: Place, reading: Reading, limit: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Lines of at most `limit` whole records from `place` (else the start) to the present end, as
        `tidelog consume --json` prints them. Raises ApiError."""
        replica, offset, end = await self._range(topic, partition, place, reading)
        most = end - offset if limit is None else limit
        async for step in self._steps(replica, offset, end, most, _WHOLE_STEP.records, reading):
            if step.found:
                yield await self.reader.in_turn(_lines, topic, partition, step.found)

    async def _range(
        self, topic: str, partition: int, place: Place, reading: Reading
    ) -> tuple[Replica, int, int]:
        """A replica, the offset of a place (else the start), and the present end. Raises ApiError."""
        replica = self._services.replica(topic, partition)
        end = replica.ends.visible(reading.isolation_level)
        return replica, await self._begin(replica, Place(0) if place == Place() else place, end), end

    async def _steps(
        self, replica: Replica, offset: int, end: int, most: int, most_of_step: int, reading: Reading
    ) -> AsyncGenerator[Step, None]:
        """Steps until `end`, or until `most` records were found."""
        while offset < end and most > 0:
            offset = max(offset, start_of(replica))  # Retention continues meanwhile.
            limits = Limits(min(most, most_of_step), MOST_PAGE_BYTES)
            step = await self._step(replica, offset, end, reading, limits)
            yield step
            if step.next_offset == offset:
                return
            most, offset = most - len(step.found), step.next_offset

    async def _begin(self, replica: Replica, place: Place, end: int) -> int:
        """The offset of a place, within what can be read."""
        offset = place.offset
        if offset is None and place.timestamp_ms is not None:
            found = await self.reader.offset_for_timestamp(replica, place.timestamp_ms)
            offset = end if found is None else found.offset
        return min(max(offset or 0, start_of(replica)), end)

    async def _some(
        self, replica: Replica, offset: int, end: int, limit: int, reading: Reading, budget: _Budget
    ) -> tuple[Sequence[Seen | Unreadable], int]:
        """At most `limit` records from `offset` on, and where the next ones begin."""
        found: list[Seen | Unreadable] = []
        held_bytes = 0
        while offset < end and len(found) < limit and held_bytes < MOST_PAGE_BYTES and budget.left_bytes > 0:
            limits = Limits(limit - len(found), MOST_PAGE_BYTES - held_bytes)
            step = await self._step(replica, offset, end, reading, limits, budget)
            found += step.found
            held_bytes += sum(map(size_of, step.found))
            if step.next_offset == offset:
                break
            offset = step.next_offset
        return found, offset

    async def _step(
        self,
        replica: Replica,
        offset: int,
        end: int,
        reading: Reading,
        limits: Limits,
        budget: _Budget | None = None,
    ) -> Step:
        """As `StepwiseReader.step`, with masks and the filter's expression. It counts against `budget`."""
        masks, wanted = reading.masks(), reading.wanted
        is_whole = masks is not None or wanted.expression is not None
        step = await self.reader.step(
            *(replica, offset, end, reading.isolation_level, _WHOLE_STEP if is_whole else limits),
            EVERYTHING if masks is not None else wanted,
        )
        if is_whole and step.found:
            records = [each for each in step.found if isinstance(each, Seen)]
            keys = [each.key for each in records] if masks is not None and masks.key else []
            decode = await self._decode([*keys, *(each.value for each in records)])
            found = await self.reader.in_turn(_fitting, step.found, wanted, masks, decode)
            if len(found) > limits.records:
                found = found[: limits.records]
                step = step._replace(next_offset=found[-1].offset + 1)
            step = step._replace(found=found)
        if budget is not None:
            budget.left_bytes -= step.size_bytes
        return step

    async def _decode(self, values: Sequence[bytes | None]) -> Decode:
        """What decodes these values."""
        if self._registered is None:
            return not_decoded
        await self._registered.fetch(values)
        return self._registered.decode

    async def _rows(
        self,
        partition: int,
        found: Iterable[Seen | Unreadable],
        reading: Reading,
        most_bytes: int = MOST_SHOWN_BYTES,
    ) -> list[RecordRow]:
        found = list(found)
        if not found:
            return []
        records = [each for each in found if isinstance(each, Seen)]
        decoded = (Format.AUTO, Format.AVRO, Format.PROTOBUF)
        values = [record.key for record in records] if reading.key_format in decoded else []
        values += [record.value for record in records] if reading.value_format in decoded else []
        decode = await self._decode(values)
        return await self.reader.in_turn(
            record_rows, partition, found, reading.key_format, reading.value_format, decode, most_bytes
        )


class _Budget:
    """How many bytes of the log may still be looked through, of all partitions together."""

    def __init__(self, left_bytes: int = MOST_SCANNED_BYTES) -> None:
        self.left_bytes = left_bytes


class _Tail:
    """The last records of a partition that ends at `end`: those from `first` on that are wanted."""

    def __init__(self, replica: Replica, partition: int, end: int, first: int) -> None:
        self.replica = replica
        self.partition = partition
        self.end = end
        self.first = first
        self.rows: list[RecordRow] = []
        self.is_cut = False

    def may_have_after(self, timestamp: int, limit: int) -> bool:
        """Whether records before `first` may be newer than `timestamp`, and wanted."""
        is_left = self.first > start_of(self.replica) and not self.is_cut and len(self.rows) < limit
        return is_left and (not self.rows or self.rows[0]["timestamp"] > timestamp)


def _position(replica: Replica, partition: int, offset: int, end: int) -> Position:
    return {
        "partition": partition,
        "offset": offset,
        "start_offset": start_of(replica),
        "end_offset": end,
    }


def _time(row: RecordRow) -> int:
    return row["timestamp"]


def merged(
    topic: str,
    lists: Iterable[Sequence[RecordRow]],
    positions: Iterable[Position],
    limit: int,
    *,
    is_complete: bool,
    newest_first: bool = False,
) -> RecordRows:
    """The first `limit` rows of `lists`, each of one partition, which is read on at those left out."""
    rows = list(islice(heapq.merge(*lists, key=(lambda row: -_time(row)) if newest_first else _time), limit))
    shown = {(row["partition"], row["offset"]) for row in rows}
    left: dict[int, int] = {}
    for row in (row for each in lists for row in each):
        if (row["partition"], row["offset"]) not in shown and row["partition"] not in left:
            left[row["partition"]] = row["last_offset"] + 1 if newest_first else row["offset"]
    on = [(at, left.get(at["partition"], at["offset"])) for at in positions]
    following = ",".join(
        f"{at['partition']}:{offset}"
        for at, offset in on
        if (offset > at["start_offset"] if newest_first else offset < at["end_offset"])
    )
    return {
        "topic": topic,
        "newest_first": newest_first,
        "rows": rows,
        "positions": [{**at, "offset": offset} for at, offset in on],
        "next": following if len(following) <= MOST_POSITIONS_CHARACTERS else "",
        "is_complete": is_complete,
    }


class _Changes:
    """Watches replicas: `next` returns once one has changed since the last call."""

    def __init__(self, replicas: Iterable[Replica]) -> None:
        self._replicas = list(replicas)
        self._changed = asyncio.Event()

    def __enter__(self) -> Self:
        for replica in self._replicas:
            replica.watch(self)
        return self

    def __exit__(self, *_: object) -> None:
        for replica in self._replicas:
            replica.unwatch(self)

    def replica_changed(self, replica: Replica) -> None:
        self._changed.set()

    async def next(self) -> None:
        await self._changed.wait()
        self._changed.clear()


def _lines(topic: str, partition: int, found: Sequence[Seen | Unreadable]) -> bytes:
    lines = []
    for record in found:
        if isinstance(record, Unreadable):
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, record.reason)
        lines.append(line_of(topic, partition, record))
    return b"".join(lines)


def _fitting(
    found: Iterable[Seen | Unreadable], wanted: Filter, masks: Masks | None, decode: Decode
) -> Sequence[Seen | Unreadable]:
    """The records as the visitor may see them: those that match then."""
    if masks is not None:
        masked = (masks.masked(each, decode) if isinstance(each, Seen) else each for each in found)
        found = [
            each
            for each in masked
            if isinstance(each, Unreadable) or wanted.matches(each.key, each.value, each.headers)
        ]
    condition = wanted.expression
    return [
        each
        for each in found
        if condition is None or isinstance(each, Unreadable) or _fits(each.value, condition, decode)
    ]


def _fits(value: bytes | None, expression: Expression, decode: Decode) -> bool:
    try:
        decoded = None if value is None else decode(value)
        text = decoded.text if decoded is not None else (value or b"").decode()
    except ValueError:
        return False
    return expression.matches(text)
