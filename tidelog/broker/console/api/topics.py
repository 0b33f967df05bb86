"""Topics: listed, described, created, changed and deleted.

Owns the routes and pages of topics. Changes are requests to the handlers of Kafka's APIs. Numbers of a
partition are those of this broker's replica; a partition that another broker leads has none, until the
answers of the brokers are joined. Invariant: what a caller may not DESCRIBE is left out or does not exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from operator import itemgetter
from typing import Annotated, Any, Final, Literal, TypedDict

from msgspec import Meta, field

from tidelog.broker.cluster.catalog import NO_LEADER, Topic
from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.records.stepwise_reading import start_of
from tidelog.broker.console.route import Console, Listing, Page, Parameters, page, route
from tidelog.broker.console.spread import MOST_JOINED_ROWS, Spread
from tidelog.broker.console.views.of_cluster import Listed, OfCluster
from tidelog.broker.handlers.metadata import described_partition
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.security import required_access as rights
from tidelog.broker.security.required_access import whole
from tidelog.broker.services import Services
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps, each

_SUMMED: Final = ("offsets", "size_bytes", "remote_size_bytes", "groups", "bytes_in", "bytes_out")
STEP_COST_PARTITION = 2
"""Describing a partition counts as this many elements (see `protocol.steps`)."""


class TopicRow(OfCluster):
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


class TopicRows(OfCluster, Listed):
    """Topics in the order of their names."""

    rows: list[TopicRow]


class PartitionRow(TypedDict):
    """A partition: who leads it, who holds it, and its numbers, null where its leader did not answer."""

    partition: int
    leader: int
    """-1: nobody."""
    leader_epoch: int
    replicas: list[int]
    in_sync_replicas: list[int]
    adding_replicas: list[int]
    """Those of the replicas that a reassignment adds, and those that it removes."""
    removing_replicas: list[int]
    start_offset: int | None
    last_stable_offset: int | None
    high_watermark: int | None
    end_offset: int | None
    size_bytes: int | None
    remote_size_bytes: int | None
    segments: int | None
    producers: int | None


class PartitionRows(OfCluster, Listed):
    """A page of the partitions of one topic."""

    rows: list[PartitionRow]


class TopicListing(Listing, frozen=True, kw_only=True):
    search: Annotated[str, Meta(max_length=249, description="Part of the name.")] = ""
    internal: Annotated[bool, Meta(description="Whether internal topics are listed.")] = True
    order: Annotated[
        Literal["name", "partitions", "offsets", "size_bytes", "bytes_in", "bytes_out", "groups"],
        Meta(description="By name, or with the largest number first."),
    ] = "name"


def topic_groups(services: Services, may_describe: Callable[[str], bool]) -> Steps[Counter[str]]:
    """How many groups, of those that this broker coordinates, committed offsets of each topic."""
    pace = Pace(CHECKS_PER_STEP)
    counted: Counter[str] = Counter()
    for machine in services.groups.machines():
        for group_id in machine.all_ids():
            if may_describe(group_id):
                counted.update(topic for topic, _ in machine.offsets.of_group(group_id))
            if pace.spent():
                yield
    return counted


def topic_rows(
    services: Services,
    may_describe: Callable[[str], bool],
    may_describe_group: Callable[[str], bool],
    rates: Mapping[str, tuple[float, float]],
    trend: Callable[[str], list[float]],
    names: Iterable[str],
    asked: TopicListing,
) -> Steps[TopicRows]:
    """Topics from number `asked.offset` on; `total` counts all that the caller may describe. `rates` are
    bytes per second, in and out."""
    seen = yield from each(lambda name: name if may_describe(name) else "", names, Pace(CHECKS_PER_STEP))
    shown = sorted(filter(None, seen))
    groups = yield from topic_groups(services, may_describe_group)
    first, last = asked.offset, asked.offset + asked.limit
    pace = Pace()
    rows: list[TopicRow] = []
    for name in shown[first:last] if asked.order == "name" else shown:
        known = services.catalog.topic(name)
        if known is not None:  # It may be deleted between two steps.
            row = yield from topic_row(services, known, pace)
            row["groups"], row["trend"] = groups[name], trend(name)
            row["bytes_in"], row["bytes_out"] = rates.get(name, (0.0, 0.0))
            rows.append(row)
    if asked.order != "name":
        rows = in_order(rows, asked)[first:last]
    return {"total": len(shown), "offset": first, "limit": asked.limit, "rows": rows}


def in_order(rows: Iterable[TopicRow], asked: TopicListing) -> list[TopicRow]:
    """With the largest number first, if they are not in the order of names."""
    number: Any = itemgetter(asked.order)
    return sorted(rows, key=lambda row: (0 if asked.order == "name" else -number(row), row["name"]))


def topic_row(services: Services, topic: Topic, pace: Pace) -> Steps[TopicRow]:
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
    value = partial(services.topics.settings.value, topic.configs)
    return {
        "name": topic.name,
        "topic_id": str(topic.topic_id),
        "is_internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].wanted_replicas),
        "without_leader": without_leader,
        "under_replicated": under_replicated,
        "offsets": offsets,
        "size_bytes": size_bytes,
        "remote_size_bytes": remote_size_bytes,
        "groups": 0,
        "bytes_in": 0.0,
        "bytes_out": 0.0,
        "trend": [],
        "cleanup_policy": value("cleanup.policy"),
        "retention_ms": int(value("retention.ms")),
        "retention_bytes": int(value("retention.bytes")),
    }


def joined_topic(services: Services, rows: Sequence[TopicRow]) -> TopicRow:
    """One topic as some brokers know it; the first of them is this one."""
    known = services.catalog.topic(rows[0]["name"])
    partitions = () if known is None else known.partitions
    # Each broker counts those without a leader.
    counted = sum(each.leader_id == NO_LEADER for each in partitions) * (len(rows) - 1)
    return {
        **rows[0],
        "without_leader": max(0, sum(row["without_leader"] for row in rows) - counted),
        "trend": [sum(each) for each in zip_longest(*(row["trend"][::-1] for row in rows), fillvalue=0.0)][
            ::-1
        ],
        **{name: sum(row[name] for row in rows) for name in _SUMMED},  # type: ignore[typeddict-item]
    }


def joined_topics(services: Services, answers: Sequence[TopicRows], asked: TopicListing) -> TopicRows:
    """A listing of topics as some brokers know them; the first of them is this one."""
    by_name: dict[str, list[TopicRow]] = {}
    for row in (row for answer in answers for row in answer["rows"]):
        by_name.setdefault(row["name"], []).append(row)
    rows = in_order((joined_topic(services, rows) for rows in by_name.values()), asked)
    if asked.order != "name":
        rows = rows[asked.offset : asked.offset + asked.limit]
    return {**answers[0], "offset": asked.offset, "limit": asked.limit, "rows": rows}


def joined_partitions(answers: Sequence[PartitionRows]) -> PartitionRows:
    """Partitions as some brokers know them, each as its leader does; the first of them is this one."""
    led = {
        row["partition"]: row for answer in answers for row in answer["rows"] if row["end_offset"] is not None
    }
    return {**answers[0], "rows": [led.get(row["partition"], row) for row in answers[0]["rows"]]}


def partition_rows(services: Services, topic: Topic, offset: int, limit: int) -> Steps[PartitionRows]:
    """Partitions of a topic from number `offset` on."""
    indexes: Iterable[int] = range(len(topic.partitions))[offset : offset + limit]
    rows = yield from each(partial(partition_row, services, topic), indexes, Pace(), STEP_COST_PARTITION)
    return {"total": len(topic.partitions), "offset": offset, "limit": limit, "rows": rows}


def partition_row(services: Services, topic: Topic, index: int) -> PartitionRow:
    described, assigned = described_partition(services, topic, index), topic.partitions[index]
    row: PartitionRow = {
        "partition": index,
        "leader": described["leader_id"],
        "leader_epoch": described["leader_epoch"],
        "replicas": list(described["replica_nodes"]),
        "in_sync_replicas": list(described["isr_nodes"]),
        "adding_replicas": [each for each in assigned.adding if each not in assigned.removing],
        "removing_replicas": list(assigned.removing),
        "start_offset": None,
        "last_stable_offset": None,
        "high_watermark": None,
        "end_offset": None,
        "size_bytes": None,
        "remote_size_bytes": None,
        "segments": None,
        "producers": None,
    }
    replica = services.replicas.get((topic.name, index))
    if replica is not None and replica.stopped is None:
        ends, log = replica.ends, replica.log
        row["start_offset"] = log.log_start_offset
        row["last_stable_offset"] = ends.last_stable
        row["high_watermark"] = ends.high_watermark
        row["end_offset"] = ends.end
        row["size_bytes"] = log.size_bytes
        row["remote_size_bytes"] = _remote_size_bytes(replica)
        row["segments"] = log.segment_count
        row["producers"] = len(log.producers)
    return row


def _remote_size_bytes(replica: Replica) -> int:
    remote = replica.log.remote
    return 0 if remote is None else remote.size_bytes


def existing_topic(services: Services, name: str) -> Topic:
    """Raises ApiError(UNKNOWN_TOPIC_OR_PARTITION)."""
    topic = services.catalog.topic(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!a}")
    return topic


_INT32: Final = 2**31 - 1
_TIMEOUT_MS: Final = 30_000
TopicName = Annotated[str, Meta(min_length=1, max_length=249, description="Name of a topic.")]


class OfTopic(Parameters, frozen=True, kw_only=True):
    topic: TopicName


class PartitionListing(Listing, frozen=True, kw_only=True):
    topic: TopicName


class NewTopic(Parameters, frozen=True, kw_only=True):
    name: TopicName
    partitions: Annotated[int, Meta(ge=-1, le=_INT32, description="-1: as the broker's settings say.")] = -1
    replication_factor: Annotated[int, Meta(ge=-1, le=32_767)] = -1
    settings: Annotated[dict[str, str], Meta(description="The topic's own settings.")] = field(
        default_factory=dict
    )


class Purged(OfTopic, frozen=True, kw_only=True):
    partition: Annotated[int, Meta(ge=0, le=_INT32)] | None = None
    """Only this one; else all."""
    before: Annotated[int, Meta(ge=-1, le=2**63 - 1, description="-1: all that is committed.")] = -1


class MorePartitions(Parameters, frozen=True, kw_only=True):
    topic: TopicName
    count: Annotated[int, Meta(ge=1, le=_INT32, description="New number of partitions.")]


class PurgedRecords(OfCluster):
    """How many offsets were deleted."""

    topic: str
    records: int


class TopicChanged(TypedDict):
    """The name of the topic that was created, changed or deleted."""

    topic: str


@route(
    "GET",
    "/topics",
    spread=Spread(
        join=lambda services, answers, asked: joined_topics(services, list(answers.values()), asked),
        rows=lambda asked: -1 if asked.order == "name" else MOST_JOINED_ROWS,
    ),
)
def topics_route(console: Console, caller: Caller, asked: TopicListing) -> Steps[TopicRows]:
    """Topics by name."""
    wanted = [
        topic.name
        for topic in console.services.catalog.topics()
        if asked.search in topic.name and (asked.internal or not topic.is_internal)
    ]
    return _listed(console, caller, wanted, asked)


def _listed(console: Console, caller: Caller, names: Sequence[str], asked: TopicListing) -> Steps[TopicRows]:
    may_describe, may_describe_group = (
        partial(caller.may, each) for each in (rights.DESCRIBE_TOPIC, rights.DESCRIBE_GROUP)
    )
    rates, trend = console.history.topic_rates, console.history.trend
    return topic_rows(console.services, may_describe, may_describe_group, rates, trend, names, asked)


@route(
    "GET",
    "/topics/{topic}",
    needs=whole(rights.DESCRIBE_TOPIC, field="topic"),
    spread=Spread(join=lambda services, answers, _: joined_topic(services, list(answers.values()))),
)
def one_topic(console: Console, caller: Caller, asked: OfTopic) -> Steps[TopicRow]:
    """One topic."""
    existing_topic(console.services, asked.topic)
    listed = yield from _listed(console, caller, [asked.topic], TopicListing())
    return listed["rows"][0]


@route(
    "GET",
    "/topics/{topic}/partitions",
    needs=whole(rights.DESCRIBE_TOPIC, field="topic"),
    spread=Spread(join=lambda _, answers, asked: joined_partitions(list(answers.values()))),
)
def _partitions(console: Console, caller: Caller, asked: PartitionListing) -> Steps[PartitionRows]:
    """The partitions of a topic, with their leaders, replicas and offsets."""
    topic = existing_topic(console.services, asked.topic)
    return partition_rows(console.services, topic, asked.offset, asked.limit)


@route(
    "POST",
    "/topics",
    needs=whole(rights.CREATE_CLUSTER, rights.CREATE_TOPIC, field="name"),
    logged=("name", "partitions", "replication_factor", "settings"),
)
async def _create(console: Console, caller: Caller, asked: NewTopic) -> TopicChanged:
    """Create a topic."""
    configs = [{"name": name, "value": value} for name, value in asked.settings.items()]
    topic = {
        "name": asked.name,
        "num_partitions": asked.partitions,
        "replication_factor": asked.replication_factor,
        "configs": configs,
    }
    answer = await caller.ask(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout_ms": _TIMEOUT_MS})
    return _changed(asked.name, answer["topics"])


@route("PUT", "/topics/{topic}/partitions", needs=whole(rights.ALTER_TOPIC, field="topic"), logged=("count",))
async def _add_partitions(console: Console, caller: Caller, asked: MorePartitions) -> TopicChanged:
    """Add partitions to a topic."""
    topic = {"name": asked.topic, "count": asked.count, "assignments": None}
    answer = await caller.ask(ApiKey.CREATE_PARTITIONS, {"topics": [topic], "timeout_ms": _TIMEOUT_MS})
    return _changed(asked.topic, answer["results"])


@route("DELETE", "/topics/{topic}", needs=whole(rights.DELETE_CLUSTER, rights.DELETE_TOPIC, field="topic"))
async def _delete(console: Console, caller: Caller, asked: OfTopic) -> TopicChanged:
    """Delete a topic with all its records."""
    topics = [{"name": asked.topic}]
    answer = await caller.ask(ApiKey.DELETE_TOPICS, {"topics": topics, "timeout_ms": _TIMEOUT_MS})
    return _changed(asked.topic, answer["responses"])


@route(
    "POST",
    "/topics/{topic}/recreate",
    needs=(
        whole(rights.DELETE_CLUSTER, rights.DELETE_TOPIC, field="topic"),
        whole(rights.CREATE_CLUSTER, rights.CREATE_TOPIC, field="topic"),
    ),
)
async def _recreate(console: Console, caller: Caller, asked: OfTopic) -> TopicChanged:
    """Delete a topic with all its records, and create it with the same partitions, replicas and settings."""
    known = existing_topic(console.services, asked.topic)
    again = NewTopic(
        name=known.name,
        partitions=len(known.partitions),
        replication_factor=len(known.partitions[0].wanted_replicas),
        settings=dict(known.configs),
    )
    await _delete.handle(console, caller, asked)
    changed: TopicChanged = await _create.handle(console, caller, again)
    return changed


def _purged(services: Services, answers: Mapping[int, PurgedRecords], asked: Purged) -> PurgedRecords:
    return {"topic": asked.topic, "records": sum(each["records"] for each in answers.values())}


@route(
    "DELETE",
    "/topics/{topic}/records",
    needs=whole(rights.DELETE_TOPIC, field="topic"),
    logged=("partition", "before"),
    spread=Spread(join=_purged),
)
async def _purge(console: Console, caller: Caller, asked: Purged) -> PurgedRecords:
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
    answer = await caller.ask(ApiKey.DELETE_RECORDS, {"topics": topics, "timeout_ms": _TIMEOUT_MS})
    found = [row for topic in answer["topics"] for row in topic["partitions"]]
    for row in found:
        check_code(row["error_code"])
    purged = sum(row["low_watermark"] - starts[row["partition_index"]] for row in found)
    return {"topic": asked.topic, "records": purged}


def _changed(topic: str, results: Sequence[Mapping[str, Any]]) -> TopicChanged:
    (result,) = results
    check_code(result["error_code"], result["error_message"])
    return {"topic": topic}


PAGES: Final[Sequence[Page]] = (
    page("/topics", "Topics", "topics", topics=topics_route),
    page("/topics/{topic}/partitions", "Partitions", "topic", topic=one_topic, partitions=_partitions),
)
