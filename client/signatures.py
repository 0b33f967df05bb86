"""The signature that `help` and editors show for a constructor whose keywords come from tables of settings.

Owns the decorator that adds the settings, with their types and defaults, to a class's signature. It does not
change the constructor.
"""

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar

from tidelog.protocol.settings import settings_of

__all__ = ["shows_settings"]

_Class = TypeVar("_Class", bound=type[Any])


def shows_settings(*tables: Any, **defaults: Any) -> Callable[[_Class], _Class]:
    """A decorator. `defaults` override the defaults of the tables."""

    def decorate(shown: _Class) -> _Class:
        _, *declared = signature(shown.__init__).parameters.values()
        own = [each for each in declared if each.kind is not Parameter.VAR_KEYWORD]
        keywords = [
            Parameter(
                each.attribute,
                Parameter.KEYWORD_ONLY,
                default=defaults.get(each.attribute, each.default),
                annotation=table.__annotations__[each.attribute],
            )
            for table in tables
            for each in settings_of(table)
        ]
        shown.__signature__ = Signature([*own, *keywords])
        return shown

    return decorate
