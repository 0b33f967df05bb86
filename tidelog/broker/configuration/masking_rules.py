"""The rules of console.masking.rules: of which topics the console masks which parts of records.

Owns their form: `orders*:value.customer.email`. A path begins with key, value or headers; `*` in a path
stands for each name, in the pattern of topics for any characters. Pure.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.protocol.settings import ConfigError

_PARTS = ("key", "value", "headers")


class MaskingRule(NamedTuple):
    """A path in the records of the topics whose names match the pattern."""

    topics: str
    path: tuple[str, ...]


def masking_rules(entries: Iterable[str]) -> tuple[MaskingRule, ...]:
    """Raises ConfigError."""
    return tuple(map(_rule, entries))


def _rule(text: str) -> MaskingRule:
    topics, _, path = text.strip().partition(":")
    part, _, rest = path.partition(".")
    names = (part, rest) if part == "headers" and rest else tuple(path.split("."))
    if not topics or names[0] not in _PARTS or "" in names:
        raise ConfigError(
            "console.masking.rules: expected a pattern of topics and a path that begins with key, value or "
            f"headers, such as orders*:value.customer.email or payments:key, got {text!r}"
        )
    return MaskingRule(topics, names)
