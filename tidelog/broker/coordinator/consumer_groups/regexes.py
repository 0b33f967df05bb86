"""Regular expressions by which members subscribe to topics, in RE2's syntax.

Owns which expressions are accepted, and which topics one of them matches. Invariants: the time of a match
grows linearly with the length of the name, whatever the expression is; a large program is refused; an
expression must match the whole name; internal topics are never matched.

Pure. RE2 is imported with the first expression. Source: KIP-848.
"""

from collections.abc import Iterable
from typing import Any

from tidelog.broker.cluster.catalog import INTERNAL_TOPICS
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.steps import Pace, Steps

MAX_REGEX_CHARACTERS = 4_096
MAX_PROGRAM_BYTES = 64 << 10
"""Bounds the states of an expression, and so the time that one character of a name takes."""
_STATES_PER_ELEMENT = 50


def compiled(regex: str) -> Any:
    """RE2's object for the expression. Raises ApiError(INVALID_REGULAR_EXPRESSION)."""
    import re2

    if len(regex) > MAX_REGEX_CHARACTERS:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"expected a regular expression of at most {MAX_REGEX_CHARACTERS} characters, got {len(regex)}",
        )
    options = re2.Options()
    options.max_mem = MAX_PROGRAM_BYTES
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{regex!r} is not a regular expression in RE2's syntax: {reason}",
        ) from None


def elements_a_match(expression: Any) -> int:
    """As how many elements (see `protocol.steps`) one match of a compiled expression counts."""
    return 1 + int(expression.programsize) // _STATES_PER_ELEMENT


def matching(regex: str, names: Iterable[str]) -> Steps[frozenset[str]]:
    """The names that match, in steps. Raises ApiError(INVALID_REGULAR_EXPRESSION)."""
    expression = compiled(regex)
    elements = elements_a_match(expression)
    pace = Pace()
    found = []
    for name in names:
        if name not in INTERNAL_TOPICS and expression.fullmatch(name):
            found.append(name)
        if pace.spent(elements):
            yield
    return frozenset(found)
