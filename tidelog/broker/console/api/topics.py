"""Topics: listed, described, created, changed and deleted.

Owns the routes and pages of topics. Changes are requests to the handlers of Kafka's APIs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypedDict

from msgspec import Meta, field

from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.records.stepwise_reading import start_of
from tidelog.broker.console.route import Console, Listing, Page, Parameters, route
from tidelog.broker.console.spread import MOST_JOINED_ROWS, Spread
from tidelog.broker.console.views.of_cluster import OfCluster
from tidelog.broker.console.views.topics import (
    PartitionRows,
    TopicRow,
    TopicRows,
    existing_topic,
    joined_partitions,
    joined_topic,
    joined_topics,
    partition_rows,
    topic_rows,
)
from tidelog.broker.security.required_access import (
    ALTER_TOPIC,
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DELETE_CLUSTER,
    DELETE_TOPIC,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    whole,
)
from tidelog.protocol.schema import ApiKey

if TYPE_CHECKING:
    from tidelog.broker.services import Services

_INT32: Final = 2**31 - 1
_TIMEOUT_MS: Final = 30_000
TopicName = Annotated[str, Meta(min_length=1, max_length=249, description="Name of a topic.")]


class OfTopic(Parameters, frozen=True, kw_only=True):
    topic: TopicName


class TopicListing(Listing, frozen=True, kw_only=True):
    search: Annotated[str, Meta(max_length=249, description="Part of the name.")] = ""
    internal: Annotated[bool, Meta(description="Whether internal topics are listed.")] = True
    order: Annotated[
        Literal["name", "partitions", "offsets", "size_bytes", "bytes_in", "bytes_out", "groups"],
        Meta(description="By name, or with the largest number first."),
    ] = "name"


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
    "/api/v1/topics",
    spread=Spread(
        join=lambda services, answers, asked: joined_topics(services, list(answers.values()), asked),
        rows=lambda asked: -1 if asked.order == "name" else MOST_JOINED_ROWS,
    ),
)
async def topics_route(console: Console, caller: Caller, asked: TopicListing) -> TopicRows:
    """Topics by name."""
    wanted = [
        topic.name
        for topic in console.services.catalog.topics()
        if asked.search in topic.name and (asked.internal or not topic.is_internal)
    ]
    return await _listed(console, caller, wanted, asked)


async def _listed(console: Console, caller: Caller, names: Sequence[str], asked: TopicListing) -> TopicRows:
    may_describe, may_describe_group = (
        partial(caller.may, DESCRIBE_TOPIC),
        partial(caller.may, DESCRIBE_GROUP),
    )
    services, rates = console.services, console.history.topic_rates
    return await services.turns.run(
        topic_rows(services, may_describe, may_describe_group, rates, names, asked)
    )


@route(
    "GET",
    "/api/v1/topics/{topic}",
    needs=(whole(DESCRIBE_TOPIC, field="topic"),),
    spread=Spread(join=lambda services, answers, _: joined_topic(services, list(answers.values()))),
)
async def one_topic(console: Console, caller: Caller, asked: OfTopic) -> TopicRow:
    """One topic."""
    existing_topic(console.services, asked.topic)
    (row,) = (await _listed(console, caller, [asked.topic], TopicListing()))["rows"]
    return row


@route(
    "GET",
    "/api/v1/topics/{topic}/partitions",
    needs=(whole(DESCRIBE_TOPIC, field="topic"),),
    spread=Spread(join=lambda _, answers, asked: joined_partitions(list(answers.values()))),
)
async def _partitions(console: Console, caller: Caller, asked: PartitionListing) -> PartitionRows:
    """The partitions of a topic, with their leaders, replicas and offsets."""
    services = console.services
    topic = existing_topic(services, asked.topic)
    return await services.turns.run(partition_rows(services, topic, asked.offset, asked.limit))


@route(
    "POST",
    "/api/v1/topics",
    needs=(whole(CREATE_CLUSTER, CREATE_TOPIC, field="name"),),
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


@route(
    "PUT", "/api/v1/topics/{topic}/partitions", needs=(whole(ALTER_TOPIC, field="topic"),), logged=("count",)
)
async def _add_partitions(console: Console, caller: Caller, asked: MorePartitions) -> TopicChanged:
    """Add partitions to a topic."""
    topic = {"name": asked.topic, "count": asked.count, "assignments": None}
    answer = await caller.ask(ApiKey.CREATE_PARTITIONS, {"topics": [topic], "timeout_ms": _TIMEOUT_MS})
    return _changed(asked.topic, answer["results"])


@route("DELETE", "/api/v1/topics/{topic}", needs=(whole(DELETE_CLUSTER, DELETE_TOPIC, field="topic"),))
async def _delete(console: Console, caller: Caller, asked: OfTopic) -> TopicChanged:
    """Delete a topic with all its records."""
    topics = [{"name": asked.topic}]
    answer = await caller.ask(ApiKey.DELETE_TOPICS, {"topics": topics, "timeout_ms": _TIMEOUT_MS})
    return _changed(asked.topic, answer["responses"])


def _purged(services: Services, answers: Mapping[int, PurgedRecords], asked: Purged) -> PurgedRecords:
    return {"topic": asked.topic, "records": sum(each["records"] for each in answers.values())}


@route(
    "DELETE",
    "/api/v1/topics/{topic}/records",
    needs=(whole(DELETE_TOPIC, field="topic"),),
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
    found = [each for topic in answer["topics"] for each in topic["partitions"]]
    for each in found:
        check_code(each["error_code"])
    return {
        "topic": asked.topic,
        "records": sum(each["low_watermark"] - starts[each["partition_index"]] for each in found),
    }


def _changed(topic: str, results: Sequence[Mapping[str, Any]]) -> TopicChanged:
    (result,) = results
    check_code(result["error_code"], result["error_message"])
    return {"topic": topic}


PAGES: Final[Sequence[Page]] = (
    Page("/console/topics", "Topics", "topics.html", {"topics": topics_route}),
    Page(
        "/console/topics/{topic}/partitions",
        "Partitions",
        "topic.html",
        {"topic": one_topic, "partitions": _partitions},
    ),
)
