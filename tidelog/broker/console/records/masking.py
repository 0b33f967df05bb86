"""What of records some visitors may not see: rules, and records without what the rules mask.

Owns the rules of `console.masking.rules`. Invariants: a record is masked before anything looks at it, so what
finds, shows or downloads records knows the masked one only; a key or value with a masked field that is not
JSON, or is too large, is masked whole. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from tidelog.broker.configuration.masking_rules import MaskingRule
from tidelog.broker.console.records.shown_values import Decode
from tidelog.broker.console.records.stepwise_reading import Seen

MASK: Final = "***"
MOST_MASKED_BYTES: Final = 1 << 20
_ANY: Final = "*"


class Masks(NamedTuple):
    """What is masked in the records of one topic: paths within keys and values, and names of headers."""

    key: tuple[tuple[str, ...], ...]
    value: tuple[tuple[str, ...], ...]
    headers: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, rules: Iterable[MaskingRule], topic: str) -> Masks | None:
        """None: nothing is masked."""
        paths = [each.path for each in rules if fnmatchcase(topic, each.topics)]
        parts = (tuple(path[1:] for path in paths if path[0] == part) for part in cls._fields)
        return cls(*parts) if paths else None

    def masked(self, record: Seen, decode: Decode) -> Seen:
        """The record as the visitor may see it."""
        headers = tuple(
            (name, MASK.encode() if value is not None and self._hides(name) else value)
            for name, value in record.headers
        )
        key, value = _masked(record.key, self.key, decode), _masked(record.value, self.value, decode)
        return record._replace(key=key, value=value, headers=headers)

    def _hides(self, header: str) -> bool:
        return any(not path or path[0] in (_ANY, header) for path in self.headers)


def _masked(data: bytes | None, paths: tuple[tuple[str, ...], ...], decode: Decode) -> bytes | None:
    if data is None or not paths:
        return data
    if () in paths or len(data) > MOST_MASKED_BYTES:
        return MASK.encode()
    try:
        found = decode(data)
        value = json.loads(data if found is None else found.text)
        for path in paths:
            value = _without(value, path)
        return json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return MASK.encode()


def _without(value: Any, path: tuple[str, ...]) -> Any:
    """The value with a mask for what is at the path; each element of an array has the path of the array."""
    if not path:
        return None if value is None else MASK
    if isinstance(value, list):
        return [_without(each, path) for each in value]
    if isinstance(value, dict):
        wanted = value if path[0] == _ANY else value.keys() & {path[0]}
        return {name: _without(each, path[1:]) if name in wanted else each for name, each in value.items()}
    return MASK if isinstance(value, str) else value
