"""The settings of groups and of client metrics: named resources that exist by having settings.

Owns which settings each kind has, how they are checked and described, and the name of a resource in
`Catalog.broker_configs`. Values are text, as on the wire. What they mean is in `coordinator` and `telemetry`.

Pure. Source: Kafka's GroupConfig and ClientMetricsConfigs; KIP-714, KIP-848, KIP-1142, KIP-1191.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tidelog.broker.configuration.broker_settings import (
    BrokerSettings,
    ConfigSource,
    DescribedSetting,
    Synonym,
)
from tidelog.broker.configuration.coordinator_settings import CoordinatorSettings
from tidelog.broker.configuration.settings import did_you_mean
from tidelog.broker.configuration.share_settings import ShareSettings
from tidelog.broker.configuration.topic_settings import config_type, parse_value
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.settings import ConfigError, Setting, as_text, int32_setting, setting, settings_of

MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What a pattern of `match` may be about."""
_MOST_PATTERN_CHARACTERS: Final = 1000
_MOST_PROGRAM_BYTES: Final = 64 << 10
_MOST_NAME_CHARACTERS: Final = 255


LATEST: Final = "latest"
_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_UNIT_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


def duration_ms(text: str) -> int | None:
    """Of an ISO 8601 duration as Java reads it: `P3DT2H`. None if it is none."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        return None
    return int(sum(float(value) * _UNIT_MS[unit] for unit, value in found.groupdict().items() if value))


def _reset(value: object) -> str:
    """What share.auto.offset.reset says. Raises ConfigError."""
    text = str(value).lower()
    strategy, _, duration = text.partition(":")
    if text in ("earliest", LATEST) or (strategy == "by_duration" and duration_ms(duration) is not None):
        return text
    raise ConfigError(f"expected earliest, latest or by_duration:<ISO 8601 duration>, got {value!r}")


def _dead_letter_topic(value: object) -> str:
    """Raises ConfigError."""
    name = str(value).strip()
    if name.startswith("__"):
        raise ConfigError("expected a topic that is not internal: its name may not begin with __")
    return name


def _patterns(texts: Sequence[str]) -> tuple[str, ...]:
    """Patterns as `client_id=orders.*`. Raises ConfigError."""
    for text in texts:
        named_pattern(text)
    return tuple(texts)


def named_pattern(text: str) -> tuple[str, Any]:
    """One of MATCHED and a regular expression of RE2, which takes a time in proportion to what it reads.
    Raises ConfigError."""
    import re2

    name, equals, pattern = (each.strip() for each in text.partition("="))
    if name not in MATCHED or not equals or not pattern or len(pattern) > _MOST_PATTERN_CHARACTERS:
        raise ConfigError(
            f"Illegal client matching pattern: {text}: expected one of {', '.join(MATCHED)}, = and a regular "
            f"expression of at most {_MOST_PATTERN_CHARACTERS} characters"
        )
    options = re2.Options()
    options.max_mem = _MOST_PROGRAM_BYTES
    options.log_errors = False
    try:
        return name, re2.compile(pattern, options)
    except re2.error:
        raise ConfigError(f"Illegal client matching pattern: {text}: it is not in RE2's syntax") from None


@dataclass(frozen=True, slots=True)
class ClientMetricsConfig:
    """One resource of client metrics: which clients push which of their metrics, and how often."""

    metrics: tuple[str, ...] = setting(
        (),
        "Beginnings of the names of metrics to push, such as org.apache.kafka.producer. *: all. Empty: none.",
    )
    interval_ms: int = setting(300_000, "How often clients push their metrics.", low=100, high=3_600_000)
    match: tuple[str, ...] = setting(
        (),
        "Which clients push: patterns as client_id=orders.*, of which all must match. Empty: all clients.",
        read=_patterns,
    )


def _of_broker(name: str) -> Any:
    """The setting of a group in place of the broker's setting `name`, which `_check_group` bounds."""
    tables = settings_of(CoordinatorSettings) + settings_of(ShareSettings)
    description = next(each.description for each in tables if each.name == name)
    return int32_setting(None, description, broker_name=name)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings of one group. None: the broker's setting (`broker_name`) holds."""

    consumer_session_timeout_ms: int | None = _of_broker("group.consumer.session.timeout.ms")
    consumer_heartbeat_interval_ms: int | None = _of_broker("group.consumer.heartbeat.interval.ms")

    share_session_timeout_ms: int | None = _of_broker("group.share.session.timeout.ms")
    share_heartbeat_interval_ms: int | None = _of_broker("group.share.heartbeat.interval.ms")
    share_record_lock_duration_ms: int | None = _of_broker("group.share.record.lock.duration.ms")
    share_delivery_count_limit: int | None = _of_broker("group.share.delivery.count.limit")
    share_partition_max_record_locks: int | None = _of_broker("group.share.partition.max.record.locks")
    share_auto_offset_reset: str = setting(
        LATEST,
        "Where a share group begins in a partition: earliest, latest, or by_duration:<ISO 8601 duration>.",
        read=_reset,
    )
    share_isolation_level: str = setting(
        "read_uncommitted",
        "Whether a share group gets records of aborted transactions.",
        choices=("read_uncommitted", "read_committed"),
    )
    share_renew_acknowledge_enable: bool = setting(
        True, "Whether members of a share group may renew the locks of records that they hold."
    )
    errors_deadletterqueue_topic_name: str = setting(
        "",
        "The topic of a share group's dead letters: of records that were rejected, or delivered as often as "
        "the limit says. Empty: there are none.",
        read=_dead_letter_topic,
    )
    errors_deadletterqueue_copy_record_enable: bool = setting(
        False, "Whether dead letters have key, value and headers of their records."
    )


class ResourceKind(NamedTuple):
    """One kind of resource: its number in requests, the beginning of its name in the catalog, its settings,
    and where their values come from in DescribeConfigs."""

    number: int
    prefix: str
    settings: Mapping[str, Setting]
    source: ConfigSource
    unknown: ErrorCode
    """With which code Kafka refuses a setting that does not exist."""

    def key(self, name: str) -> str:
        """The name of a resource in `Catalog.broker_configs`."""
        return self.prefix + name

    def named(self, configs: Mapping[str, Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
        """Name of each resource of this kind -> its settings, by `Catalog.broker_configs`."""
        return {
            key.removeprefix(self.prefix): own for key, own in configs.items() if key.startswith(self.prefix)
        }

    def check(self, name: str, configs: Mapping[str, str | None], broker: BrokerSettings) -> dict[str, str]:
        """The settings to store. Raises ApiError: INVALID_REQUEST, INVALID_CONFIG."""
        if not name or len(name) > _MOST_NAME_CHARACTERS:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"expected a name of 1 to {_MOST_NAME_CHARACTERS} characters, got {len(name)}",
            )
        checked = {key: self._checked(key, value) for key, value in configs.items()}
        if self is GROUPS:
            _check_group(checked, broker)
        return checked

    def _checked(self, name: str, value: str | None) -> str:
        setting = self.settings.get(name)
        if setting is None:
            hint = did_you_mean(name, self.settings)
            raise ApiError(self.unknown, f"Unknown config name: {name}{hint}")
        if value is None:
            raise ApiError(
                ErrorCode.INVALID_CONFIG, f"Null value not supported for {name}: delete it to reset it"
            )
        try:
            return as_text(parse_value(setting, value))
        except ConfigError as error:
            code = self.unknown if setting.low is not None else ErrorCode.INVALID_CONFIG
            raise ApiError(code, f"Invalid value {value} for {name}: {error}") from None

    def describe(self, own: Mapping[str, str], broker: BrokerSettings) -> list[DescribedSetting]:
        """Every setting that a resource may have, with the values that hold without its own."""
        described = []
        for each in self.settings.values():
            broker_name = each.extras.get("broker_name", "")
            synonyms = (
                broker.synonyms(broker_name)
                if broker_name
                else (Synonym(each.name, as_text(each.default), ConfigSource.DEFAULT_CONFIG),)
            )
            if each.name in own:
                synonyms = (Synonym(each.name, own[each.name], self.source), *synonyms)
            described.append(DescribedSetting(each.name, synonyms, config_type(each), each.description))
        return described


def _check_group(configs: Mapping[str, str], broker: BrokerSettings) -> None:
    """Raise ApiError(INVALID_CONFIG) for a value outside the bounds that the broker sets, as Kafka's
    GroupConfig."""
    for name, text in configs.items():
        broker_name = GROUPS.settings[name].extras.get("broker_name")
        if broker_name is None:
            continue
        for bound, is_outside in (("min", int.__lt__), ("max", int.__gt__)):
            limit_name = re.sub(r"^(group\.\w+)\.", rf"\1.{bound}.", broker_name)
            limit = int(broker.synonyms(limit_name)[0].value or 0)
            if is_outside(int(text), limit):
                word = "greater" if bound == "min" else "less"
                raise ApiError(
                    ErrorCode.INVALID_CONFIG,
                    f"{name} ({text}) must be {word} than or equal to {limit_name} ({limit})",
                )
    for kind in ("consumer", "share"):
        session, heartbeat = (
            int(configs.get(f"{kind}.{each}") or broker.synonyms(f"group.{kind}.{each}")[0].value or 0)
            for each in ("session.timeout.ms", "heartbeat.interval.ms")
        )
        if configs and session <= heartbeat:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"{kind}.session.timeout.ms ({session}) must be greater than {kind}.heartbeat.interval.ms"
                f" ({heartbeat})",
            )


CLIENT_METRICS: Final = ResourceKind(
    16,
    "client-metrics:",
    {each.name: each for each in settings_of(ClientMetricsConfig)},
    ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
    ErrorCode.INVALID_REQUEST,
)
GROUPS: Final = ResourceKind(
    32,
    "group:",
    {each.name: each for each in settings_of(GroupConfig)},
    ConfigSource.DYNAMIC_GROUP_CONFIG,
    ErrorCode.INVALID_CONFIG,
)
KINDS: Final[Mapping[int, ResourceKind]] = {each.number: each for each in (CLIENT_METRICS, GROUPS)}
