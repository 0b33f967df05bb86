"""The settings that a topic may carry: their Kafka names, types, bounds, broker synonyms and meaning.

Owns what CreateTopics, AlterConfigs and DescribeConfigs may say about a topic. A setting is listed only
if changing it changes what the broker does, or if it has one value that the broker keeps and clients send
(cleanup.policy=delete, compression.type=producer, min.insync.replicas=1).

Pure: no I/O, clock or logging. Values are text, as on the wire. Source: Kafka's TopicConfig and LogConfig.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from tidelog.protocol.errors import ApiError, ErrorCode


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


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """One setting: `broker_name` is the broker setting whose value holds where the topic sets none."""

    name: str
    type: ConfigType
    broker_name: str
    default: str
    documentation: str
    check: Callable[[str], str | None]
    """Returns what is wrong with a value, or None."""


def _between(low: int, high: int) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        try:
            number = int(value)
        except ValueError:
            return "not a number"
        if number < low:
            return f"must be at least {low}"
        return None if number <= high else f"must be at most {high}"

    return check


def _one_of(*values: str, hint: str = "") -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        return None if value.strip() in values else f"must be {' or '.join(values)}{hint}"

    return check


_INT = 2**31 - 1
_LONG = 2**63 - 1

_SETTINGS = (
    TopicSetting(
        "cleanup.policy",
        ConfigType.LIST,
        "log.cleanup.policy",
        "delete",
        "Old segments are deleted by retention.ms and retention.bytes.",
        _one_of("delete", hint="; this broker does not compact"),
    ),
    TopicSetting(
        "compression.type",
        ConfigType.STRING,
        "compression.type",
        "producer",
        "Batches are stored with the compression that the producer chose.",
        _one_of("producer", hint="; this broker never compresses again"),
    ),
    TopicSetting(
        "index.interval.bytes",
        ConfigType.INT,
        "log.index.interval.bytes",
        "4096",
        "How many bytes of batches lie between two entries of the offset index.",
        _between(0, _INT),
    ),
    TopicSetting(
        "max.message.bytes",
        ConfigType.INT,
        "message.max.bytes",
        "1048588",
        "The largest record batch, in bytes, that is accepted.",
        _between(0, _INT),
    ),
    TopicSetting(
        "message.timestamp.after.max.ms",
        ConfigType.LONG,
        "log.message.timestamp.after.max.ms",
        "3600000",
        "How far a producer's timestamp may lie ahead of the broker's clock, in milliseconds.",
        _between(0, _LONG),
    ),
    TopicSetting(
        "message.timestamp.before.max.ms",
        ConfigType.LONG,
        "log.message.timestamp.before.max.ms",
        str(_LONG),
        "How far a producer's timestamp may lie behind the broker's clock, in milliseconds.",
        _between(0, _LONG),
    ),
    TopicSetting(
        "message.timestamp.type",
        ConfigType.STRING,
        "log.message.timestamp.type",
        "CreateTime",
        "Whether records keep the producer's timestamp or get the broker's at append.",
        _one_of("CreateTime", "LogAppendTime"),
    ),
    TopicSetting(
        "min.insync.replicas",
        ConfigType.INT,
        "min.insync.replicas",
        "1",
        "How many replicas must hold a batch before acks=all is answered.",
        _one_of("1", hint="; this cluster keeps one replica"),
    ),
    TopicSetting(
        "retention.bytes",
        ConfigType.LONG,
        "log.retention.bytes",
        "-1",
        "The size in bytes past which a partition's oldest segments are deleted; -1 for no limit.",
        _between(-1, _LONG),
    ),
    TopicSetting(
        "retention.ms",
        ConfigType.LONG,
        "log.retention.ms",
        "604800000",
        "The age in milliseconds past which a segment is deleted; -1 for no limit.",
        _between(-1, _LONG),
    ),
    TopicSetting(
        "segment.bytes",
        ConfigType.INT,
        "log.segment.bytes",
        "1073741824",
        "The size in bytes at which a new segment file is begun.",
        _between(14, _INT),
    ),
    TopicSetting(
        "segment.index.bytes",
        ConfigType.INT,
        "log.index.size.max.bytes",
        "10485760",
        "The size in bytes of an offset index at which a new segment file is begun.",
        _between(4, _INT),
    ),
    TopicSetting(
        "segment.ms",
        ConfigType.LONG,
        "log.roll.ms",
        "604800000",
        "The age in milliseconds at which a new segment file is begun.",
        _between(1, _LONG),
    ),
)

TOPIC_SETTINGS: Mapping[str, TopicSetting] = {setting.name: setting for setting in _SETTINGS}


def check_number_of_settings(count: int) -> None:
    """Raise ApiError(INVALID_CONFIG) for more settings than a topic has, before each is looked at."""
    if count > len(TOPIC_SETTINGS):
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{count} settings of one topic were given, which has {len(TOPIC_SETTINGS)}",
        )


def check_setting(name: str, value: str | None) -> str:
    """The value as it is to be stored. Raises ApiError(INVALID_CONFIG) naming what is wrong with it."""
    setting = TOPIC_SETTINGS.get(name)
    if setting is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    if value is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
    problem = setting.check(value)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {name}: {problem}")
    return value.strip()


def check_settings(configs: Mapping[str, str | None]) -> dict[str, str]:
    """All of a topic's own settings, checked. Raises ApiError(INVALID_CONFIG)."""
    return {name: check_setting(name, value) for name, value in configs.items()}
