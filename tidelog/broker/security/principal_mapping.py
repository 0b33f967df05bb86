"""`ssl.principal.mapping.rules`: how the subject of a client's certificate becomes the name of its user.

Owns the syntax, which is Kafka's: rules separated by commas, of which the first that fits counts. DEFAULT
keeps the subject; `RULE:pattern/replacement/` replaces it if the pattern matches all of it, `/L` and `/U` in
lower and upper case. Patterns are RE2's, so that no subject takes long; Java's look-ahead and back references
are refused. Pure.

Source: KIP-371, Kafka's SslPrincipalMapper.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import re2

from tidelog.protocol.settings import ConfigError

SETTING: Final = "ssl.principal.mapping.rules"
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))?\s*(?:,|$)")
_REFERENCE = re.compile(r"\\(.)|\$(\d)|\$\{(\w+)\}")
_CASES: Mapping[str, Callable[[str], str]] = {"": str, "L": str.lower, "U": str.upper}


class _Rule(NamedTuple):
    pattern: Any
    replacement: str
    case: str

    def name(self, subject: str) -> str | None:
        if self.pattern.fullmatch(subject) is None:
            return None
        return _CASES[self.case](self.pattern.sub(self._replaced, subject))

    def _replaced(self, match: Any) -> str:
        def value(reference: re.Match[str]) -> str:
            literal, number, group = reference.groups()
            if literal is not None:
                return str(literal)
            if number is not None and int(number) > self.pattern.groups:
                return reference[0]  # As in Kafka, which escapes such a reference.
            return match[group if number is None else int(number)] or ""

        return _REFERENCE.sub(value, self.replacement)


class PrincipalMapping:
    """Rules in their order. Raises ConfigError for text that is not a list of rules."""

    def __init__(self, rules: str) -> None:
        self._rules: list[_Rule | None] = []
        position = 0
        while position < len(rules):
            match = _RULE.match(rules, position)
            if match is None:
                raise ConfigError(
                    f"{SETTING}: expected DEFAULT and RULE:pattern/replacement/ with L, U or nothing after "
                    f"it, separated by commas, got {rules[position:]!r}"
                )
            position = match.end()
            if match[1]:
                self._rules.append(None)
            elif match[2] is not None:
                self._rules.append(_Rule(_compiled(match[2]), match[3], match[4]))

    def name(self, subject: str) -> str | None:
        """The name of the user with this subject; None if no rule fits."""
        for rule in self._rules:
            name = subject if rule is None else rule.name(subject)
            if name is not None:
                return name
        return None


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error
        raise ConfigError(
            f"{SETTING} has the pattern {pattern!r}, which is not in RE2's syntax: {reason}"
        ) from None
