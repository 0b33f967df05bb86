"""Kafka's older settings of a broker, in hours and minutes, each of which stands for one in milliseconds.

Owns which these are. Invariant: where one source (file, environment, command line) gives several of them for
one setting, the finest counts, as in Kafka. Pure. Source: Kafka's ServerTopicConfigSynonyms.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.protocol.settings import ConfigError


class _Coarse(NamedTuple):
    stands_for: str
    unit_ms: int


COARSE_SETTINGS: Mapping[str, _Coarse] = {
    "log.retention.minutes": _Coarse("log.retention.ms", 60_000),
    "log.retention.hours": _Coarse("log.retention.ms", 3_600_000),
    "log.roll.hours": _Coarse("log.roll.ms", 3_600_000),
    "log.roll.jitter.hours": _Coarse("log.roll.jitter.ms", 3_600_000),
    "log.flush.scheduler.interval.ms": _Coarse("log.flush.interval.ms", 1),
}
"""By name; of two for one setting the finer is first."""
FINE_SETTINGS = frozenset(each.stands_for for each in COARSE_SETTINGS.values())
"""Settings that have a value in Kafka only if they are set: the default is that of a coarse one."""
BY_COARSE_NAME = " by a coarse name"
"""How a source ends that gives a fine setting by one of the others."""


def in_milliseconds(given: Mapping[str, object], source: str) -> dict[str, object]:
    """The settings of one source, by outward names, without coarse ones. Raises ConfigError."""
    named = {name.strip().replace("_", "."): value for name, value in given.items()}
    result = {name: value for name, value in named.items() if name not in COARSE_SETTINGS}
    for name, (stands_for, unit_ms) in COARSE_SETTINGS.items():
        if name in named and stands_for not in result:
            result[stands_for] = _milliseconds(name, named[name], unit_ms, source)
    return result


def source_of(name: str, given: Mapping[str, object], source: str) -> str:
    """How to name the source of one of the settings that `in_milliseconds` made of `given`."""
    is_named = name not in FINE_SETTINGS or name in {each.strip().replace("_", ".") for each in given}
    return source if is_named else source + BY_COARSE_NAME


def _milliseconds(name: str, value: object, unit_ms: int, source: str) -> int:
    """Every negative number means -1: no limit."""
    try:
        number = int(str(value).strip())
    except ValueError:
        raise ConfigError(f"{name}: expected a whole number, got {value!r} (from {source})") from None
    return number * unit_ms if number >= 0 else -1
