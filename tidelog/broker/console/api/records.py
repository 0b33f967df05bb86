"""Records: browsed, searched, followed, downloaded and produced.

Owns the routes and pages of records, and how their parameters become a place and a reading.
"""

from __future__ import annotations

import base64
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Final, Literal, TypedDict

from msgspec import Meta, field
from msgspec.structs import replace

from tidelog.broker.console.api.topics import TopicName, one_topic
from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.others import leader
from tidelog.broker.console.records.filters import MOST_FILTER_BYTES, Filter
from tidelog.broker.console.records.shown_values import Format
from tidelog.broker.console.route import EVENT_STREAM, JSON_LINES, MOST_ROWS, Console, Page, Parameters, route
from tidelog.broker.console.spread import OF_LEADER
from tidelog.broker.console.views.records import (
    BatchRows,
    Followed,
    Found,
    Place,
    Reading,
    RecordRow,
    RecordRows,
)
from tidelog.broker.console.views.topics import existing_topic
from tidelog.broker.security.required_access import READ_TOPIC, WRITE_TOPIC, whole
from tidelog.broker.storage.log_types import READ_COMMITTED
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.hot import ProduceRequest
from tidelog.protocol.json_lines import RecordFields
from tidelog.protocol.murmur2 import murmur2_partition
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey

_ACKS_ALL: Final = -1
_TIMEOUT_MS: Final = 30_000
_INT32: Final = 2**31 - 1
_INT64: Final = 2**63 - 1
PartitionNumber = Annotated[int, Meta(ge=0, le=_INT32, description="Number of a partition.")]
Offset = Annotated[int, Meta(ge=0, le=_INT64, description="Offset of the first record.")]
Limit = Annotated[int, Meta(ge=1, le=MOST_ROWS, description="Most records.")]
Condition = Annotated[str, Meta(max_length=MOST_FILTER_BYTES)]
Encoding = Literal["text", "base64", "hex"]
_NEEDS: Final = (whole(READ_TOPIC, field="topic"),)
_PARTITION: Final = "/api/v1/topics/{topic}/partitions/{partition}"


class Conditions(Parameters, frozen=True, kw_only=True):
    """Which records of a topic, and how they are shown."""

    topic: TopicName
    time: Annotated[
        str,
        Meta(
            max_length=64,
            description="Begin with the first record that is not older: 2026-11-26T18:00:00Z, or "
            "milliseconds since the epoch.",
        ),
    ] = ""
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    key_format: Format = Format.AUTO
    value_format: Format = Format.AUTO
    key: Annotated[Condition, Meta(description="Only records with this key.")] | None = None
    header: Annotated[
        Condition, Meta(description="Only records with this header: `name`, or `name=value`.")
    ] = ""
    text: Annotated[
        Condition, Meta(description="Only records with this text in the key, the value or a header.")
    ] = ""

    def place(self) -> Place:
        """Raises ApiError."""
        return Place(timestamp_ms=_milliseconds(self.time) if self.time else None)

    def reading(self) -> Reading:
        """Raises ApiError."""
        try:
            wanted = Filter.of(self.key, self.header, self.text)
        except ValueError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
        isolation_level = READ_COMMITTED if self.isolation_level == "read_committed" else 0
        return Reading(isolation_level, self.key_format, self.value_format, wanted)


class Read(Conditions, frozen=True, kw_only=True):
    """Which records of a partition are read: from where, and under which conditions."""

    partition: PartitionNumber
    offset: Offset | None = None

    def place(self) -> Place:
        if self.offset is not None and self.time:
            raise ApiError(ErrorCode.INVALID_REQUEST, "expected an offset or a time, got both")
        return super().place()._replace(offset=self.offset)


class ReadSome(Read, frozen=True, kw_only=True):
    limit: Limit = 50


class SearchAll(Conditions, frozen=True, kw_only=True):
    limit: Limit = 50
    partitions: Annotated[tuple[PartitionNumber, ...] | None, Meta(description="Only these; else all.")] = (
        None
    )


class ReadOne(Parameters, frozen=True, kw_only=True):
    topic: TopicName
    partition: PartitionNumber
    offset: Offset
    key_format: Format = Format.AUTO
    value_format: Format = Format.AUTO


class ReadBatches(Parameters, frozen=True, kw_only=True):
    topic: TopicName
    partition: PartitionNumber
    offset: Offset | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS, description="Most batches.")] = 50


class NewRecord(Parameters, frozen=True, kw_only=True):
    """A record. Without a partition its key chooses one as in Kafka's clients, without a key chance does."""

    topic: TopicName
    partition: PartitionNumber | None = None
    key: str | None = None
    key_encoding: Encoding = "text"
    value: Annotated[str | None, Meta(description="null: a tombstone.")] = None
    value_encoding: Encoding = "text"
    headers: dict[str, str] = field(default_factory=dict)


class Produced(TypedDict):
    """Where a record is stored, durably."""

    topic: str
    partition: int
    offset: int


@route("GET", f"{_PARTITION}/records", needs=_NEEDS, spread=OF_LEADER)
async def _records(console: Console, caller: Caller, asked: ReadSome) -> RecordRows:
    """Records from an offset or a time on; without both, the last ones."""
    view = console.records.page
    return await view(asked.topic, asked.partition, asked.place(), asked.limit, asked.reading())


@route("GET", f"{_PARTITION}/records/{{offset}}", needs=_NEEDS, spread=OF_LEADER)
async def _record(console: Console, caller: Caller, asked: ReadOne) -> RecordRow:
    """One record."""
    reading = Reading(key_format=asked.key_format, value_format=asked.value_format)
    return await console.records.record(asked.topic, asked.partition, asked.offset, reading)


@route("GET", f"{_PARTITION}/batches", needs=_NEEDS, spread=OF_LEADER)
async def _batches(console: Console, caller: Caller, asked: ReadBatches) -> BatchRows:
    """Batches from an offset on, with their producers, sequences and transactions."""
    return await console.records.batches(asked.topic, asked.partition, asked.offset, asked.limit)


@route("GET", f"{_PARTITION}/search", needs=_NEEDS, stream=EVENT_STREAM, spread=OF_LEADER)
def _search(console: Console, caller: Caller, asked: ReadSome) -> AsyncGenerator[Found, None]:
    """Search a partition from an offset or a time (else its start) to its end. A visitor's next search ends
    the one before."""
    return _found(console, caller, asked, [asked.partition], _served(console, asked))


@route("GET", "/api/v1/topics/{topic}/search", needs=_NEEDS, stream=EVENT_STREAM)
def _search_all(console: Console, caller: Caller, asked: SearchAll) -> AsyncGenerator[Found, None]:
    """Search all partitions of a topic, one after the other."""
    partitions = range(len(existing_topic(console.services, asked.topic).partitions))
    if asked.partitions is not None:
        return _found(console, caller, asked, asked.partitions, asked.place())
    if console.others.is_alone:
        return _found(console, caller, asked, partitions, asked.place())
    _check_search(asked)
    return _found_at_all(console, caller, asked, partitions)


async def _found_at_all(
    console: Console, caller: Caller, asked: SearchAll, partitions: Sequence[int]
) -> AsyncGenerator[Found, None]:
    """What one broker after the other finds in the partitions that it leads."""
    by_broker: dict[int, list[int]] = {}
    not_served = 0
    for partition in partitions:
        try:
            by_broker.setdefault(leader(console.services, asked.topic, partition), []).append(partition)
        except ApiError:
            not_served += 1
    before: Found | None = None
    for node_id, led in by_broker.items():
        found = 0 if before is None else before["found"]
        part = replace(asked, partitions=tuple(led), limit=asked.limit - found)
        message: Found | None = None
        try:
            if node_id == console.services.node_id:
                values = _found(console, caller, part, led, part.place())
            else:
                values = await console.others.stream(node_id, caller, _search_all, part)
            async with aclosing(values):
                async for message in values:
                    if message["state"] != "done":
                        yield _summed(message, before, len(partitions), not_served)
        except ApiError as error:
            if not error.code.retriable:
                raise
            not_served += len(led)
        if message is not None:
            before = _summed(message, before, len(partitions), 0)
            if message["state"] in ("full", "replaced"):
                return
    if before is None:
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"no partition of {asked.topic} has a leader now")
    yield {**before, "rows": [], "not_served": before["not_served"] + not_served, "state": "done"}


def _summed(message: Found, before: Found | None, partitions: int, not_served: int) -> Found:
    """A message with what was found at other brokers before."""
    found = message["found"] + (0 if before is None else before["found"])
    size_bytes = message["size_bytes"] + (0 if before is None else before["size_bytes"])
    not_served += message["not_served"] + (0 if before is None else before["not_served"])
    return {
        **message,
        "partitions": partitions,
        "found": found,
        "size_bytes": size_bytes,
        "not_served": not_served,
    }


def _found(
    console: Console, caller: Caller, asked: ReadSome | SearchAll, partitions: Sequence[int], place: Place
) -> AsyncGenerator[Found, None]:
    reading = _check_search(asked)
    visitor = f"{caller.user} {caller.host}"
    return console.records.search(visitor, asked.topic, partitions, place, asked.limit, reading)


def _check_search(asked: ReadSome | SearchAll) -> Reading:
    """Raises ApiError."""
    reading = asked.reading()
    if reading.wanted.is_empty:
        raise ApiError(ErrorCode.INVALID_REQUEST, "name a key, a header or a text to search for")
    return reading


@route("GET", f"{_PARTITION}/live", needs=_NEEDS, stream=EVENT_STREAM, spread=OF_LEADER)
def _live(console: Console, caller: Caller, asked: Read) -> AsyncGenerator[Followed, None]:
    """Follow a partition."""
    _served(console, asked)
    return console.records.follow(asked.topic, asked.partition, asked.reading())


@route(
    "GET", f"{_PARTITION}/download", needs=_NEEDS, stream=JSON_LINES, spread=OF_LEADER, answer=RecordFields
)
def _download(console: Console, caller: Caller, asked: Read) -> AsyncGenerator[bytes, None]:
    """Records from an offset or a time (else the start) to the end, each as `tidelog consume --json` prints
    it."""
    place = _served(console, asked)
    return console.records.lines(asked.topic, asked.partition, place, asked.reading())


def _served(console: Console, asked: Read) -> Place:
    """The place. Raises ApiError before the stream begins, which would hide the status."""
    console.services.replica(asked.topic, asked.partition)
    return asked.place()


@route(
    "POST",
    "/api/v1/topics/{topic}/records",
    needs=(whole(WRITE_TOPIC, field="topic"),),
    logged=("partition",),
)
async def _produce(console: Console, caller: Caller, asked: NewRecord) -> Produced:
    """Produce a record. It is durable when the request is answered."""
    services = console.services
    topic = existing_topic(services, asked.topic)
    try:
        key = _bytes("key", asked.key, asked.key_encoding)
        value = _bytes("value", asked.value, asked.value_encoding)
        headers = [(name, text.encode()) for name, text in asked.headers.items()]
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
        produced: Produced = await console.others.ask(node_id, caller, _produce, chosen)
        return produced
    topics = [(topic.topic_id, [(partition, builder.build())])]
    answer = await caller.request(ApiKey.PRODUCE, ProduceRequest(None, _ACKS_ALL, _TIMEOUT_MS, topics))
    ((_, (result,)),) = answer
    check_code(result.error_code, result.error_message)
    return {"topic": topic.name, "partition": partition, "offset": result.base_offset}


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
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"time: expected 2026-11-26T18:00:00Z, or milliseconds since the epoch, got {text!a}",
        ) from None


PAGES: Final[Sequence[Page]] = (
    Page("/console/topics/{topic}/produce", "Produce", "produce.html", {"topic": one_topic}),
    Page("/console/topics/{topic}/search", "Search", "search.html", {"topic": one_topic}),
    Page("/console/topics/{topic}/partitions/{partition}", "Records", "records.html", {"records": _records}),
    Page(
        "/console/topics/{topic}/partitions/{partition}/batches",
        "Batches",
        "batches.html",
        {"batches": _batches},
    ),
    Page(
        "/console/topics/{topic}/partitions/{partition}/records/{offset}",
        "Record",
        "record.html",
        {"record": _record},
    ),
)
