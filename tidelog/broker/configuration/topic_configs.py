"""The settings in force for a topic: its own, else the broker's, else the default; and its LogConfig.

Owns the step from text settings to a LogConfig, and the source of each value.

Invariant: every topic setting has a value; one that the broker's settings name is taken from there, also
after these changed.

Source: Kafka's ConfigHelper and DescribeConfigsResponse.ConfigSource.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tidelog.broker.configuration.broker_settings import (
    BROKER_SETTINGS,
    BrokerSettings,
    ConfigSource,
    DescribedSetting,
    Synonym,
)
from tidelog.broker.configuration.topic_settings import (
    TOPIC_SETTINGS,
    check_change,
    check_setting,
    check_together,
    config_type,
    documentation_of,
    parse_value,
)
from tidelog.broker.storage.log_config import LogConfig
from tidelog.protocol.settings import Setting, as_text

BROKER_NAMES: Mapping[str, str] = {
    topic_setting: name
    for name, each in BROKER_SETTINGS.items()
    if (topic_setting := each.extras.get("topic_setting")) is not None
}
"""Topic setting -> the broker's setting that holds where a topic does not set it."""


class TopicConfigs:
    """Checks, describes and applies the settings of topics on one broker."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._broker: dict[str, str] = {}
        self._values: dict[str, Any] = {}
        self._inherited: dict[str, DescribedSetting] = {}
        self._take_over()
        settings.when_changed(self._take_over)

    def _take_over(self) -> None:
        """Take the broker's values over, once for all topics: as text, as values and as described."""
        self._inherited = {name: self._describe(each) for name, each in TOPIC_SETTINGS.items()}
        self._broker = {name: str(each.value) for name, each in self._inherited.items()}
        self._values = _values(self._broker)

    def check(
        self, configs: Mapping[str, str | None], before: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """A topic's own settings, checked and ready to be stored; `before` are those of a topic that exists.
        Raises ApiError(INVALID_CONFIG)."""
        checked = {name: check_setting(name, value) for name, value in configs.items()}
        values = self._in_force(checked)
        check_together(values, has_remote_storage=self._settings.config.remote_log_storage_system_enable)
        if before is not None:
            check_change(self._in_force(before), values)
        return checked

    def _in_force(self, configs: Mapping[str, str]) -> dict[str, str]:
        return {name: self.value(configs, name) for name in TOPIC_SETTINGS}

    def value(self, configs: Mapping[str, str], name: str) -> str:
        """The value in force for a topic with these settings of its own."""
        own = configs.get(name)
        return own if own is not None else self._broker[name]

    def describe(self, configs: Mapping[str, str]) -> list[DescribedSetting]:
        """Every setting of a topic with these own settings."""
        return [
            each if name not in configs else _overridden(each, configs[name])
            for name, each in self._inherited.items()
        ]

    def _describe(self, setting: Setting) -> DescribedSetting:
        """A setting that a topic does not have of its own."""
        broker_name = BROKER_NAMES.get(setting.name)
        default = Synonym(setting.name, as_text(setting.default), ConfigSource.DEFAULT_CONFIG)
        synonyms = (default,) if broker_name is None else self._settings.synonyms(broker_name)
        return DescribedSetting(setting.name, synonyms, config_type(setting), documentation_of(setting))

    def log_config(self, configs: Mapping[str, str], base: LogConfig) -> LogConfig:
        """How a log of a topic with these settings behaves; `base` gives what topics cannot set."""
        config = dataclasses.replace(base, **(self._values | _values(configs)))
        if "compact" in config.cleanup_policy:
            # Only closed segments are compacted.
            shortest_ms = min(config.segment_ms, config.max_compaction_lag_ms)
            config = dataclasses.replace(config, segment_ms=shortest_ms)
        return config


def _values(configs: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a LogConfig that these settings give."""
    return {
        each.attribute: parse_value(each, configs[name])
        for name, each in TOPIC_SETTINGS.items()
        if name in configs
    }


def _overridden(inherited: DescribedSetting, own: str) -> DescribedSetting:
    synonym = Synonym(inherited.name, own, ConfigSource.DYNAMIC_TOPIC_CONFIG)
    return inherited._replace(synonyms=(synonym, *inherited.synonyms))
