"""The records of a topic: the newest or a page of them, one of them, its batches, what matches, what comes.

Owns `Records`, what one broker's console knows beside its services: the reading in steps, the schemas, and
the search of each visitor.

Invariants: a caller gets what Fetch would give, in answers whose records and bytes are bounded. One search
per visitor: a new search ends the earlier one. What is computed of many bytes runs in a thread, in turn. To
stop iterating ends the work.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Final, NamedTuple, Self, TypedDict

from tidelog.broker.configuration.masking_rules import masking_rules
from tidelog.broker.console.caller import Caller
from tidelog.broker.console.records import shown_values
from tidelog.broker.console.records.filters import Filter
from tidelog.broker.console.records.masking import Masks
from tidelog.broker.console.records.rows import BatchRow, RecordRow, batch_row, record_rows
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
from tidelog.broker.console.shapes import OfCluster, row_of
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
_DECODED: Final = (shown_values.Format.AUTO, shown_values.Format.AVRO, shown_values.Format.PROTOBUF)
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
    key_format: shown_values.Format = shown_values.Format.AUTO
    value_format: shown_values.Format = shown_values.Format.AUTO
    wanted: Filter = EVERYTHING
    masks: Callable[[], Masks | None] = lambda: None
    """What the visitor may not see at this moment."""


class Records:
    """The views of records of one broker's console."""

    def __init__(self, services: Services) -> None:
        self.services = services
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
        if self.services.acls.authorizer is not None and caller.may(ALTER_TOPIC, topic):
            return None
        return Masks.of(self._rules, topic)

    async def page(
        self, topic: str, offsets: Mapping[int, int | None], place: Place, limit: int, reading: Reading
    ) -> RecordRows:
        """At most `limit` records of these partitions, read on at their offsets, else at `place`: oldest
        first; without a place the newest. Partitions that are not served here are left out."""
        served, budget = [], _Budget()
        for number, offset in offsets.items():
            with suppress(ApiError):
                served.append((_Partition(self, topic, number, reading, budget), offset))
        if place == Place():
            return await _newest(topic, served, limit, budget)
        lists, positions = [], []
        for partition, wanted in served:
            offset = await partition.begin(place if wanted is None else Place(wanted))
            found: Sequence[Seen | Unreadable] = ()
            if budget.left_bytes > 0:
                found, offset = await partition.some(offset, limit)
            lists.append(await partition.rows(found))
            positions.append(partition.position(offset))
        return merged(topic, lists, positions, limit, is_complete=budget.left_bytes > 0)

    async def record(self, topic: str, number: int, offset: int, reading: Reading) -> RecordRow:
        """One record with all that can be shown of it. Raises ApiError(OFFSET_OUT_OF_RANGE)."""
        partition = _Partition(self, topic, number, reading)
        found: Sequence[Seen | Unreadable] = ()
        if offset < partition.end:
            found, _ = await partition.some(offset, 1)
        if not found or found[0].offset != offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"no record at offset {offset} can be read")
        (row,) = await partition.rows(found, shown_values.MOST_DETAIL_BYTES)
        return row

    async def time_of(self, topic: str, number: int, offset: int) -> int:
        """The time in milliseconds of the first record at or after an offset; -1: none. Raises ApiError."""
        partition = _Partition(self, topic, number, Reading(), _Budget(STEP_BYTES))
        found, _ = await partition.some(max(offset, partition.start), 1)
        return found[0].timestamp if found and isinstance(found[0], Seen) else NO_TIMESTAMP

    async def batches(self, topic: str, number: int, offset: int | None, limit: int) -> BatchRows:
        """At most `limit` batches from the one that holds `offset` on. Raises ApiError."""
        partition = _Partition(self, topic, number, Reading())
        end, start = partition.end, partition.start
        at = first = start if offset is None else min(max(offset, start), end)
        rows: list[BatchRow] = []
        size_bytes = 0
        while at < end and len(rows) < limit and size_bytes < MOST_SCANNED_BYTES:
            batches, next_offset = await self.reader.batches(partition.replica, at, end)
            for batch in batches[: limit - len(rows)]:
                rows.append(batch_row(batch))
                size_bytes += batch.header.size_bytes
            if next_offset == at:
                break
            at = rows[-1]["last_offset"] + 1 if len(rows) == limit else next_offset
        place = {"topic": topic, "partition": number, "offset": first, "next_offset": at}
        return row_of(BatchRows, place, start_offset=start, end_offset=end, rows=rows)

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
        self, topic: str, number: int, place: Place, most: int, reading: Reading
    ) -> AsyncGenerator[Searched, None]:
        """The records of a partition that match, at most `most`, from `place` (else the start) to the present
        end. Raises ApiError."""
        partition = _Partition(self, topic, number, reading)
        offset = await partition.begin(place)
        clock = asyncio.get_running_loop().time
        tell_at, size_bytes = clock() + PROGRESS_SECONDS, 0
        places = {"begin_offset": offset, "end_offset": partition.end}
        async for step in partition.steps(offset, most, STEP_RECORDS):
            size_bytes += step.size_bytes
            if step.found or clock() >= tell_at or step.next_offset >= partition.end:
                rows = await partition.rows(step.found)
                yield row_of(Searched, places, rows=rows, offset=step.next_offset, size_bytes=size_bytes)
                tell_at, size_bytes = clock() + PROGRESS_SECONDS, 0

    async def follow(
        self, topic: str, numbers: Sequence[int], reading: Reading
    ) -> AsyncGenerator[Followed, None]:
        """What becomes readable from now on. Raises ApiError when a partition stops being served here."""
        followed = [_Partition(self, topic, each, reading) for each in numbers]
        offsets = {each.number: each.end for each in followed}
        # Of what matches a filter nothing is to be missed as long as it can be looked through.
        most_offsets, most_bytes = MOST_FOLLOWED, STEP_BYTES
        if not reading.wanted.is_empty:
            most_offsets, most_bytes = MOST_FILTERED, MOST_SCANNED_BYTES
        with _Changes([each.replica for each in followed]) as changes:
            yield {"rows": [], "left_out": 0}
            while True:
                for each in followed:
                    each.end = each.visible
                moved = [each for each in followed if each.end > offsets[each.number]]
                if not moved:
                    await changes.next()
                    for each in followed:
                        self.services.replica(topic, each.number)
                    continue
                lists, left_out = [], 0
                for each in moved:
                    first = max(offsets[each.number], each.end - max(1, most_offsets // len(moved)))
                    left_out += first - offsets[each.number]
                    each.budget = _Budget(max(STEP_BYTES, most_bytes // len(moved)))
                    found, offsets[each.number] = await each.some(first, max(1, MOST_FOLLOWED // len(moved)))
                    lists.append(await each.rows(found))
                yield {"rows": list(heapq.merge(*lists, key=_time)), "left_out": left_out}
                await asyncio.sleep(FOLLOW_SECONDS)

    async def lines(
        self, topic: str, number: int, place: Place, reading: Reading, limit: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Lines of at most `limit` whole records from `place` (else the start) to the present end, as
        `tidelog consume --json` prints them. Raises ApiError."""
        partition = _Partition(self, topic, number, reading)
        offset = await partition.begin(place)
        most = partition.end - offset if limit is None else limit
        async for step in partition.steps(offset, most, _WHOLE_STEP.records):
            if step.found:
                yield await self.reader.in_turn(_lines, topic, number, step.found)

    async def decode(self, values: Sequence[bytes | None]) -> shown_values.Decode:
        """What decodes these values."""
        if self._registered is None:
            return shown_values.not_decoded
        await self._registered.fetch(values)
        return self._registered.decode


class _Budget:
    """How many bytes of the log may still be looked through, of all partitions together."""

    def __init__(self, left_bytes: int = MOST_SCANNED_BYTES) -> None:
        self.left_bytes = left_bytes


class _Partition:
    """A partition as one visitor reads it, up to `end`."""

    def __init__(
        self, records: Records, topic: str, number: int, reading: Reading, budget: _Budget | None = None
    ) -> None:
        """Raises ApiError if it is not served here."""
        self.number = number
        self.replica = records.services.replica(topic, number)
        self.budget = budget or _Budget()
        self._records = records
        self._reading = reading
        self.end = self.visible

    @property
    def start(self) -> int:
        return start_of(self.replica)

    @property
    def visible(self) -> int:
        """Where it ends now for the reader."""
        return self.replica.ends.visible(self._reading.isolation_level)

    def position(self, offset: int) -> Position:
        places = {"partition": self.number, "offset": offset}
        return row_of(Position, places, start_offset=self.start, end_offset=self.end)

    async def begin(self, place: Place) -> int:
        """The offset of a place, within what can be read."""
        offset = place.offset
        if offset is None and place.timestamp_ms is not None:
            found = await self._records.reader.offset_for_timestamp(self.replica, place.timestamp_ms)
            offset = self.end if found is None else found.offset
        return min(max(offset or 0, self.start), self.end)

    async def steps(self, offset: int, most: int, most_of_step: int) -> AsyncGenerator[Step, None]:
        """Steps until the end, or until `most` records were found."""
        while offset < self.end and most > 0:
            offset = max(offset, self.start)  # Retention continues meanwhile.
            step = await self.step(offset, Limits(min(most, most_of_step), MOST_PAGE_BYTES))
            yield step
            if step.next_offset == offset:
                return
            most, offset = most - len(step.found), step.next_offset

    async def some(self, offset: int, limit: int) -> tuple[Sequence[Seen | Unreadable], int]:
        """At most `limit` records from `offset` on, and where the next ones begin."""
        found: list[Seen | Unreadable] = []
        left_bytes = MOST_PAGE_BYTES
        while offset < self.end and len(found) < limit and left_bytes > 0 and self.budget.left_bytes > 0:
            step = await self.step(offset, Limits(limit - len(found), left_bytes))
            found += step.found
            left_bytes -= sum(map(size_of, step.found))
            if step.next_offset == offset:
                break
            offset = step.next_offset
        return found, offset

    async def step(self, offset: int, limits: Limits) -> Step:
        """As `StepwiseReader.step`, with masks and the filter's expression. It counts against the budget."""
        reader, masks, wanted = self._records.reader, self._reading.masks(), self._reading.wanted
        is_whole = masks is not None or wanted.expression is not None
        step = await reader.step(
            *(self.replica, offset, self.end, self._reading.isolation_level),
            *(_WHOLE_STEP if is_whole else limits, EVERYTHING if masks is not None else wanted),
        )
        if is_whole and step.found:
            records = [each for each in step.found if isinstance(each, Seen)]
            keys = [each.key for each in records] if masks is not None and masks.key else []
            decode = await self._records.decode([*keys, *(each.value for each in records)])
            found = await reader.in_turn(_fitting, step.found, wanted, masks, decode)
            if len(found) > limits.records:
                found = found[: limits.records]
                step = step._replace(next_offset=found[-1].offset + 1)
            step = step._replace(found=found)
        self.budget.left_bytes -= step.size_bytes
        return step

    async def rows(
        self, found: Iterable[Seen | Unreadable], most_bytes: int = shown_values.MOST_SHOWN_BYTES
    ) -> list[RecordRow]:
        found, key_format, value_format = list(found), self._reading.key_format, self._reading.value_format
        if not found:
            return []
        records = [each for each in found if isinstance(each, Seen)]
        values = [record.key for record in records] if key_format in _DECODED else []
        values += [record.value for record in records] if value_format in _DECODED else []
        decode = await self._records.decode(values)
        return await self._records.reader.in_turn(
            record_rows, self.number, found, key_format, value_format, decode, most_bytes
        )


class _Tail:
    """The last records of a partition: those from `first` on that are wanted."""

    def __init__(self, partition: _Partition, until: int | None) -> None:
        self.partition = partition
        self.first = partition.end if until is None else min(until, partition.end)
        self.rows: list[RecordRow] = []
        self.is_cut = False

    def may_have_after(self, timestamp: int, limit: int) -> bool:
        """Whether records before `first` may be newer than `timestamp`, and wanted."""
        is_left = self.first > self.partition.start and not self.is_cut and len(self.rows) < limit
        return is_left and (not self.rows or self.rows[0]["timestamp"] > timestamp)

    async def look_back(self, offsets: int, limit: int) -> None:
        """Put what is in the `offsets` before in front: the last `limit` records, fewer if they are large."""
        end, partition = self.first, self.partition
        first = offset = max(partition.start, end - offsets)
        found: deque[Seen | Unreadable] = deque()
        held_bytes = 0
        while offset < end and partition.budget.left_bytes > 0:
            # Up to the end of all: the last of these records may be in the middle of a batch.
            step = await partition.step(offset, _WHOLE_STEP)
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
            self.is_cut = True
            return
        self.first = first
        self.rows = [*await partition.rows(found), *self.rows]


async def _newest(
    topic: str, served: Sequence[tuple[_Partition, int | None]], limit: int, budget: _Budget
) -> RecordRows:
    """It looks at a few offsets of each partition, and further back only where older records may be among
    the newest of all."""
    looked = tails = [_Tail(*each) for each in served]
    offsets = max(1, limit // (16 * max(1, len(tails))))
    while looked and budget.left_bytes > 0:
        for tail in looked:
            if budget.left_bytes > 0:
                await tail.look_back(offsets, limit)
        newest = heapq.nlargest(limit, (row["timestamp"] for tail in tails for row in tail.rows))
        cut = newest[-1] if len(newest) == limit else NO_TIMESTAMP - 1
        looked = [tail for tail in tails if tail.may_have_after(cut, limit)]
        offsets *= 8
    positions = [tail.partition.position(tail.first) for tail in tails]
    lists = [list(reversed(tail.rows)) for tail in tails]
    return merged(topic, lists, positions, limit, is_complete=not looked, newest_first=True)


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
    found: Iterable[Seen | Unreadable], wanted: Filter, masks: Masks | None, decode: shown_values.Decode
) -> Sequence[Seen | Unreadable]:
    """The records as the visitor may see them: those that match then."""
    if masks is not None:
        found = [masks.masked(each, decode) if isinstance(each, Seen) else each for each in found]
    condition = wanted.expression

    def fits(record: Seen | Unreadable) -> bool:
        if isinstance(record, Unreadable):
            return True
        if masks is not None and not wanted.matches(record.key, record.value, record.headers):
            return False
        if condition is None:
            return True
        try:
            decoded = None if record.value is None else decode(record.value)
            return condition.matches((record.value or b"").decode() if decoded is None else decoded.text)
        except ValueError:
            return False

    return [each for each in found if fits(each)]
