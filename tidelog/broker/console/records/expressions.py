"""Conditions on JSON values, in JMESPath: `total > `100` && starts_with(customer.city, 'B')`.

Owns which parts of the language a filter may use. Invariants: what is left out (functions and selections that
make values larger than the document) is refused, so the time of one evaluation is bounded by the length of
the expression times the size of the value; a value that is not JSON, is too large, or does not fit the
expression does not match. Pure.

Source: jmespath.org/specification.html, with its truth values.
"""

import json
import re
from typing import Any, Final

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions
from jmespath.visitor import Options

MOST_CHARACTERS: Final = 512
MOST_VALUE_BYTES: Final = 256 * 1024
_FUNCTIONS: Final = re.compile(
    "abs|avg|ceil|contains|ends_with|floor|keys|length|max|max_by|min|min_by|not_null|starts_with|sum|to_number|type|values"
)
_GROWING: Final = frozenset(("multi_select_list", "multi_select_dict"))
_OPTIONS: Final = Options(custom_functions=Functions())


class Unusable(ValueError):
    """An expression of JMESPath that a filter may not use."""


class Expression:
    """One condition."""

    def __init__(self, text: str) -> None:
        """Raises ValueError."""
        if len(text) > MOST_CHARACTERS:
            raise ValueError(f"json: expected at most {MOST_CHARACTERS} characters, got {len(text)}")
        try:
            self._compiled = jmespath.compile(text)
            _check(self._compiled.parsed)
        except Unusable:
            raise
        except (JMESPathError, RecursionError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else "too deep"
            raise ValueError(f"json: expected an expression of JMESPath: {reason}") from None

    def matches(self, text: str) -> bool:
        """Whether a value is JSON for which the expression is true: not null, false, nor empty."""
        if len(text) > MOST_VALUE_BYTES:
            return False
        try:
            found = self._compiled.search(json.loads(text), _OPTIONS)
        except (JMESPathError, ValueError, RecursionError, TypeError):
            return False
        return found is not None and found is not False and found not in ("", [], {})


def _check(node: Any) -> None:
    """Raise ValueError for what a filter may not use."""
    kind, name = node["type"], node.get("value")
    if kind in _GROWING or (kind == "function_expression" and not _FUNCTIONS.fullmatch(name)):
        what = f"{name}()" if kind == "function_expression" else "[a, b] and {a: b}"
        raise Unusable(
            f"json: {what} cannot be used in a filter; functions: {_FUNCTIONS.pattern.replace('|', ' ')}"
        )
    for child in node["children"]:
        if isinstance(child, dict):  # Those of a slice are numbers.
            _check(child)
