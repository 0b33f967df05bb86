"""Topics: listed, described, created, changed and deleted.

Owns the routes and pages of topics. Changes are requests to the handlers of Kafka's APIs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, TypedDict

from msgspec import Meta, field

from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.route import Console, Listing, Page, Parameters, route
from tidelog.broker.console.spread import Spread
from tidelog.broker.console.views.topics import (
    PartitionRows,
    SettingRow,
    TopicRow,
    TopicRows,
    existing_topic,
    joined_partitions,
    joined_topic,
    joined_topics,
    partition_rows,
    setting_rows,
    topic_row,
    topic_rows,
)
from tidelog.broker.handlers.configs import TOPIC_RESOURCE, ConfigOperation
from tidelog.broker.security.required_access import (
    ALTER_TOPIC,
    ALTER_TOPIC_CONFIGS,
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DELETE_CLUSTER,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    whole,
)
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import Pace

_INT32: Final = 2**31 - 1
_TIMEOUT_MS: Final = 30_000
TopicName = Annotated[str, Meta(min_length=1, max_length=249, description="Name of a topic.")]


class OfTopic(Parameters, frozen=True, kw_only=True):
    topic: TopicName


class TopicListing(Listing, frozen=True, kw_only=True):
    search: Annotated[str, Meta(max_length=249, description="Part of the name.")] = ""
    internal: Annotated[bool, Meta(description="Whether internal topics are listed.")] = True


class PartitionListing(Listing, frozen=True, kw_only=True):
    topic: TopicName


class NewTopic(Parameters, frozen=True, kw_only=True):
    name: TopicName
    partitions: Annotated[int, Meta(ge=-1, le=_INT32, description="-1: as the broker's settings say.")] = -1
    replication_factor: Annotated[int, Meta(ge=-1, le=32_767)] = -1
    settings: Annotated[dict[str, str], Meta(description="The topic's own settings.")] = field(
        default_factory=dict
    )


class ChangedSettings(Parameters, frozen=True, kw_only=True):
    topic: TopicName
    settings: Annotated[dict[str, str], Meta(description="New values.")] = field(default_factory=dict)
    remove: Annotated[list[str], Meta(description="Settings to reset to the broker's values.")] = field(
        default_factory=list
    )


class MorePartitions(Parameters, frozen=True, kw_only=True):
    topic: TopicName
    count: Annotated[int, Meta(ge=1, le=_INT32, description="New number of partitions.")]


class TopicChanged(TypedDict):
    """The name of the topic that was created, changed or deleted."""

    topic: str


@route(
    "GET",
    "/api/v1/topics",
    spread=Spread(join=lambda services, answers, _: joined_topics(services, list(answers.values()))),
)
async def _topics(console: Console, caller: Caller, asked: TopicListing) -> TopicRows:
    """Topics by name."""
    services = console.services
    may_describe = partial(caller.may, DESCRIBE_TOPIC)
    steps = topic_rows(services, may_describe, asked.search, asked.internal, asked.offset, asked.limit)
    return await services.turns.run(steps)


@route(
    "GET",
    "/api/v1/topics/{topic}",
    needs=(whole(DESCRIBE_TOPIC, field="topic"),),
    spread=Spread(join=lambda services, answers, _: joined_topic(services, list(answers.values()))),
)
async def one_topic(console: Console, caller: Caller, asked: OfTopic) -> TopicRow:
    """One topic."""
    services = console.services
    return await services.turns.run(topic_row(services, existing_topic(services, asked.topic), Pace()))


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


@route("GET", "/api/v1/topics/{topic}/settings", needs=(whole(DESCRIBE_TOPIC_CONFIGS, field="topic"),))
async def _settings(console: Console, caller: Caller, asked: OfTopic) -> list[SettingRow]:
    """Every setting of a topic, and where its value comes from."""
    return setting_rows(console.services, existing_topic(console.services, asked.topic))


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
    "PUT",
    "/api/v1/topics/{topic}/settings",
    needs=(whole(ALTER_TOPIC_CONFIGS, field="topic"),),
    logged=("settings", "remove"),
)
async def _change_settings(console: Console, caller: Caller, asked: ChangedSettings) -> TopicChanged:
    """Change settings of a topic; the others do not change."""
    configs: list[Mapping[str, object]] = [
        {"name": name, "config_operation": ConfigOperation.SET, "value": value}
        for name, value in asked.settings.items()
    ]
    configs += [
        {"name": name, "config_operation": ConfigOperation.DELETE, "value": None} for name in asked.remove
    ]
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": asked.topic, "configs": configs}
    answer = await caller.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]})
    return _changed(asked.topic, answer["responses"])


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


def _changed(topic: str, results: Sequence[Mapping[str, Any]]) -> TopicChanged:
    (result,) = results
    check_code(result["error_code"], result["error_message"])
    return {"topic": topic}


PAGES: Final[Sequence[Page]] = (
    Page("/console/topics", "Topics", "topics.html", {"topics": _topics}),
    Page(
        "/console/topics/{topic}/partitions",
        "Partitions",
        "topic.html",
        {"topic": one_topic, "partitions": _partitions},
    ),
    Page(
        "/console/topics/{topic}/settings",
        "Settings",
        "topic_settings.html",
        {"topic": one_topic, "settings": _settings},
    ),
)
