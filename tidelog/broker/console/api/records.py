"""Records: browsed, searched, followed, downloaded and produced.

Owns the routes of records, and how their parameters become a place and a reading.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Final, Literal, TypedDict

from msgspec import Meta, field
from msgspec.structs import replace

from tidelog.broker.console import shapes
from tidelog.broker.console.api.topics import existing_topic
from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.others import all_of, leader
from tidelog.broker.console.records.csv_rows import CSV_HEAD, csv_rows
from tidelog.broker.console.records.filters import MOST_FILTER_BYTES, Filter
from tidelog.broker.console.records.reading import (
    MOST_POSITIONS_CHARACTERS,
    BatchRows,
    Followed,
    Place,
    Reading,
    RecordRows,
    Searched,
    merged,
)
from tidelog.broker.console.records.rows import RecordRow
from tidelog.broker.console.records.shown_values import Format
from tidelog.broker.console.route import CSV, EVENT_STREAM, JSON_LINES, OF_LEADER, Console, Spread, route
from tidelog.broker.security.required_access import READ_TOPIC, WRITE_TOPIC, whole
from tidelog.broker.services import Services
from tidelog.broker.storage.log_types import READ_COMMITTED
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.hot import ProduceRequest
from tidelog.protocol.json_lines import RecordFields, record_of
from tidelog.protocol.murmur2 import murmur2_partition
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey

_ACKS_ALL: Final = -1
_TIMEOUT_MS: Final = 30_000
Limit = Annotated[int, Meta(ge=1, le=shapes.MOST_ROWS, description="Most rows.")]
Condition = Annotated[str, Meta(max_length=MOST_FILTER_BYTES)]
Encoding = Literal["text", "base64", "hex"]
_TIMES: Final = "2026-11-26T18:00:00Z, or milliseconds since the epoch"
_TOPIC: Final = "/topics/{topic}"
_PARTITION: Final = f"{_TOPIC}/partitions/{{partition}}"
_OF_ONE: Final = Spread(
    lambda services, asked: (
        leader(services, asked.topic, asked.partitions[0]) if len(asked.partitions) == 1 else services.node_id
    )
)


class Conditions(shapes.OfTopic, frozen=True, kw_only=True):
    """Which records of a topic, and how they are shown."""

    partitions: Annotated[tuple[shapes.PartitionNumber, ...], Meta(description="Only these; else all.")] = ()
    offset: shapes.Offset | None = None
    time: Annotated[str, Meta(max_length=64, description=f"Begin at this time: {_TIMES}.")] = ""
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    key_format: Format = Format.AUTO
    value_format: Format = Format.AUTO
    key: Annotated[Condition, Meta(description="Only records with this key.")] | None = None
    header: Annotated[Condition, Meta(description="Only with this header: `name`, or `name=value`.")] = ""
    text: Annotated[Condition, Meta(description="Only with this text in the key, value or a header.")] = ""
    json: Annotated[Condition, Meta(description="Only JSON values for which this is true in JMESPath.")] = ""

    def wanted(self, services: Services) -> Sequence[int]:
        """The partitions. Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION."""
        count = len(existing_topic(services, self.topic).partitions)
        for partition in self.partitions:
            if partition >= count:
                message = f"{self.topic} has {count} partitions, and none with number {partition}"
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        return list(dict.fromkeys(self.partitions)) or range(count)

    def place(self) -> Place:
        """Raises ApiError."""
        if self.offset is not None and (self.time or len(self.partitions) != 1):
            raise ApiError(ErrorCode.INVALID_REQUEST, "an offset needs one partition, and no time")
        return Place(self.offset, _milliseconds(self.time) if self.time else None)

    def reading(self) -> Reading:
        """Raises ApiError."""
        try:
            wanted = Filter.of(self.key, self.header, self.text, self.json)
        except ValueError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
        isolation_level = READ_COMMITTED if self.isolation_level == "read_committed" else 0
        return Reading(isolation_level, self.key_format, self.value_format, wanted)


class ReadSome(Conditions, frozen=True, kw_only=True):
    limit: Limit = 50


class ReadPage(ReadSome, frozen=True, kw_only=True):
    positions: Annotated[
        str,
        Meta(
            max_length=MOST_POSITIONS_CHARACTERS,
            pattern="^([0-9]{1,10}:[0-9]{1,19}(,[0-9]{1,10}:[0-9]{1,19})*)?$",
            description="Where to read on: `partition:offset`, separated by commas.",
        ),
    ] = ""

    def offsets(self, services: Services) -> dict[int, int | None]:
        """Of each partition the offset where it is read on; None: as `place` says. Raises ApiError."""
        if not self.positions:
            return dict.fromkeys(self.wanted(services))
        pairs = (each.split(":") for each in self.positions.split(","))
        return {int(partition): int(offset) for partition, offset in pairs}


class Download(Conditions, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=shapes.INT64, description="Of each partition.")] | None = None


class ReadOne(shapes.OfTopic, frozen=True, kw_only=True):
    partition: shapes.PartitionNumber
    offset: shapes.Offset
    key_format: Format = Format.AUTO
    value_format: Format = Format.AUTO


class ReadBatches(shapes.OfTopic, frozen=True, kw_only=True):
    partition: shapes.PartitionNumber
    offset: shapes.Offset | None = None
    limit: Limit = 50


class NewRecord(shapes.OfTopic, frozen=True, kw_only=True):
    """A record. Without a partition its key chooses one as in Kafka's clients, without a key chance does."""

    partition: shapes.PartitionNumber | None = None
    key: str | None = None
    key_encoding: Encoding = "text"
    value: Annotated[str | None, Meta(description="null: a tombstone.")] = None
    value_encoding: Encoding = "text"
    headers: dict[str, str] | list[tuple[str, str | None]] = field(default_factory=dict)
    headers_encoding: Encoding = "text"


class Resent(ReadOne, frozen=True, kw_only=True):
    to_topic: shapes.TopicName


class Produced(TypedDict):
    topic: str
    partition: int
    offset: int


class Found(Searched):
    """A message of a search: the records found since the last one, and how far it is."""

    partition: int
    """The one that is searched, which has these records."""
    partitions: int
    """How many are searched, one after the other."""
    not_served: int
    """Those of them so far that no broker serves: they are left out."""
    found: int
    """Records so far."""
    state: str
    """searching, done, full (as many as wanted were found), or replaced (by this visitor's next search)."""


def _joined(_: Services, answers: Mapping[int, RecordRows], asked: ReadPage) -> RecordRows:
    lists: dict[int, list[RecordRow]] = {}
    for row in (row for answer in answers.values() for row in answer["rows"]):
        lists.setdefault(row["partition"], []).append(row)
    positions = [each for answer in answers.values() for each in answer["positions"]]
    is_complete = all(answer["is_complete"] for answer in answers.values())
    is_newest = asked.place() == Place()
    found = lists.values()
    return merged(asked.topic, found, positions, asked.limit, is_complete=is_complete, newest_first=is_newest)


def _reading(console: Console, caller: Caller, asked: Conditions) -> Reading:
    """Raises ApiError."""
    return asked.reading()._replace(masks=partial(console.records.masks, asked.topic, caller))


@route("GET", f"{_TOPIC}/records", needs=READ_TOPIC, spread=Spread(join=_joined))
async def records(console: Console, caller: Caller, asked: ReadPage) -> RecordRows:
    """The newest records of a topic, merged by time; with an offset or a time those from there on, oldest
    first."""
    reading, place = _reading(console, caller, asked), asked.place()
    known = existing_topic(console.services, asked.topic).partitions
    led_here = {
        each: offset
        for each, offset in asked.offsets(console.services).items()
        if each < len(known) and known[each].leader_id == console.services.node_id
    }
    return await console.records.page(asked.topic, led_here, place, asked.limit, reading)


@route("GET", f"{_PARTITION}/records/{{offset}}", needs=READ_TOPIC, spread=OF_LEADER)
async def record(console: Console, caller: Caller, asked: ReadOne) -> RecordRow:
    """One record."""
    masks = partial(console.records.masks, asked.topic, caller)
    reading = Reading(key_format=asked.key_format, value_format=asked.value_format, masks=masks)
    return await console.records.record(asked.topic, asked.partition, asked.offset, reading)


@route("GET", f"{_PARTITION}/batches", needs=READ_TOPIC, spread=OF_LEADER)
async def batches(console: Console, caller: Caller, asked: ReadBatches) -> BatchRows:
    """Batches from an offset on, with their producers, sequences and transactions."""
    return await console.records.batches(asked.topic, asked.partition, asked.offset, asked.limit)


@route("GET", f"{_TOPIC}/search", needs=READ_TOPIC, stream=EVENT_STREAM)
def search_route(console: Console, caller: Caller, asked: ReadSome) -> AsyncGenerator[Found, None]:
    """Search partitions of a topic, one after the other, from an offset or a time (else their starts) to
    their ends. A visitor's next search ends the one before."""
    partitions = asked.wanted(console.services)
    asked.place()
    if asked.reading().wanted.is_empty:
        message = "name a key, a header, a text or a JSON expression to search for"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    return _found(console, caller, asked, partitions)


async def _found(
    console: Console, caller: Caller, asked: ReadSome, partitions: Sequence[int]
) -> AsyncGenerator[Found, None]:
    nothing = dict.fromkeys(("begin_offset", "offset", "end_offset", "size_bytes", "not_served", "found"), 0)
    began = {"rows": [], "partition": partitions[0], "partitions": len(partitions), "state": "searching"}
    found = shapes.row_of(Found, nothing, began)
    piece: Searched
    with console.records.only_search(f"{caller.user} {caller.host}") as is_newest:
        for partition in partitions:
            part = replace(asked, partitions=(partition,), limit=asked.limit - found["found"])
            try:
                async with aclosing(await search_here.values(console, caller, part)) as pieces:
                    async for piece in pieces:
                        if not is_newest():
                            yield {**found, "rows": [], "state": "replaced"}
                            return
                        piece["size_bytes"] += found["size_bytes"]
                        count = found["found"] + len(piece["rows"])
                        found = {**found, **piece, "partition": partition, "found": count}
                        yield found
            except ApiError as error:
                if not error.code.retriable:
                    raise
                found = {**found, "not_served": found["not_served"] + 1}
            if found["found"] >= asked.limit:
                yield {**found, "rows": [], "state": "full"}
                return
        yield {**found, "rows": [], "state": "done"}


@route("GET", "/search", needs=READ_TOPIC, stream=EVENT_STREAM, spread=_OF_ONE, is_public=False)
def search_here(console: Console, caller: Caller, asked: ReadSome) -> AsyncGenerator[Searched, None]:
    """Search a partition."""
    return console.records.search(
        asked.topic, asked.partitions[0], asked.place(), asked.limit, _reading(console, caller, asked)
    )


@route("GET", f"{_TOPIC}/live", needs=READ_TOPIC, stream=EVENT_STREAM)
async def live(console: Console, caller: Caller, asked: Conditions) -> AsyncGenerator[Followed, None]:
    """Follow partitions of a topic."""
    _reading(console, caller, asked)  # It is refused before the first value.
    by_broker: dict[int, list[int]] = {}
    for partition in asked.wanted(console.services):
        with suppress(ApiError):  # What nobody leads has nothing to follow.
            node_id = leader(console.services, asked.topic, partition)
            by_broker.setdefault(node_id, []).append(partition)
    parts = {node_id: replace(asked, partitions=tuple(led)) for node_id, led in by_broker.items()}
    streams = [await follow_here.values_of(node_id, console, caller, part) for node_id, part in parts.items()]
    return all_of(streams)


@route("GET", "/live", is_public=False, needs=READ_TOPIC, stream=EVENT_STREAM)
def follow_here(console: Console, caller: Caller, asked: Conditions) -> AsyncGenerator[Followed, None]:
    """Follow partitions that this broker leads."""
    for partition in asked.partitions:
        console.services.replica(asked.topic, partition)
    return console.records.follow(asked.topic, asked.partitions, _reading(console, caller, asked))


@route("GET", f"{_TOPIC}/download", needs=READ_TOPIC, stream=JSON_LINES, answer=RecordFields, spread=_OF_ONE)
def download(console: Console, caller: Caller, asked: Download) -> AsyncGenerator[bytes, None]:
    """Records from an offset or a time (else the start) to the end, each as `tidelog consume --json` prints
    it: one partition after the other."""
    partitions, place = asked.wanted(console.services), asked.place()
    reading = _reading(console, caller, asked)
    if len(partitions) == 1:
        console.services.replica(asked.topic, partitions[0])
        return console.records.lines(asked.topic, partitions[0], place, reading, asked.limit)

    async def of_each() -> AsyncGenerator[bytes, None]:
        for partition in partitions:
            part = replace(asked, partitions=(partition,))
            async with aclosing(await download.values(console, caller, part)) as lines:
                async for line in lines:
                    yield line

    return of_each()


@route("GET", f"{_TOPIC}/download/csv", needs=READ_TOPIC, stream=CSV, answer=str)
async def download_csv(console: Console, caller: Caller, asked: Download) -> AsyncGenerator[bytes, None]:
    """The same as a table. A cell that a spreadsheet would read as a formula begins with an apostrophe."""
    lines = await download.values(console, caller, asked)

    async def rows() -> AsyncGenerator[bytes, None]:
        yield CSV_HEAD
        async with aclosing(lines):
            async for part in lines:
                yield await console.records.reader.in_turn(csv_rows, part)

    return rows()


@route("POST", "/topics/{topic}/records", needs=WRITE_TOPIC, logged=("partition",))
async def produce(console: Console, caller: Caller, asked: NewRecord) -> Produced:
    """Produce a record. It is durable when the request is answered."""
    services = console.services
    topic = existing_topic(services, asked.topic)
    try:
        key = _bytes("key", asked.key, asked.key_encoding)
        value = _bytes("value", asked.value, asked.value_encoding)
        given = asked.headers.items() if isinstance(asked.headers, dict) else asked.headers
        headers = [(name, _bytes(name, text, asked.headers_encoding)) for name, text in given]
        builder = RecordBatchBuilder()
        builder.append(services.clock_ms(), key, value, headers)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
    partition = asked.partition
    if partition is None:
        count = len(topic.partitions)
        partition = random.randrange(count) if key is None else murmur2_partition(key, count)
    node_id = leader(services, topic.name, partition)
    if node_id != services.node_id:
        chosen = replace(asked, partition=partition)
        produced: Produced = await console.others.ask(node_id, caller, produce, chosen)
        return produced
    topics = [(topic.topic_id, [(partition, builder.build())])]
    answer = await caller.request(ApiKey.PRODUCE, ProduceRequest(None, _ACKS_ALL, _TIMEOUT_MS, topics))
    ((_, (result,)),) = answer
    check_code(result.error_code, result.error_message)
    return {"topic": topic.name, "partition": partition, "offset": result.base_offset}


@route(
    "POST",
    f"{_PARTITION}/records/{{offset}}/resend",
    needs=(READ_TOPIC, whole(WRITE_TOPIC, field="to_topic")),
    logged=("to_topic",),
)
async def resend(console: Console, caller: Caller, asked: Resent) -> Produced:
    """Produce a copy of a record to a topic, to the partition that its key chooses."""
    if console.records.masks(asked.topic, caller) is not None:
        message = f"parts of the records of {asked.topic} are masked for you: a copy would lack them"
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
    read = Download(topic=asked.topic, partitions=(asked.partition,), offset=asked.offset, limit=1)
    async with aclosing(await download.values(console, caller, read)) as lines:
        async for line in lines:
            fields = json.loads(line)
            if fields["offset"] == asked.offset:
                record = record_of(fields)
                return await produce.handle(  # type: ignore[no-any-return]
                    console,
                    caller,
                    NewRecord(
                        topic=asked.to_topic,
                        key=_base64(record.key),
                        key_encoding="base64",
                        value=_base64(record.value),
                        value_encoding="base64",
                        headers=[(name, _base64(value)) for name, value in record.headers],
                        headers_encoding="base64",
                    ),
                )
    raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"no record at offset {asked.offset} can be read")


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(name: str, text: str | None, encoding: Encoding) -> bytes | None:
    """Raises ValueError."""
    if text is None:
        return None
    try:
        if encoding == "hex":
            return bytes.fromhex(text)
        return base64.b64decode(text, validate=True) if encoding == "base64" else text.encode()
    except ValueError as error:
        raise ValueError(f"{name}: expected {encoding}: {error}") from None


def _milliseconds(text: str) -> int:
    """Of a time without a zone: that is UTC. Raises ApiError."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    try:
        at = datetime.fromisoformat(text)
        return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"time: expected {_TIMES}, got {text!a}") from None
