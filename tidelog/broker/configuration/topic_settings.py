"""The settings that a topic may have in CreateTopics, AlterConfigs and DescribeConfigs.

Owns the check of a topic's own settings, and their types on the wire. `LogConfig` declares which settings
exist and their bounds. Pure: no I/O, clock or logging. Values are text, as on the wire; lists have commas.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from tidelog.broker.configuration.settings import did_you_mean
from tidelog.broker.storage.log_config import LogConfig
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.settings import ConfigError, Setting, as_text, settings_of

_INT = 2**31 - 1

TOPIC_SETTINGS: Mapping[str, Setting] = {each.name: each for each in settings_of(LogConfig)}


class ConfigType(IntEnum):
    """The type codes of DescribeConfigs responses (v3 and newer)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


def config_type(setting: Setting) -> ConfigType:
    """The type of a setting in DescribeConfigs."""
    if setting.is_many:
        return ConfigType.LIST
    if setting.kind is int:
        return ConfigType.LONG if (setting.high or 0) > _INT else ConfigType.INT
    return {bool: ConfigType.BOOLEAN, float: ConfigType.DOUBLE}.get(setting.kind, ConfigType.STRING)


def documentation_of(setting: Setting) -> str:
    """What a topic's setting means, and why it has no effect, if it has none."""
    reason = setting.extras.get("without_effect")
    return f"{setting.description} Without effect here: {reason}." if reason else setting.description


def check_number_of_settings(count: int, most: int = len(TOPIC_SETTINGS)) -> None:
    """Raise ApiError(INVALID_CONFIG) for more settings than a topic has, before each one is checked."""
    if count > most:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"{count} settings of one resource were given, which has {most}"
        )


def check_setting(name: str, value: str | None) -> str:
    """The value to store. Raises ApiError(INVALID_CONFIG), which says what is wrong with it."""
    setting = TOPIC_SETTINGS.get(name)
    if setting is None:
        hint = did_you_mean(name, TOPIC_SETTINGS)
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}{hint}")
    if value is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
    try:
        return as_text(parse_value(setting, value))
    except ConfigError as error:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {name}: {error}"
        ) from None


def parse_value(setting: Setting, text: str) -> Any:
    """The value that a topic's setting has as text. Raises ConfigError."""
    if setting.is_many:
        stripped = text.strip()
        # As in Kafka, which stores each value once.
        values = dict.fromkeys(each.strip() for each in stripped.split(",")) if stripped else ()
        return setting.parse(tuple(values))
    if setting.kind is bool and text.strip().lower() not in ("true", "false"):
        raise ConfigError(f"{setting.name}: expected true or false, got {text!r}")
    if setting.kind in (int, float) and "_" in text:
        raise ConfigError(f"{setting.name}: expected {setting.expectation()}, got {text!r}")
    return setting.parse(text)


def check_compaction_lags(min_compaction_lag_ms: int, max_compaction_lag_ms: int) -> None:
    """Raise ConfigError if a record could not be compacted before it has to be."""
    if min_compaction_lag_ms > max_compaction_lag_ms:
        raise ConfigError(
            f"min.compaction.lag.ms ({min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({max_compaction_lag_ms})"
        )


def check_together(values: Mapping[str, str], *, has_remote_storage: bool) -> None:
    """Check what no setting shows alone; `values` are all that are in force for a topic.
    `has_remote_storage`: whether the broker has remote.log.storage.system.enable.

    Raises ApiError(INVALID_CONFIG).
    """
    try:
        check_compaction_lags(int(values["min.compaction.lag.ms"]), int(values["max.compaction.lag.ms"]))
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"conflict topic config setting {error}") from None
    if values["remote.storage.enable"] == "true":
        _check_tiered(values, has_remote_storage)


def _check_tiered(values: Mapping[str, str], has_remote_storage: bool) -> None:
    """Raises ApiError(INVALID_CONFIG), as Kafka's LogConfig."""
    if not has_remote_storage:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote"
            " log storage: leave remote.storage.enable at false, or start the brokers with"
            " remote.log.storage.system.enable.",
        )
    if "compact" in values["cleanup.policy"]:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            "Remote log storage is unsupported for the compacted topics: set cleanup.policy=delete, or leave"
            " remote.storage.enable at false.",
        )
    for unit in ("ms", "bytes"):
        local, total = int(values[f"local.retention.{unit}"]), int(values[f"retention.{unit}"])
        if local != -2 and total >= 0 and not 0 <= local <= total:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"local.retention.{unit} ({local}) must not exceed retention.{unit} ({total})",
            )
        lag = int(values[f"remote.copy.lag.{unit}"])
        effective = total if local == -2 else local
        if 0 <= effective < lag:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"remote.copy.lag.{unit} ({lag}) must not exceed local.retention.{unit} ({effective})",
            )


def check_change(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Check a change of all values in force for a topic. Raises ApiError(INVALID_CONFIG)."""
    is_disabled = before["remote.storage.enable"] == "true" != after["remote.storage.enable"]
    if is_disabled and after["remote.log.delete.on.disable"] != "true":
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            "It is invalid to disable remote storage without deleting remote data. To keep it and copy"
            " nothing more, set remote.storage.enable=true,remote.log.copy.disable=true. To delete it, set"
            " remote.storage.enable=false,remote.log.delete.on.disable=true.",
        )
