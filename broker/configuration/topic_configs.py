"""The settings in force for a topic: its own, else the broker's, else the default; and its LogConfig.

Owns the step from text settings to a LogConfig, and the source of each value.

Invariant: every topic setting has a value; one that the broker's configuration names is taken from there.

Pure but for reading the broker's configuration once. Source: Kafka's ConfigHelper and
DescribeConfigsResponse.ConfigSource.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.listeners import in_force
from tidelog.broker.configuration.topic_settings import (
    TOPIC_SETTINGS,
    ConfigType,
    check_setting,
    check_together,
    config_type,
    documentation_of,
    parse_value,
)
from tidelog.broker.storage.log_config import LogConfig
from tidelog.protocol.settings import Setting, as_text, settings_of


class ConfigSource(IntEnum):
    """Where a setting's value comes from, with the codes of DescribeConfigs."""

    DYNAMIC_TOPIC_CONFIG = 1
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class DescribedSetting(NamedTuple):
    """A setting's value and its sources; `synonyms` are (name, value, source), the one in force first."""

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
        """A topic's own settings, checked and ready to be stored. Raises ApiError(INVALID_CONFIG)."""
        checked = {name: check_setting(name, value) for name, value in configs.items()}
        check_together({name: self.value(checked, name) for name in TOPIC_SETTINGS})
        return checked

    def value(self, configs: Mapping[str, str], name: str) -> str:
        """The value in force for a topic with these settings of its own."""
        own = configs.get(name)
        return own if own is not None else self._broker[name][0]

    def describe(self, configs: Mapping[str, str]) -> list[DescribedSetting]:
        """Every setting of a topic with these own settings."""
        return [self._describe(setting, configs.get(name)) for name, setting in TOPIC_SETTINGS.items()]

    def _describe(self, setting: Setting, own: str | None) -> DescribedSetting:
        broker_name = setting.extras["broker_name"]
        broker_value, broker_source = self._broker[setting.name]
        synonyms = [(broker_name or setting.name, broker_value, broker_source)]
        if broker_source != ConfigSource.DEFAULT_CONFIG:
            synonyms.append((broker_name, as_text(setting.default), ConfigSource.DEFAULT_CONFIG))
        if own is not None:
            synonyms.insert(0, (setting.name, own, ConfigSource.DYNAMIC_TOPIC_CONFIG))
        _, value, source = synonyms[0]
        return DescribedSetting(
            setting.name, value, source, config_type(setting), documentation_of(setting), tuple(synonyms)
        )

    def log_config(self, configs: Mapping[str, str], base: LogConfig) -> LogConfig:
        """How a log of a topic with these settings behaves; `base` gives what topics cannot set."""
        values = {
            each.attribute: parse_value(each, self.value(configs, each.name))
            for each in TOPIC_SETTINGS.values()
        }
        return dataclasses.replace(base, **values)


def _broker_value(config: BrokerConfig, setting: Setting) -> tuple[str, ConfigSource]:
    """The broker's own value of a setting, with the default as source if it was not set."""
    default = as_text(setting.default)
    value = config.topic_defaults().get(setting.name, default)
    is_set = value != default or setting.extras["broker_name"].replace(".", "_") in config.sources
    return value, ConfigSource.STATIC_BROKER_CONFIG if is_set else ConfigSource.DEFAULT_CONFIG


def describe_broker(config: BrokerConfig) -> list[DescribedSetting]:
    """The broker's own settings, as DescribeConfigs describes them; listeners as lists, also if the short
    form was set.
    """
    listeners = in_force(config.listener_configs)
    described = []
    for setting, held in zip(settings_of(BrokerConfig), config.describe(), strict=True):
        value = listeners.get(held.name, held.value)
        is_set = value != held.default or setting.attribute in config.sources
        source = ConfigSource.STATIC_BROKER_CONFIG if is_set else ConfigSource.DEFAULT_CONFIG
        synonyms = [(held.name, value, source)]
        if is_set:
            synonyms.append((held.name, held.default, ConfigSource.DEFAULT_CONFIG))
        described.append(
            DescribedSetting(
                held.name, value, source, config_type(setting), held.description, tuple(synonyms)
            )
        )
    return described
