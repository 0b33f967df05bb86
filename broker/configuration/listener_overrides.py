"""Settings of one listener: `listener.name.inside.ssl.client.auth` is the `ssl.client.auth` of INSIDE.

Owns the syntax of these names. The table marks the settings that a listener may have as `per_listener`.
Invariant: pure; upper and lower case, `.`, `_` and `-` do not differ in these names, so the environment can
give them (TIDELOG_LISTENER_NAME_INSIDE_SSL_CLIENT_AUTH). Source: Kafka's ListenerName, KIP-103.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.broker.configuration.settings import unknown_setting, variable_of
from tidelog.protocol.settings import ConfigError, Setting

PREFIX: Final = "listener.name."
_VARIABLE_PREFIX: Final = variable_of(PREFIX)


def is_override(name: str) -> bool:
    """Whether this outward name is for one listener."""
    return plain(name).startswith(PREFIX)


def is_variable(variable: str) -> bool:
    """Whether this variable of the environment is for one listener."""
    return variable.startswith(_VARIABLE_PREFIX)


def name_of(variable: str) -> str:
    """The outward name that a variable of the environment stands for."""
    return PREFIX + plain(variable.removeprefix(_VARIABLE_PREFIX))


def plain(name: str) -> str:
    """The one spelling of a name."""
    return name.strip().lower().replace("_", ".").replace("-", ".")


def override_of(
    name: str, listeners: Sequence[str], settings: Iterable[Setting], source: str = ""
) -> tuple[str, Setting]:
    """The listener and the setting that this outward name means. Raises ConfigError."""
    rest = plain(name).removeprefix(PREFIX)
    table = {each.name: each for each in settings if each.extras.get("per_listener")}
    fitting = [setting for setting in table if rest.endswith("." + setting)]
    if not fitting:
        raise unknown_setting(
            name, [f"{PREFIX}{plain(one)}.{each}" for one in listeners for each in table], source
        )
    setting = max(fitting, key=len)
    asked = rest.removesuffix("." + setting)
    for listener in listeners:
        if plain(listener) == asked:
            return listener, table[setting]
    origin = f" (from {source})" if source else ""
    raise ConfigError(
        f"{name}{origin} sets {setting} for the listener {asked}, but the listeners are "
        f"{', '.join(listeners)}: use one of these names"
    )
