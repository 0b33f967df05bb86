"""Topics: listed, described, created, changed and deleted.

Owns the routes and pages of topics. Changes are requests to the handlers of Kafka's APIs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, TypedDict

from msgspec import Meta, field

from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.route import ApiRoute, Console, Listing, Page, Parameters
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
    """The topic that was changed."""

    topic: str


async def _topics(console: Console, caller: Caller, asked: TopicListing) -> TopicRows:
    services = console.services
    may_describe = partial(caller.may, DESCRIBE_TOPIC)
    steps = topic_rows(services, may_describe, asked.search, asked.internal, asked.offset, asked.limit)
    return await services.turns.run(steps)


async def _topic(console: Console, caller: Caller, asked: OfTopic) -> TopicRow:
    services = console.services
    return await services.turns.run(topic_row(services, existing_topic(services, asked.topic), Pace()))


async def _partitions(console: Console, caller: Caller, asked: PartitionListing) -> PartitionRows:
    services = console.services
    topic = existing_topic(services, asked.topic)
    return await services.turns.run(partition_rows(services, topic, asked.offset, asked.limit))


async def _settings(console: Console, caller: Caller, asked: OfTopic) -> list[SettingRow]:
    return setting_rows(console.services, existing_topic(console.services, asked.topic))


async def _create(console: Console, caller: Caller, asked: NewTopic) -> TopicChanged:
    configs = [{"name": name, "value": value} for name, value in asked.settings.items()]
    topic = {
        "name": asked.name,
        "num_partitions": asked.partitions,
        "replication_factor": asked.replication_factor,
        "configs": configs,
    }
    answer = await caller.ask(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout_ms": _TIMEOUT_MS})
    return _changed(asked.name, answer["topics"])


async def _change_settings(console: Console, caller: Caller, asked: ChangedSettings) -> TopicChanged:
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


async def _add_partitions(console: Console, caller: Caller, asked: MorePartitions) -> TopicChanged:
    topic = {"name": asked.topic, "count": asked.count, "assignments": None}
    answer = await caller.ask(ApiKey.CREATE_PARTITIONS, {"topics": [topic], "timeout_ms": _TIMEOUT_MS})
    return _changed(asked.topic, answer["results"])


async def _delete(console: Console, caller: Caller, asked: OfTopic) -> TopicChanged:
    topics = [{"name": asked.topic}]
    answer = await caller.ask(ApiKey.DELETE_TOPICS, {"topics": topics, "timeout_ms": _TIMEOUT_MS})
    return _changed(asked.topic, answer["responses"])


def _changed(topic: str, results: Sequence[Mapping[str, Any]]) -> TopicChanged:
    (result,) = results
    check_code(result["error_code"], result["error_message"])
    return {"topic": topic}


TOPICS: Final = ApiRoute(
    *("GET", "/api/v1/topics", _topics, TopicListing, TopicRows, "Topics by name."),
    spread=Spread(join=lambda services, answers, _: joined_topics(services, list(answers.values()))),
)
TOPIC: Final = ApiRoute(
    "GET",
    "/api/v1/topics/{topic}",
    _topic,
    OfTopic,
    TopicRow,
    "One topic.",
    needs=(whole(DESCRIBE_TOPIC, field="topic"),),
    spread=Spread(join=lambda services, answers, _: joined_topic(services, list(answers.values()))),
)
PARTITIONS: Final = ApiRoute(
    "GET",
    "/api/v1/topics/{topic}/partitions",
    _partitions,
    PartitionListing,
    PartitionRows,
    "The partitions of a topic, with their leaders, replicas and offsets.",
    needs=(whole(DESCRIBE_TOPIC, field="topic"),),
    spread=Spread(join=lambda _, answers, asked: joined_partitions(list(answers.values()))),
)
SETTINGS: Final = ApiRoute(
    "GET",
    "/api/v1/topics/{topic}/settings",
    _settings,
    OfTopic,
    list[SettingRow],
    "Every setting of a topic, and where its value comes from.",
    needs=(whole(DESCRIBE_TOPIC_CONFIGS, field="topic"),),
)

ROUTES: Final[Sequence[ApiRoute]] = (
    TOPICS,
    TOPIC,
    PARTITIONS,
    SETTINGS,
    ApiRoute(
        "POST",
        "/api/v1/topics",
        _create,
        NewTopic,
        TopicChanged,
        "Create a topic.",
        needs=(whole(CREATE_CLUSTER, CREATE_TOPIC, field="name"),),
        logged=("name", "partitions", "replication_factor", "settings"),
    ),
    ApiRoute(
        "PUT",
        "/api/v1/topics/{topic}/settings",
        _change_settings,
        ChangedSettings,
        TopicChanged,
        "Change settings of a topic; the others do not change.",
        needs=(whole(ALTER_TOPIC_CONFIGS, field="topic"),),
        logged=("settings", "remove"),
    ),
    ApiRoute(
        "PUT",
        "/api/v1/topics/{topic}/partitions",
        _add_partitions,
        MorePartitions,
        TopicChanged,
        "Add partitions to a topic.",
        needs=(whole(ALTER_TOPIC, field="topic"),),
        logged=("count",),
    ),
    ApiRoute(
        "DELETE",
        "/api/v1/topics/{topic}",
        _delete,
        OfTopic,
        TopicChanged,
        "Delete a topic with all its records.",
        needs=(whole(DELETE_CLUSTER, DELETE_TOPIC, field="topic"),),
    ),
)
PAGES: Final[Sequence[Page]] = (
    Page("/console/topics", "Topics", "topics.html", {"topics": TOPICS}),
    Page("/console/topics/{topic}", "Topic", "topic.html", {"topic": TOPIC, "partitions": PARTITIONS}),
    Page(
        "/console/topics/{topic}/settings",
        "Settings",
        "topic_settings.html",
        {"topic": TOPIC, "settings": SETTINGS},
    ),
)
