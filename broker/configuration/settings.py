"""Settings as text: what one may hold, how it is read, and errors that tell a person what to write instead.

Owns `Setting` (type, bounds, description, topic setting that it is the default of) and the three sources:
names with values (`--set`, flags), `TIDELOG_...` environment, a TOML file. Which settings exist is declared
in `broker.configuration.broker_config`, the only caller. Pure but for `read_toml`.

A setting's name is its attribute's with dots for underscores, its variable the same in capitals. Plain
Python rather than pydantic-settings: importing that takes longer than the whole start may take (issue: ready
in 0.5 s), and its errors speak of models, not of what to type.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENVIRONMENT_PREFIX = "TIDELOG_"
CONFIG_FILE_VARIABLE = "TIDELOG_CONFIG_FILE"
BOOTSTRAP_SERVERS_VARIABLE = "TIDELOG_BOOTSTRAP_SERVERS"
"""Read by the other commands; whoever sets it means no setting of a broker."""
_KUBERNETES_HINT = (
    "; Kubernetes sets such variables for a service called tidelog: turn enableServiceLinks off in the pod"
)
_TRUE = frozenset(("true", "yes", "on", "1"))
_FALSE = frozenset(("false", "no", "off", "0"))


class ConfigError(ValueError):
    """A setting that does not exist or a value that it cannot hold; the message is meant for a terminal."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `kind` is bool, int, str or Path; `low` and `high` bound an int; `choices` a str.

    `topic_setting` is the topic's own setting whose default this is ("segment.bytes").
    """

    attribute: str
    kind: type
    default: Any
    description: str
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    topic_setting: str | None = None

    @property
    def name(self) -> str:
        """Kafka's name: `log.segment.bytes`."""
        return self.attribute.replace("_", ".")

    @property
    def variable(self) -> str:
        """The environment variable: `TIDELOG_LOG_SEGMENT_BYTES`."""
        return ENVIRONMENT_PREFIX + self.attribute.upper()

    def parse(self, value: object, source: str = "") -> Any:
        """The value in the setting's type, from text or from that type itself. Raises ConfigError."""
        origin = f" (from {source})" if source else ""
        parsed = self._converted(value)
        if parsed is None:
            hint = _KUBERNETES_HINT if str(value).startswith("tcp://") else ""
            raise ConfigError(f"{self.name} must be {self._expectation()}, not {value!r}{origin}{hint}")
        return parsed

    def _converted(self, value: object) -> Any:
        """The value in the setting's type, or None when it is not one that the setting may hold."""
        if self.kind is bool:
            return _as_bool(value)
        if self.kind is int:
            return self._as_int(value)
        if not isinstance(value, str | Path):
            return None
        if self.kind is Path:
            return Path(value) if str(value) else None
        text = str(value)
        if not self.choices:
            return text
        by_lower = {choice.lower(): choice for choice in self.choices}
        return by_lower.get(text.strip().lower())

    def _as_int(self, value: object) -> int | None:
        if isinstance(value, str):
            try:
                value = int(value.strip().replace("_", ""))
            except ValueError:
                return None
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        too_low = self.low is not None and value < self.low
        too_high = self.high is not None and value > self.high
        return None if too_low or too_high else int(value)

    def _expectation(self) -> str:
        if self.kind is bool:
            return "true or false"
        if self.choices:
            return " or ".join(self.choices)
        if self.kind is not int:
            return "a path" if self.kind is Path else "text"
        if self.low is not None and self.high is not None:
            return f"a whole number from {self.low} to {self.high}"
        return "a whole number" if self.low is None else f"a whole number of at least {self.low}"


def _as_bool(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    text = value.strip().lower() if isinstance(value, str) else ""
    return True if text in _TRUE else False if text in _FALSE else None


def as_text(value: object) -> str:
    """A value as it would be written in a file or a flag."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def unknown_setting(name: str, known: Iterable[str], source: str = "") -> ConfigError:
    """The error for a name that no setting has, with the likeliest one that was meant."""
    origin = f" (from {source})" if source else ""
    close = difflib.get_close_matches(name.replace("_", "."), list(known), n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else "`tidelog config` lists all settings"
    return ConfigError(f"unknown setting {name}{origin}: {hint}")


def parse_assignment(text: str) -> tuple[str, str]:
    """`name=value`, as `--set` takes it. Raises ConfigError."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"--set takes name=value (--set log.segment.bytes=1048576), not {text!r}")
    return name.strip(), value.strip()


def flatten(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Nested TOML tables as dotted names: `{"log": {"roll": {"ms": 1}}}` -> `{"log.roll.ms": 1}`."""
    flat: dict[str, object] = {}
    for key, value in table.items():
        name = prefix + key.replace("_", ".")
        if isinstance(value, Mapping):
            flat.update(flatten(value, name + "."))
        else:
            flat[name] = value
    return flat


def read_toml(path: Path) -> dict[str, object]:
    """The settings of a TOML file by dotted name. Raises ConfigError, also for a file that cannot be read."""
    import tomllib

    try:
        with path.open("rb") as file:
            return flatten(tomllib.load(file))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is not TOML: {error} (write names in quotes where one begins like another: "
            '"max.connections" = 100)'
        ) from None
