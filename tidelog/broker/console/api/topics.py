"""Topics: listed, described, created, changed and deleted.

Owns the routes of topics. Changes are requests to the handlers of Kafka's APIs. Numbers of a partition are
those of this broker's replica; a partition that another broker leads has none, until the answers of the
brokers are joined. Invariant: what a caller may not DESCRIBE is left out or does not exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from operator import itemgetter
from typing import Annotated, Any, Final, Literal, TypedDict

from msgspec import Meta, field

from tidelog.broker.cluster.catalog import NO_LEADER, Topic
from tidelog.broker.console import shapes
from tidelog.broker.console.caller import Caller
from tidelog.broker.console.records.stepwise_reading import start_of
from tidelog.broker.console.route import ALL, MOST_JOINED_ROWS, Console, Spread, route
from tidelog.broker.handlers.metadata import described_partition
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.security import required_access as rights
from tidelog.broker.services import Services
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps, each

_SUMMED: Final = ("offsets", "size_bytes", "remote_size_bytes", "groups", "bytes_in", "bytes_out")
_TIMEOUT_MS: Final = 30_000
_DELETES: Final = rights.whole(rights.DELETE_CLUSTER, rights.DELETE_TOPIC, field="topic")
STEP_COST_PARTITION = 2
"""Describing a partition counts as this many elements (see `protocol.steps`)."""


class TopicRow(shapes.OfCluster):
    """A topic in one line. Sums are over the partitions of the brokers that answered."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: int
    replication_factor: int
    without_leader: int
    """Partitions that are not served."""
    under_replicated: int
    """Partitions that lack replicas in sync."""
    offsets: int
    """From the starts to the high watermarks: at least as many as there are records."""
    size_bytes: int
    """Of local segments."""
    remote_size_bytes: int
    """Of segments in remote storage, those included that are local too."""
    groups: int
    """That committed offsets of it."""
    bytes_in: float
    """Per second, at the last look of the brokers' measurements."""
    bytes_out: float
    trend: list[float]
    """Bytes per second in the last ten minutes, in and out, the oldest first; empty without traffic."""
    cleanup_policy: str
    retention_ms: int
    """-1: without an end."""
    retention_bytes: int


class PartitionRow(TypedDict):
    """A partition: who leads it, who holds it, and its numbers, null where its leader did not answer."""

    partition: int
    leader: Annotated[int, shapes.From("leader_id")]
    """-1: nobody."""
    leader_epoch: int
    replicas: list[int]
    in_sync_replicas: Annotated[list[int], shapes.From("isr_nodes")]
    adding_replicas: list[int]
    """Those of the replicas that a reassignment adds, and those that it removes."""
    removing_replicas: Annotated[list[int], shapes.From("removing")]
    start_offset: Annotated[int | None, shapes.From("log.log_start_offset")]
    last_stable_offset: Annotated[int | None, shapes.From("ends.last_stable")]
    high_watermark: Annotated[int | None, shapes.From("ends.high_watermark")]
    end_offset: Annotated[int | None, shapes.From("ends.end")]
    size_bytes: Annotated[int | None, shapes.From("log.size_bytes")]
    remote_size_bytes: int | None
    segments: Annotated[int | None, shapes.From("log.segment_count")]
    producers: int | None


class TopicListing(shapes.Listing, frozen=True, kw_only=True):
    search: Annotated[str, Meta(max_length=249, description="Part of the name.")] = ""
    internal: Annotated[bool, Meta(description="Whether internal topics are listed.")] = True
    order: Annotated[
        Literal["name", "partitions", "offsets", "size_bytes", "bytes_in", "bytes_out", "groups"],
        Meta(description="By name, or with the largest number first."),
    ] = "name"


def _topic_groups(console: Console, caller: Caller) -> Steps[Counter[str]]:
    """How many groups, of those that this broker coordinates, committed offsets of each topic."""
    pace = Pace(CHECKS_PER_STEP)
    counted: Counter[str] = Counter()
    for machine in console.services.groups.machines():
        for group_id in machine.all_ids():
            if caller.may(rights.DESCRIBE_GROUP, group_id):
                counted.update(topic for topic, _ in machine.offsets.of_group(group_id))
            if pace.spent():
                yield
    return counted


def _listed(
    console: Console, caller: Caller, names: Sequence[str], asked: TopicListing
) -> Steps[shapes.Rows[TopicRow]]:
    """Topics from number `asked.offset` on; `total` counts all that the caller may describe."""
    shown = sorted((yield from shapes.chosen(names, partial(caller.may, rights.DESCRIBE_TOPIC))))
    groups = yield from _topic_groups(console, caller)
    first, last = asked.offset, asked.offset + asked.limit
    pace = Pace()
    found = []
    for name in shown[first:last] if asked.order == "name" else shown:
        known = console.services.catalog.topic(name)
        if known is not None:  # It may be deleted between two steps.
            found.append((yield from _numbers(console, known, groups[name], pace)))
    if asked.order != "name":  # A row is made only for the page.
        found = _in_order(found, asked)[first:last]
    rows = [_topic_row(console, each) for each in found]
    return {"total": len(shown), "offset": first, "limit": asked.limit, "rows": rows}


def _in_order(rows: Iterable[Any], asked: TopicListing) -> list[Any]:
    """With the largest number first, if they are not in the order of names."""
    number = itemgetter(asked.order)
    return sorted(rows, key=lambda row: (0 if asked.order == "name" else -number(row), row["name"]))


def _numbers(console: Console, topic: Topic, groups: int, pace: Pace) -> Steps[dict[str, Any]]:
    """The topic, and those of its row by which topics are ordered."""
    services = console.services
    size_bytes = remote_size_bytes = offsets = without_leader = under_replicated = 0
    for index, assigned in enumerate(topic.partitions):
        is_ours = assigned.leader_id == services.node_id
        replica = services.replicas.get((topic.name, index)) if is_ours else None
        if replica is not None and replica.stopped is None:
            size_bytes += replica.log.size_bytes
            remote_size_bytes += _remote_size_bytes(replica)
            offsets += replica.high_watermark - max(replica.log.log_start_offset, 0)
        elif is_ours or assigned.leader_id == NO_LEADER:
            without_leader += 1
        under_replicated += not {*assigned.replicas} <= {*assigned.isr, *assigned.adding}
        if pace.spent(STEP_COST_PARTITION):
            yield
    bytes_in, bytes_out = console.history.topic_rates.get(topic.name, (0.0, 0.0))
    sizes = {"size_bytes": size_bytes, "remote_size_bytes": remote_size_bytes, "offsets": offsets}
    traffic = {"bytes_in": bytes_in, "bytes_out": bytes_out, "groups": groups}
    problems = {"without_leader": without_leader, "under_replicated": under_replicated}
    named = {"topic": topic, "name": topic.name, "partitions": len(topic.partitions)}
    return {**named, **sizes, **traffic, **problems}


def _topic_row(console: Console, numbers: Mapping[str, Any]) -> TopicRow:
    topic = numbers["topic"]
    value = partial(console.services.topics.settings.value, topic.configs)
    return shapes.row_of(
        *(TopicRow, numbers, topic),
        topic_id=str(topic.topic_id),
        replication_factor=len(topic.partitions[0].wanted_replicas),
        trend=console.history.trend(topic.name),
        cleanup_policy=value("cleanup.policy"),
        retention_ms=int(value("retention.ms")),
        retention_bytes=int(value("retention.bytes")),
    )


def _joined_topic(services: Services, answers: Iterable[TopicRow]) -> TopicRow:
    """One topic as some brokers know it; the first of them is this one."""
    rows = list(answers)
    known = services.catalog.topic(rows[0]["name"])
    partitions = () if known is None else known.partitions
    # Each broker counts those without a leader.
    counted = sum(each.leader_id == NO_LEADER for each in partitions) * (len(rows) - 1)
    without_leader = max(0, sum(row["without_leader"] for row in rows) - counted)
    trends = zip_longest(*(row["trend"][::-1] for row in rows), fillvalue=0.0)
    sums: Any = {name: sum(row[name] for row in rows) for name in _SUMMED}
    return {**rows[0], **sums, "without_leader": without_leader, "trend": [*map(sum, trends)][::-1]}


def _joined_topics(
    services: Services, answers: Mapping[int, shapes.Rows[TopicRow]], asked: TopicListing
) -> shapes.Rows[TopicRow]:
    """A listing of topics as some brokers know them; the first of them is this one."""
    by_name: dict[str, list[TopicRow]] = {}
    for row in (row for answer in answers.values() for row in answer["rows"]):
        by_name.setdefault(row["name"], []).append(row)
    rows = _in_order((_joined_topic(services, rows) for rows in by_name.values()), asked)
    if asked.order != "name":
        rows = rows[asked.offset : asked.offset + asked.limit]
    return {**next(iter(answers.values())), "offset": asked.offset, "limit": asked.limit, "rows": rows}


def _joined_partitions(
    _: Services, answers: Mapping[int, shapes.Rows[PartitionRow]], asked: PartitionListing
) -> shapes.Rows[PartitionRow]:
    """Partitions as some brokers know them, each as its leader does; the first of them is this one."""
    own = next(iter(answers.values()))
    all_rows = (row for answer in answers.values() for row in answer["rows"])
    led = {row["partition"]: row for row in all_rows if row["end_offset"] is not None}
    return {**own, "rows": [led.get(row["partition"], row) for row in own["rows"]]}


def partition_row(services: Services, topic: Topic, index: int) -> PartitionRow:
    described, assigned = described_partition(services, topic, index), topic.partitions[index]
    adding = [each for each in assigned.adding if each not in assigned.removing]
    row = partial(
        shapes.row_of, PartitionRow, {"partition": index, "adding_replicas": adding}, described, assigned
    )
    replica = services.replicas.get((topic.name, index))
    if replica is None or replica.stopped is not None:
        return row(dict.fromkeys(PartitionRow.__annotations__))
    producers, remote_bytes = len(replica.log.producers), _remote_size_bytes(replica)
    return row(replica, producers=producers, remote_size_bytes=remote_bytes)


def _remote_size_bytes(replica: Replica) -> int:
    remote = replica.log.remote
    return 0 if remote is None else remote.size_bytes


def existing_topic(services: Services, name: str) -> Topic:
    """Raises ApiError(UNKNOWN_TOPIC_OR_PARTITION)."""
    topic = services.catalog.topic(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!a}")
    return topic


class PartitionListing(shapes.Listing, frozen=True, kw_only=True):
    topic: shapes.TopicName


class NewTopic(shapes.Parameters, frozen=True, kw_only=True):
    name: shapes.TopicName
    partitions: Annotated[
        int, Meta(ge=-1, le=shapes.INT32, description="-1: as the broker's settings say.")
    ] = -1
    replication_factor: Annotated[int, Meta(ge=-1, le=32_767)] = -1
    settings: Annotated[dict[str, str], Meta(description="The topic's own settings.")] = field(
        default_factory=dict
    )


class Purged(shapes.OfTopic, frozen=True, kw_only=True):
    partition: shapes.PartitionNumber | None = None
    """Only this one; else all."""
    before: Annotated[int, Meta(ge=-1, le=shapes.INT64, description="-1: all that is committed.")] = -1


class MorePartitions(shapes.OfTopic, frozen=True, kw_only=True):
    count: Annotated[int, Meta(ge=1, le=shapes.INT32, description="New number of partitions.")]


class PurgedRecords(shapes.OfCluster):
    topic: str
    records: int


class TopicChanged(TypedDict):
    """The name of the topic that was created, changed or deleted."""

    topic: str


@route(
    "GET",
    "/topics",
    spread=Spread(join=_joined_topics, rows=lambda asked: -1 if asked.order == "name" else MOST_JOINED_ROWS),
)
def topics(console: Console, caller: Caller, asked: TopicListing) -> Steps[shapes.Rows[TopicRow]]:
    """Topics by name."""
    wanted = [
        topic.name
        for topic in console.services.catalog.topics()
        if asked.search in topic.name and (asked.internal or not topic.is_internal)
    ]
    return _listed(console, caller, wanted, asked)


@route(
    "GET",
    "/topics/{topic}",
    needs=rights.DESCRIBE_TOPIC,
    spread=Spread(join=lambda services, answers, _: _joined_topic(services, answers.values())),
)
def topic(console: Console, caller: Caller, asked: shapes.OfTopic) -> Steps[TopicRow]:
    """One topic."""
    existing_topic(console.services, asked.topic)
    listed = yield from _listed(console, caller, [asked.topic], TopicListing())
    return listed["rows"][0]


@route(
    "GET", "/topics/{topic}/partitions", needs=rights.DESCRIBE_TOPIC, spread=Spread(join=_joined_partitions)
)
def partitions(console: Console, caller: Caller, asked: PartitionListing) -> Steps[shapes.Rows[PartitionRow]]:
    """The partitions of a topic, with their leaders, replicas and offsets."""
    topic = existing_topic(console.services, asked.topic)
    indexes: Iterable[int] = range(len(topic.partitions))[asked.offset : asked.offset + asked.limit]
    row = partial(partition_row, console.services, topic)
    rows = yield from each(row, indexes, Pace(), STEP_COST_PARTITION)
    return {"total": len(topic.partitions), "offset": asked.offset, "limit": asked.limit, "rows": rows}


async def _change(caller: Caller, api_key: ApiKey, topic: Mapping[str, object]) -> TopicChanged:
    """The answer to a change of one topic. Raises ApiError."""
    await caller.change(api_key, {"topics": [topic], "timeout_ms": _TIMEOUT_MS})
    return {"topic": str(topic["name"])}


@route(
    "POST",
    "/topics",
    needs=rights.whole(rights.CREATE_CLUSTER, rights.CREATE_TOPIC, field="name"),
    logged=ALL,
)
async def create(console: Console, caller: Caller, asked: NewTopic) -> TopicChanged:
    """Create a topic."""
    configs = [{"name": name, "value": value} for name, value in asked.settings.items()]
    replicas = {"num_partitions": asked.partitions, "replication_factor": asked.replication_factor}
    topic = {"name": asked.name, "configs": configs, **replicas}
    return await _change(caller, ApiKey.CREATE_TOPICS, topic)


@route("PUT", "/topics/{topic}/partitions", needs=rights.ALTER_TOPIC, logged=ALL)
async def add_partitions(console: Console, caller: Caller, asked: MorePartitions) -> TopicChanged:
    """Add partitions to a topic."""
    topic = {"name": asked.topic, "count": asked.count, "assignments": None}
    return await _change(caller, ApiKey.CREATE_PARTITIONS, topic)


@route("DELETE", "/topics/{topic}", needs=_DELETES)
async def delete(console: Console, caller: Caller, asked: shapes.OfTopic) -> TopicChanged:
    """Delete a topic with all its records."""
    return await _change(caller, ApiKey.DELETE_TOPICS, {"name": asked.topic})


@route(
    "POST",
    "/topics/{topic}/recreate",
    needs=(_DELETES, rights.whole(rights.CREATE_CLUSTER, rights.CREATE_TOPIC, field="topic")),
)
async def recreate(console: Console, caller: Caller, asked: shapes.OfTopic) -> TopicChanged:
    """Delete a topic with all its records, and create it with the same partitions, replicas and settings."""
    known = existing_topic(console.services, asked.topic)
    again = NewTopic(
        name=known.name,
        partitions=len(known.partitions),
        replication_factor=len(known.partitions[0].wanted_replicas),
        settings=dict(known.configs),
    )
    await delete.handle(console, caller, asked)
    changed: TopicChanged = await create.handle(console, caller, again)
    return changed


def _purged(services: Services, answers: Mapping[int, PurgedRecords], asked: Purged) -> PurgedRecords:
    return {"topic": asked.topic, "records": sum(each["records"] for each in answers.values())}


@route(
    "DELETE", "/topics/{topic}/records", needs=rights.DELETE_TOPIC, logged=ALL, spread=Spread(join=_purged)
)
async def purge(console: Console, caller: Caller, asked: Purged) -> PurgedRecords:
    """Delete the records of partitions, up to an offset, or all that is committed."""
    services = console.services
    indexes = range(len(existing_topic(services, asked.topic).partitions))
    led = [
        each
        for each in (indexes if asked.partition is None else [asked.partition])
        if services.leader_of(asked.topic, each) == services.node_id or each not in indexes
    ]
    starts = {each: start_of(services.replica(asked.topic, each)) for each in led}
    partitions = [{"partition_index": each, "offset": asked.before} for each in led]
    topics = [{"name": asked.topic, "partitions": partitions}]
    answer = await caller.change(ApiKey.DELETE_RECORDS, {"topics": topics, "timeout_ms": _TIMEOUT_MS})
    found = [row for topic in answer["topics"] for row in topic["partitions"]]
    purged = sum(row["low_watermark"] - starts[row["partition_index"]] for row in found)
    return {"topic": asked.topic, "records": purged}
