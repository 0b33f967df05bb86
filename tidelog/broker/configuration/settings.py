"""The sources of a broker's settings: names with values (`--set`, flags), the environment, a TOML file.

`broker.configuration.broker_config` declares which settings exist. The variable of `log.segment.bytes` is
`TIDELOG_LOG_SEGMENT_BYTES`. Pure but for `read_toml`. pydantic-settings is not used: its import takes longer
than the whole start may take (0.5 s), and its errors name models instead of what to type.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tidelog.broker.configuration.kafka_settings import not_here
from tidelog.protocol.settings import ConfigError, Setting

ENVIRONMENT_PREFIX = "TIDELOG_"
CONFIG_FILE_VARIABLE = "TIDELOG_CONFIG_FILE"
BOOTSTRAP_SERVERS_VARIABLE = "TIDELOG_BOOTSTRAP_SERVERS"
"""Variables of the other commands; they are not settings of a broker."""
_KUBERNETES_HINT = (
    "; Kubernetes sets such variables for a service called tidelog: turn enableServiceLinks off in the pod"
)


def variable_of(name: str) -> str:
    """The environment variable of the setting called `name`: `TIDELOG_LOG_SEGMENT_BYTES`."""
    return ENVIRONMENT_PREFIX + name.replace(".", "_").upper()


def parse_setting(setting: Setting, value: object, source: str = "") -> Any:
    """The value of a broker's setting that came from `source`; choices in upper or lower case, lists with
    commas as in Kafka. Raises ConfigError."""
    origin = f" (from {source})" if source else ""
    hint = _KUBERNETES_HINT if str(value).startswith("tcp://") else ""
    by_lower = {choice.lower(): choice for choice in setting.choices}
    given = by_lower.get(value.strip().lower(), value) if isinstance(value, str) else value
    if setting.is_many and isinstance(given, str):
        given = [item.strip() for item in given.split(",")] if given.strip() else []
    return setting.parse(given, origin=origin + hint)


def entries_of(value: object) -> tuple[str, ...]:
    """The entries of a list in a file, or of a text with commas, without those that are empty."""
    given = value if isinstance(value, tuple | list) else str(value or "").split(",")
    return tuple(filter(None, (str(each).strip() for each in given)))


def list_for(parse: Callable[[tuple[str, ...]], object]) -> Callable[[object], tuple[str, ...]]:
    """The reader of a setting that is a list: its entries as they were given, which `parse` takes. Raises
    ConfigError as `parse` does."""

    def read(value: object) -> tuple[str, ...]:
        entries = entries_of(value)
        parse(entries)
        return entries

    return read


def unknown_setting(name: str, known: Iterable[str], source: str = "") -> ConfigError:
    """The error for an unknown setting: why one of Kafka's is not here, or which one is similar."""
    origin = f" (from {source})" if source else ""
    kafkas = not_here(name.strip().replace("_", "."))
    hint = f": {kafkas}" if kafkas else did_you_mean(name, known) or ": `tidelog config` lists all settings"
    return ConfigError(f"unknown setting {name}{origin}{hint}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message on an unknown setting: the most similar known one, or nothing."""
    close = difflib.get_close_matches(name.replace("_", ".").lower(), list(known), n=1, cutoff=0.6)
    return f": did you mean {close[0]}?" if close else ""


def parse_assignment(text: str) -> tuple[str, str]:
    """`name=value`, as `--set` takes it. Raises ConfigError."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"--set: expected name=value, such as log.segment.bytes=1048576, got {text!r}")
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
