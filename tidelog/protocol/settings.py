"""Declared settings: the allowed values, default and meaning of each, and errors that say what to write.

Owns `Setting` and how a table of settings is declared: a frozen dataclass with fields made by `setting`. Its
`__post_init__` calls `hold_checked` if applications create instances. A field is one setting. It declares the
name, type, default, bounds and meaning; all other code reads them there. The outward name of a setting is
Kafka's: the attribute with dots for underscores (`log.segment.bytes`).

Invariant: no message of this module and no repr of a table shows the value of a secret. Pure.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

_TRUE = frozenset(("true", "yes", "on", "1"))
_FALSE = frozenset(("false", "no", "off", "0"))
_WRONG: Final = object()
_KEY = "setting"
HIDDEN: Final = "(hidden)"
"""What is shown in place of a secret."""


class ConfigError(ValueError):
    """An unknown setting or an invalid value. The message is for users."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `kind` is bool, int, float, str, or a class that is created from text (Path).

    `low` and `high` limit a number, `choices` a text. `is_many`: a tuple of such values. `is_optional`: may
    be None. `default` is MISSING if a value is required. `read` replaces all these checks: it returns the
    value, or raises ValueError. `extras` is information for one table only.
    """

    attribute: str
    kind: Any
    default: Any
    description: str
    low: float | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    read: Callable[[Any], Any] | None = None
    is_many: bool = False
    is_optional: bool = False
    is_secret: bool = False
    extras: Mapping[str, Any] = field(default_factory=dict)

    name: str = field(init=False)
    """Kafka's name: `log.segment.bytes`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.attribute.replace("_", "."))

    @property
    def is_required(self) -> bool:
        return self.default is MISSING

    def parse(self, value: object, *, name: str = "", origin: str = "") -> Any:
        """The value from text, or from the setting's own type.

        Raises ConfigError, which calls the setting `name` (else its outward name) and ends with `origin`.
        """
        given = self._from_text(value) if isinstance(value, str) else value
        return self.check(given, name=name or self.name, origin=origin, shown=value)

    def check(self, value: object, *, name: str = "", origin: str = "", shown: object = _WRONG) -> Any:
        """The value, which must be of the setting's own type. Raises ConfigError, which calls the setting
        `name` (else its attribute), shows the value as `shown` and ends with `origin`."""
        if self.read is not None:
            return self.read(value)
        if value is None and self.is_optional:
            return None
        checked = self._many(value) if self.is_many else self._one(value)
        if checked is _WRONG:
            given = value if shown is _WRONG else shown
            held = "the one that was given" if self.is_secret else repr(given)
            raise ConfigError(f"{name or self.attribute}: expected {self.expectation()}, got {held}{origin}")
        return checked

    def expectation(self) -> str:
        """The allowed values in words: "a whole number from 0 to 65535"."""
        one = self._expected_one()
        return f"a list, each item {one}" if self.is_many else one

    def _expected_one(self) -> str:
        if self.choices:
            *others, last = self.choices
            return f"{', '.join(others)} or {last}" if others else last
        kinds = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
        one = kinds.get(self.kind, "a path")
        if self.low is not None and self.high is not None:
            return f"{one} from {self.low} to {self.high}"
        return one if self.low is None else f"{one} of at least {self.low}"

    def _from_text(self, text: str) -> object:
        """The text as a value of the setting's type if possible, else unchanged."""
        stripped = text.strip()
        if self.kind is bool:
            lower = stripped.lower()
            return True if lower in _TRUE else False if lower in _FALSE else text
        if self.kind in (int, float):
            try:
                return self.kind(stripped.replace("_", ""))
            except ValueError:
                return text
        return stripped if self.choices else text

    def _many(self, value: object) -> Any:
        """A single value is a list of one."""
        values = value if isinstance(value, list | tuple) else (value,)
        checked = tuple(self._one(each) for each in values)
        return _WRONG if _WRONG in checked else checked

    def _one(self, value: object) -> Any:
        if self.kind is bool:
            return value if isinstance(value, bool) else _WRONG
        if self.kind in (int, float):
            return self._number(value)
        if self.choices:
            return str(value) if not isinstance(value, bool) and str(value) in self.choices else _WRONG
        if self.kind is str:
            return value if isinstance(value, str) else _WRONG
        return self.kind(value) if isinstance(value, str | self.kind) and str(value) else _WRONG

    def _number(self, value: object) -> Any:
        if isinstance(value, bool) or not isinstance(value, int if self.kind is int else int | float):
            return _WRONG
        is_within = (self.low is None or value >= self.low) and (self.high is None or value <= self.high)
        return self.kind(value) if is_within and math.isfinite(value) else _WRONG


def setting(
    default: Any,
    description: str,
    *,
    low: float | None = None,
    high: int | None = None,
    choices: tuple[str, ...] = (),
    read: Callable[[Any], Any] | None = None,
    secret: bool = False,
    **extras: Any,
) -> Any:
    """A field of a table. MISSING as `default` means that a value is required."""
    declared = {
        "description": description,
        "low": low,
        "high": high,
        "choices": choices,
        "read": read,
        "is_secret": secret,
        "extras": extras,
    }
    return field(default=default, repr=not secret, metadata={_KEY: declared})


int32_setting: Final = partial(setting, low=1, high=2**31 - 1)
"""A field of Kafka's type INT, from 1 on unless `low` is given."""
int64_setting: Final = partial(setting, low=1, high=2**63 - 1)
"""A field of Kafka's type LONG, from 1 on unless `low` is given."""


@cache
def settings_of(table: Any) -> tuple[Setting, ...]:
    """The settings of a table (its class) in the order of their declaration, without its other fields."""
    hints = get_type_hints(table)
    return tuple(
        Setting(attribute=each.name, default=each.default, **_shape(hints[each.name]), **each.metadata[_KEY])
        for each in fields(table)
        if _KEY in each.metadata
    )


def default_of(table: Any, attribute: str) -> Any:
    """The default of one setting of a table."""
    return next(each.default for each in settings_of(table) if each.attribute == attribute)


def hold_checked(instance: Any) -> None:
    """Check every setting of a table's new instance. Raises ConfigError."""
    table: Any = type(instance)
    for each in settings_of(table):
        object.__setattr__(instance, each.attribute, each.check(getattr(instance, each.attribute)))


def as_text(value: object) -> str:
    """A value as in a file or a flag; a list with commas."""
    if isinstance(value, tuple):
        return ",".join(map(as_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def shown(setting: Setting, value: object) -> str:
    """A value as users may see it: of a secret only whether it is set."""
    return HIDDEN if setting.is_secret and value else as_text(value)


def _shape(hint: Any) -> dict[str, Any]:
    """The parts of a setting that follow from its field's type."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = [option for option in options if option is not NoneType]
    is_many = get_origin(kinds[0]) is tuple
    kind = get_args(kinds[0])[0] if is_many else kinds[0]
    return {"kind": kind, "is_many": is_many, "is_optional": len(kinds) < len(options)}
