"""Settings of topics, groups and this broker: every one with its source and meaning, and its changes.

Owns the routes. They need what DescribeConfigs and IncrementalAlterConfigs need; a change is a
request to the handler of the latter.
"""

from collections.abc import Iterable
from typing import Annotated, Final, TypedDict

from msgspec import Meta, field

from tidelog.broker.cluster.catalog import ALL_BROKERS
from tidelog.broker.configuration.broker_settings import ConfigSource, DescribedSetting
from tidelog.broker.configuration.resource_settings import GROUPS
from tidelog.broker.console.api.topics import existing_topic
from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import Console, route
from tidelog.broker.console.shapes import OfTopic, Parameters, TopicName, row_of
from tidelog.broker.handlers.configs import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigOperation
from tidelog.broker.security import required_access as rights
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

    def row(setting: DescribedSetting) -> SettingRow:
        others = [synonym.value for synonym in setting.synonyms if synonym.source != setting.source]
        is_default = setting.source == ConfigSource.DEFAULT_CONFIG
        default = others[0] if others else setting.value
        return row_of(SettingRow, setting, is_default=is_default, default=default)

    return sorted(map(row, described), key=lambda row: (row["is_default"], row["name"]))


async def _change(caller: Caller, kind: int, name: str, asked: Changed) -> None:
    """Raises ApiError."""
    new, old = ConfigOperation.SET, ConfigOperation.DELETE
    changes = [(each, new, value) for each, value in asked.settings.items()]
    configs = [
        {"name": each, "config_operation": operation, "value": value}
        for each, operation, value in (*changes, *((each, old, None) for each in asked.remove))
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    await caller.change(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]})


@route("GET", "/topics/{topic}/settings", needs=rights.DESCRIBE_TOPIC_CONFIGS, name="settings")
async def of_topic(console: Console, caller: Caller, asked: OfTopic) -> list[SettingRow]:
    """Every setting of a topic, and where its value comes from."""
    topic = existing_topic(console.services, asked.topic)
    return setting_rows(console.services.topics.settings.describe(topic.configs))


@route("PUT", "/topics/{topic}/settings", needs=rights.ALTER_TOPIC_CONFIGS, logged=_LOGGED)
async def change_topic(console: Console, caller: Caller, asked: ChangedOfTopic) -> None:
    """Change settings of a topic; the others do not change."""
    await _change(caller, TOPIC_RESOURCE, asked.topic, asked)


@route("GET", "/group/settings", needs=rights.DESCRIBE_GROUP_CONFIGS, name="settings")
async def of_group(console: Console, caller: Caller, asked: OfGroup) -> list[SettingRow]:
    """Every setting of a group, also of one that does not exist yet."""
    own = console.services.catalog.broker_configs.get(GROUPS.key(asked.group_id), {})
    return setting_rows(GROUPS.describe(own, console.services.settings))


@route("PUT", "/group/settings", needs=rights.ALTER_GROUP_CONFIGS, logged=("group_id", *_LOGGED))
async def change_group(console: Console, caller: Caller, asked: ChangedOfGroup) -> None:
    """Change settings of a group."""
    await _change(caller, GROUPS.number, asked.group_id, asked)


@route("GET", "/broker/settings", needs=rights.DESCRIBE_CLUSTER_CONFIGS, name="settings")
async def of_broker(console: Console, caller: Caller, asked: Parameters) -> list[SettingRow]:
    """Every setting of this broker."""
    return setting_rows(console.services.settings.describe())


@route("PUT", "/broker/settings", needs=rights.ALTER_CLUSTER_CONFIGS, logged=("all_brokers", "remove"))
async def change_broker(console: Console, caller: Caller, asked: ChangedOfBroker) -> None:
    """Change settings of this broker, or of all of them, while they run."""
    name = ALL_BROKERS if asked.all_brokers else str(console.services.node_id)
    await _change(caller, BROKER_RESOURCE, name, asked)
