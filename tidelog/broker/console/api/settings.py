"""Settings of topics, groups and this broker: every one with its source and meaning, and its changes.

Owns the routes and pages. They need what DescribeConfigs and IncrementalAlterConfigs need; a change is a
request to the handler of the latter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, TypedDict

from msgspec import Meta, field

from tidelog.broker.cluster.catalog import ALL_BROKERS
from tidelog.broker.configuration.broker_settings import ConfigSource, DescribedSetting
from tidelog.broker.configuration.resource_settings import GROUPS
from tidelog.broker.console.api.broker import broker_facts_route
from tidelog.broker.console.api.topics import OfTopic, TopicName, existing_topic, one_topic
from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.route import Console, Page, Parameters, page, route
from tidelog.broker.handlers.configs import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigOperation
from tidelog.broker.security import required_access as rights
from tidelog.broker.security.required_access import whole
from tidelog.protocol.schema import ApiKey

_LOGGED: Final = ("settings", "remove")


class SettingRow(TypedDict):
    """A setting: the value in force, and where that comes from."""

    name: str
    value: str | None
    """null: not set, or secret."""
    source: str
    """As DescribeConfigs names it: DYNAMIC_TOPIC_CONFIG for what was set on the topic itself."""
    is_default: bool
    is_read_only: bool
    """Whether only a start of the broker changes it."""
    default: str | None
    """What holds without the value in force; null: nothing, or secret."""
    documentation: str


class Changed(Parameters, frozen=True, kw_only=True):
    settings: Annotated[dict[str, str], Meta(description="New values.")] = field(default_factory=dict)
    remove: Annotated[list[str], Meta(description="Settings whose own value is removed.")] = field(
        default_factory=list
    )


class ChangedOfTopic(Changed, frozen=True, kw_only=True):
    topic: TopicName


class OfGroup(Parameters, frozen=True, kw_only=True):
    group_id: Annotated[str, Meta(min_length=1)]


class ChangedOfGroup(Changed, frozen=True, kw_only=True):
    group_id: Annotated[str, Meta(min_length=1)]


class ChangedOfBroker(Changed, frozen=True, kw_only=True):
    all_brokers: Annotated[bool, Meta(description="Whether it holds for all brokers.")] = False


def setting_rows(described: Iterable[DescribedSetting]) -> list[SettingRow]:
    """Those that differ from the default first."""
    rows: list[SettingRow] = []
    for each in described:
        others = [synonym.value for synonym in each.synonyms if synonym.source != each.source]
        rows.append(
            {
                "name": each.name,
                "value": each.value,
                "source": each.source.name,
                "is_default": each.source == ConfigSource.DEFAULT_CONFIG,
                "is_read_only": each.is_read_only,
                "default": others[0] if others else each.value,
                "documentation": each.documentation,
            }
        )
    return sorted(rows, key=lambda row: (row["is_default"], row["name"]))


async def _change(caller: Caller, kind: int, name: str, asked: Changed) -> None:
    """Raises ApiError."""
    configs: list[Mapping[str, object]] = [
        {"name": each, "config_operation": ConfigOperation.SET, "value": value}
        for each, value in asked.settings.items()
    ]
    configs += [
        {"name": each, "config_operation": ConfigOperation.DELETE, "value": None} for each in asked.remove
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    (result,) = (await caller.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]}))["responses"]
    check_code(result["error_code"], result["error_message"])


@route("GET", "/topics/{topic}/settings", needs=whole(rights.DESCRIBE_TOPIC_CONFIGS, field="topic"))
async def _of_topic(console: Console, caller: Caller, asked: OfTopic) -> list[SettingRow]:
    """Every setting of a topic, and where its value comes from."""
    topic = existing_topic(console.services, asked.topic)
    return setting_rows(console.services.topics.settings.describe(topic.configs))


@route(
    "PUT", "/topics/{topic}/settings", needs=whole(rights.ALTER_TOPIC_CONFIGS, field="topic"), logged=_LOGGED
)
async def _change_topic(console: Console, caller: Caller, asked: ChangedOfTopic) -> None:
    """Change settings of a topic; the others do not change."""
    await _change(caller, TOPIC_RESOURCE, asked.topic, asked)


@route("GET", "/group/settings", needs=whole(rights.DESCRIBE_GROUP_CONFIGS, field="group_id"))
async def _of_group(console: Console, caller: Caller, asked: OfGroup) -> list[SettingRow]:
    """Every setting of a group, also of one that does not exist yet."""
    own = console.services.catalog.broker_configs.get(GROUPS.key(asked.group_id), {})
    return setting_rows(GROUPS.describe(own, console.services.settings))


@route(
    "PUT",
    "/group/settings",
    needs=whole(rights.ALTER_GROUP_CONFIGS, field="group_id"),
    logged=("group_id", *_LOGGED),
)
async def _change_group(console: Console, caller: Caller, asked: ChangedOfGroup) -> None:
    """Change settings of a group."""
    await _change(caller, GROUPS.number, asked.group_id, asked)


@route("GET", "/broker/settings", needs=whole(rights.DESCRIBE_CLUSTER_CONFIGS))
async def broker_settings_route(console: Console, caller: Caller, asked: Parameters) -> list[SettingRow]:
    """Every setting of this broker."""
    return setting_rows(console.services.settings.describe())


@route("PUT", "/broker/settings", needs=whole(rights.ALTER_CLUSTER_CONFIGS), logged=("all_brokers", "remove"))
async def _change_broker(console: Console, caller: Caller, asked: ChangedOfBroker) -> None:
    """Change settings of this broker, or of all of them, while they run."""
    name = ALL_BROKERS if asked.all_brokers else str(console.services.node_id)
    await _change(caller, BROKER_RESOURCE, name, asked)


PAGES: Final[Sequence[Page]] = (
    page("/topics/{topic}/settings", "Settings", "settings", topic=one_topic, settings=_of_topic),
    page("/groups/settings", "Settings of a group", "settings", is_detail=True, settings=_of_group),
    page(
        "/broker/settings",
        "Settings of this broker",
        "settings",
        is_detail=True,
        broker=broker_facts_route,
        settings=broker_settings_route,
    ),
)
