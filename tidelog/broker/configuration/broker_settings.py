"""The settings in force on a broker: those of its start, and those that were changed while it runs.

Owns which change is allowed, and which of several values of one setting counts: the one for this broker, then
the one for all brokers, then the one of the start (flags, environment, file), then the default. The table
(`broker_config`) marks what may change at run time as `dynamic`; all else is read-only.

Invariants: `config` holds only values that passed the checks of `BrokerConfig`. A stored value that fails
them (of another release) does not count. No secret may change at run time, so none is in the catalog.

Pure. Source: Kafka's DynamicBrokerConfig and ConfigHelper; KIP-226.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from tidelog.broker.cluster.catalog import ALL_BROKERS
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.configuration.coarse_settings import BY_COARSE_NAME, FINE_SETTINGS
from tidelog.broker.configuration.listeners import in_force
from tidelog.broker.configuration.settings import parse_setting, unknown_setting
from tidelog.broker.configuration.topic_settings import ConfigType, config_type
from tidelog.protocol.errors import ApiError, ErrorCode, again
from tidelog.protocol.settings import ConfigError, Setting, as_text, settings_of

BROKER_SETTINGS: Mapping[str, Setting] = {each.name: each for each in settings_of(BrokerConfig)}


class ConfigSource(IntEnum):
    """Where a setting's value comes from, with the codes of DescribeConfigs."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class Synonym(NamedTuple):
    """A source of a setting, with the value that it gives; `value` None hides a secret. Without `is_listed`
    the value was not given by this name, so DescribeConfigs does not list it."""

    name: str
    value: str | None
    source: ConfigSource
    is_listed: bool = True


class DescribedSetting(NamedTuple):
    """A setting and every value that it was given, the one in force first."""

    name: str
    synonyms: tuple[Synonym, ...]
    type: ConfigType
    documentation: str
    is_read_only: bool = False
    is_secret: bool = False

    @property
    def value(self) -> str | None:
        return self.synonyms[0].value

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source


class BrokerSettings:
    """Holds one broker's settings, and applies changes while it runs; `config` is what holds now."""

    def __init__(self, static: BrokerConfig) -> None:
        """`static`: the settings of the start."""
        self.config = static
        self._static = static
        self._started = {
            each.name: as_text(getattr(static, each.attribute)) for each in BROKER_SETTINGS.values()
        } | in_force(static.listener_configs)
        self._own: Mapping[str, str] = {}
        self._of_all: Mapping[str, str] = {}
        self._followers: list[Callable[[], None]] = []

    def when_changed(self, follower: Callable[[], None]) -> None:
        """Call after each change of `config`."""
        self._followers.append(follower)

    def apply(self, own: Mapping[str, str], of_all: Mapping[str, str]) -> list[ConfigError]:
        """Let these changed settings hold, for this broker and for all. Returns why some of them cannot."""
        errors: list[ConfigError] = []
        if not (own or of_all or self._own or self._of_all):
            return errors
        self._own, self._of_all = _valid(own, errors), _valid(of_all, errors)
        try:
            self.config = self._static.with_settings({**self._of_all, **self._own})
        except ConfigError as error:  # They contradict each other or those of the start.
            errors.append(again(error))
            self._own = self._of_all = {}
            self.config = self._static
        for follower in self._followers:
            follower()
        return errors

    def changed(self, broker: str) -> Mapping[str, str]:
        """The changed settings of this broker or of all, without stored ones that do not count."""
        return self._of_all if broker == ALL_BROKERS else self._own

    def without_effect(self) -> list[str]:
        """The changed settings that this broker only keeps."""
        changed = self._own.keys() | self._of_all.keys()
        return sorted(name for name in changed if BROKER_SETTINGS[name].extras.get("has_no_effect"))

    def check(self, broker: str, configs: Mapping[str, str | None]) -> dict[str, str]:
        """The changed settings of a broker or of all, checked and ready to be stored.

        Raises ApiError: INVALID_REQUEST for read-only ones, as Kafka, INVALID_CONFIG for a bad value.
        """
        fixed = [
            name for name in configs if name in BROKER_SETTINGS and not _is_dynamic(BROKER_SETTINGS[name])
        ]
        if fixed:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Cannot update these configs dynamically: {', '.join(fixed)}; change the broker's flags, "
                "environment or file and restart it",
            )
        try:
            checked = {name: _checked(name, value) for name, value in configs.items()}
            own, of_all = (self._own, checked) if broker == ALL_BROKERS else (checked, self._of_all)
            self._static.with_settings({**of_all, **own})
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
        return checked

    def describe(self) -> list[DescribedSetting]:
        own = [self._described(each, self.synonyms(each.name)) for each in BROKER_SETTINGS.values()]
        for name, each in self._static.overridden().items():
            value = Synonym(
                name, as_text(self._static.listener_overrides[name]), ConfigSource.STATIC_BROKER_CONFIG
            )
            own.append(self._described(each, (value,))._replace(name=name, is_read_only=True))
        return own

    def describe_of_all(self) -> list[DescribedSetting]:
        """The settings that were changed for all brokers."""
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        return [
            self._described(BROKER_SETTINGS[name], (Synonym(name, value, source),))
            for name, value in self._of_all.items()
        ]

    def _described(self, setting: Setting, synonyms: tuple[Synonym, ...]) -> DescribedSetting:
        if setting.is_secret:
            synonyms = tuple(each._replace(value=None) for each in synonyms)
        return DescribedSetting(
            setting.name,
            synonyms,
            config_type(setting),
            setting.description,
            is_read_only=not _is_dynamic(setting),
            is_secret=setting.is_secret,
        )

    def synonyms(self, name: str) -> tuple[Synonym, ...]:
        """Every value that a setting was given, the one in force first; listeners as lists, also if the short
        form was set."""
        setting = BROKER_SETTINGS[name]
        default = as_text(setting.default)
        started = self._started[name]
        is_set = started != default or setting.attribute in self._static.sources
        is_coarse = self._static.sources.get(setting.attribute, "").endswith(BY_COARSE_NAME)
        found = (
            (self._own.get(name), ConfigSource.DYNAMIC_BROKER_CONFIG, True),
            (self._of_all.get(name), ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, True),
            (started if is_set else None, ConfigSource.STATIC_BROKER_CONFIG, not is_coarse),
            (default, ConfigSource.DEFAULT_CONFIG, name not in FINE_SETTINGS),
        )
        return tuple(
            Synonym(name, value, source, is_listed) for value, source, is_listed in found if value is not None
        )


def _is_dynamic(setting: Setting) -> bool:
    return bool(setting.extras.get("dynamic")) and not setting.is_secret


def _checked(name: str, value: str | None) -> str:
    """The value to store. Raises ConfigError."""
    setting = BROKER_SETTINGS.get(name)
    if setting is None:
        raise unknown_setting(name, BROKER_SETTINGS)
    if value is None:
        raise ConfigError(f"{name} needs a value; to reset it, delete it")
    return as_text(parse_setting(setting, value))


def _valid(configs: Mapping[str, str], errors: list[ConfigError]) -> dict[str, str]:
    """Those that may change at run time and are valid; the errors of the others are added to `errors`."""
    valid = {}
    for name, value in configs.items():
        try:
            if name in BROKER_SETTINGS and not _is_dynamic(BROKER_SETTINGS[name]):
                raise ConfigError(f"{name} cannot change at run time")
            valid[name] = _checked(name, value)
        except ConfigError as error:
            errors.append(again(error))
    return valid
