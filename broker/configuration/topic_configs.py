"""What a topic's settings come to: its own, else the broker's, else the default; and the log's by them.

Owns the step from text settings to a LogConfig, and the account of where each value came from.

Invariant: every TopicSetting has a value; one that the broker's configuration names is taken from there.

Pure but for reading the broker's configuration once. Source: Kafka's ConfigHelper and
DescribeConfigsResponse.ConfigSource.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from tidelog.broker.cluster.topic_settings import TOPIC_SETTINGS, ConfigType, TopicSetting, check_settings
from tidelog.broker.configuration.broker_config import BrokerConfig, settings
from tidelog.broker.configuration.settings import Setting
from tidelog.broker.storage.log_config import LogConfig

_INT = 2**31 - 1


class ConfigSource(IntEnum):
    """Where a setting's value comes from, as DescribeConfigs says it."""

    DYNAMIC_TOPIC_CONFIG = 1
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class DescribedSetting(NamedTuple):
    """A setting's value and story; `synonyms` are (name, value, source), the one that holds first."""

    name: str
    value: str
    source: ConfigSource
    type: ConfigType
    documentation: str
    synonyms: tuple[tuple[str, str, ConfigSource], ...]


class TopicConfigs:
    """Checks, describes and applies the settings of topics on one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._broker = {name: _broker_value(config, setting) for name, setting in TOPIC_SETTINGS.items()}

    def check(self, configs: Mapping[str, str | None]) -> dict[str, str]:
        """A topic's own settings, fit to be stored. Raises ApiError(INVALID_CONFIG)."""
        return check_settings(configs)

    def value(self, configs: Mapping[str, str], name: str) -> str:
        """The value in force for a topic with these settings of its own."""
        own = configs.get(name)
        return own if own is not None else self._broker[name][0]

    def describe(self, configs: Mapping[str, str]) -> list[DescribedSetting]:
        """Every setting of a topic with these settings of its own."""
        return [self._describe(setting, configs.get(name)) for name, setting in TOPIC_SETTINGS.items()]

    def _describe(self, setting: TopicSetting, own: str | None) -> DescribedSetting:
        broker_value, broker_source = self._broker[setting.name]
        synonyms = [(setting.broker_name, broker_value, broker_source)]
        if broker_source != ConfigSource.DEFAULT_CONFIG:
            synonyms.append((setting.broker_name, setting.default, ConfigSource.DEFAULT_CONFIG))
        if own is not None:
            synonyms.insert(0, (setting.name, own, ConfigSource.DYNAMIC_TOPIC_CONFIG))
        _, value, source = synonyms[0]
        return DescribedSetting(
            setting.name, value, source, setting.type, setting.documentation, tuple(synonyms)
        )

    def log_config(self, configs: Mapping[str, str], base: LogConfig) -> LogConfig:
        """How a log of a topic with these settings behaves; `base` gives what topics cannot set."""

        def number(name: str) -> int:
            return int(self.value(configs, name))

        return dataclasses.replace(
            base,
            segment_bytes=number("segment.bytes"),
            segment_ms=number("segment.ms"),
            retention_bytes=number("retention.bytes"),
            retention_ms=number("retention.ms"),
            index_interval_bytes=number("index.interval.bytes"),
            max_message_bytes=number("max.message.bytes"),
            message_timestamp_type=self.value(configs, "message.timestamp.type"),
            message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
            message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
            segment_index_bytes=number("segment.index.bytes"),
        )


def _broker_value(config: BrokerConfig, setting: TopicSetting) -> tuple[str, ConfigSource]:
    """The broker's own value of a setting, which follows the default where nobody set it."""
    value = config.topic_defaults().get(setting.name, setting.default)
    is_set = value != setting.default or setting.broker_name.replace(".", "_") in config.sources
    return value, ConfigSource.STATIC_BROKER_CONFIG if is_set else ConfigSource.DEFAULT_CONFIG


def describe_broker(config: BrokerConfig) -> list[DescribedSetting]:
    """The broker's own settings, in the words of DescribeConfigs."""
    described = []
    for setting, held in zip(settings(), config.describe(), strict=True):
        is_set = held.value != held.default or setting.attribute in config.sources
        source = ConfigSource.STATIC_BROKER_CONFIG if is_set else ConfigSource.DEFAULT_CONFIG
        synonyms = [(held.name, held.value, source)]
        if is_set:
            synonyms.append((held.name, held.default, ConfigSource.DEFAULT_CONFIG))
        described.append(
            DescribedSetting(
                held.name, held.value, source, _type_of(setting), held.description, tuple(synonyms)
            )
        )
    return described


def _type_of(setting: Setting) -> ConfigType:
    if setting.kind is bool:
        return ConfigType.BOOLEAN
    if setting.kind is int:
        return ConfigType.LONG if (setting.high or 0) > _INT else ConfigType.INT
    return ConfigType.STRING
