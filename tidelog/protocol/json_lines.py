"""A record as one line of JSON: what `tidelog consume --json` and a console's download give, `tidelog produce
--json` and the console's form take.

Owns the fields and how bytes are written in them: as text if they are UTF-8, otherwise as {"base64": "…"};
null for none. Pure.
"""

import base64
import binascii
import json
from typing import Any, NamedTuple, TypedDict

_BASE64 = "base64"
_FIELDS = frozenset({"topic", "partition", "offset", "timestamp", "key", "value", "headers"})


Text = str | dict[str, str] | None
"""A key or value: text if it is UTF-8, otherwise {"base64": "…"}; null for none."""


class RecordFields(TypedDict):
    """The fields of a line that is printed."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Text
    value: Text
    headers: list[tuple[str, Text]]


class Line(NamedTuple):
    """A record to be sent; `partition` and `timestamp_ms` are None if the line does not have them."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def parse_line(text: bytes, number: int) -> Line:
    """The record in line `number`. A value or key that is neither a string nor {"base64": "…"} is sent as the
    JSON that it is.

    `topic` and `offset` are allowed and ignored, so that the output of `consume --json` can be sent on.
    Raises ValueError, which names the line.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"line {number} is not JSON: {error}") from None
    try:
        return record_of(fields)
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from None


def record_of(fields: object) -> Line:
    """The record in an object of JSON, by the rules of `parse_line`. Raises ValueError."""
    unknown = sorted(fields.keys() - _FIELDS) if isinstance(fields, dict) else [type(fields).__name__]
    if unknown or not isinstance(fields, dict):
        raise ValueError(
            f"expected an object whose fields are among {', '.join(sorted(_FIELDS))}, got {unknown[0]}"
        )
    return Line(
        _bytes(fields.get("value")),
        _bytes(fields.get("key")),
        _headers(fields.get("headers") or ()),
        _whole(fields, "partition"),
        _whole(fields, "timestamp"),
    )


def format_line(record: Any) -> bytes:
    """`record`, as a consumer gives it, in one line."""
    return line_of(record.topic, record.partition, record)


def line_of(topic: str, partition: int, record: Any) -> bytes:
    """`record`, as it is in a batch of this partition, in one line."""
    fields: RecordFields = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [(name, _text(value)) for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _headers(given: Any) -> tuple[tuple[str, bytes | None], ...]:
    pairs = list(given.items()) if isinstance(given, dict) else given
    try:
        headers = [(name, value) for name, value in pairs]
    except (TypeError, ValueError):
        headers = [(None, None)]
    if not all(isinstance(name, str) for name, _ in headers):
        raise ValueError('headers are [["name", "value"], ...] or {"name": "value"}')
    return tuple((name, _bytes(value)) for name, value in headers)


def _whole(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"{name}: expected a whole number of at least 0, got {value!r}")
    return value


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, dict) and value.keys() == {_BASE64}:
        try:
            return base64.b64decode(value[_BASE64], validate=True)
        except (TypeError, ValueError, binascii.Error) as error:
            raise ValueError(f"expected text in base64, got {value[_BASE64]!r}: {error}") from None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _text(data: Any) -> Text:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return {_BASE64: base64.b64encode(data).decode()}
