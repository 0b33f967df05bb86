"""Settings of one listener: `listener.name.inside.ssl.client.auth` is the `ssl.client.auth` of INSIDE.

Owns the syntax of these names. The table marks the settings that a listener may have as `per_listener`, and
those that a mechanism of a listener may have (`listener.name.inside.plain.connections.max.reauth.ms`) as
`per_mechanism` too. Invariant: pure; upper and lower case, `.`, `_` and `-` do not differ in these names, so
the environment can give them (TIDELOG_LISTENER_NAME_INSIDE_SSL_CLIENT_AUTH).

Source: Kafka's ListenerName, KIP-103, KIP-86 (mechanisms).
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tidelog.broker.configuration.sasl_settings import MECHANISMS
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


class Override(NamedTuple):
    """What an outward name means; `mechanism` is empty where it is for all mechanisms of the listener."""

    listener: str
    mechanism: str
    setting: Setting


def override_of(
    name: str, listeners: Sequence[str], settings: Iterable[Setting], source: str = ""
) -> Override:
    """Raises ConfigError."""
    rest = plain(name).removeprefix(PREFIX)
    table = {each.name: each for each in settings if each.extras.get("per_listener")}
    fitting = [setting for setting in table if rest.endswith("." + setting)]
    if not fitting:
        raise unknown_setting(
            name, [f"{PREFIX}{plain(one)}.{each}" for one in listeners for each in table], source
        )
    setting = max(fitting, key=len)
    asked = rest.removesuffix("." + setting)
    is_per_mechanism = bool(table[setting].extras.get("per_mechanism"))
    for listener in listeners:
        for mechanism in ("", *MECHANISMS) if is_per_mechanism else ("",):
            if plain(f"{listener}.{mechanism}").rstrip(".") == asked:
                return Override(listener, mechanism, table[setting])
    origin = f" (from {source})" if source else ""
    raise ConfigError(
        f"{name}{origin} sets {setting} for the listener {asked}, but the listeners are "
        f"{', '.join(listeners)}: use one of these names"
        + (
            f", or one with a mechanism ({', '.join(map(plain, MECHANISMS))}) behind it"
            if is_per_mechanism
            else ""
        )
    )
