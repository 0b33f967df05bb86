"""The settings that a topic may have in CreateTopics, AlterConfigs and DescribeConfigs.

Owns the check of a topic's own settings, and their types on the wire. `LogConfig` declares which settings
exist and their bounds. Pure: no I/O, clock or logging. Values are text, as on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from tidelog.broker.storage.log_config import LogConfig
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.settings import ConfigError, Setting, settings_of

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
    if setting.is_many or setting.extras.get("is_list"):
        return ConfigType.LIST
    if setting.kind is bool:
        return ConfigType.BOOLEAN
    if setting.kind is int:
        return ConfigType.LONG if (setting.high or 0) > _INT else ConfigType.INT
    return ConfigType.STRING


def check_number_of_settings(count: int) -> None:
    """Raise ApiError(INVALID_CONFIG) for more settings than a topic has, before each one is checked."""
    if count > len(TOPIC_SETTINGS):
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{count} settings of one topic were given, which has {len(TOPIC_SETTINGS)}",
        )


def check_setting(name: str, value: str | None) -> str:
    """The value to store. Raises ApiError(INVALID_CONFIG), which says what is wrong with it."""
    setting = TOPIC_SETTINGS.get(name)
    if setting is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    if value is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
    try:
        return str(setting.parse(value))
    except ConfigError as error:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {name}: {error}"
        ) from None


def check_settings(configs: Mapping[str, str | None]) -> dict[str, str]:
    """All of a topic's own settings, checked. Raises ApiError(INVALID_CONFIG)."""
    return {name: check_setting(name, value) for name, value in configs.items()}
