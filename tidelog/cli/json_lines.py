"""A record as one line of JSON: what `consume --json` prints, `produce --json` takes.

Owns the fields and how bytes are written in them: as text if they are UTF-8, otherwise as {"base64": "…"};
null for none. Pure.
"""

import base64
import binascii
import json
from typing import Any, NamedTuple

from tidelog.cli.failures import Failure

_BASE64 = "base64"
_FIELDS = frozenset({"topic", "partition", "offset", "timestamp", "key", "value", "headers"})


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
    Raises Failure, which names the line.
    """
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise Failure(f"line {number} is not JSON: {error}") from None
    unknown = sorted(fields.keys() - _FIELDS) if isinstance(fields, dict) else [type(fields).__name__]
    if unknown:
        raise Failure(
            f"line {number}: expected an object whose fields are among {', '.join(sorted(_FIELDS))}, got "
            f"{unknown[0]}"
        )
    return Line(
        _bytes(fields.get("value"), number),
        _bytes(fields.get("key"), number),
        _headers(fields.get("headers") or (), number),
        _whole(fields, "partition", number),
        _whole(fields, "timestamp", number),
    )


def format_line(record: Any) -> bytes:
    """`record`, as a consumer gives it, in one line."""
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _headers(given: Any, number: int) -> tuple[tuple[str, bytes | None], ...]:
    pairs = list(given.items()) if isinstance(given, dict) else given
    try:
        headers = tuple((name, _bytes(value, number)) for name, value in pairs)
    except (TypeError, ValueError):
        headers = ((None, None),)
    if not all(isinstance(name, str) for name, _ in headers):
        raise Failure(f'line {number}: headers are [["name", "value"], ...] or {{"name": "value"}}')
    return headers


def _whole(fields: dict[str, Any], name: str, number: int) -> int | None:
    value = fields.get(name)
    if value is not None and (type(value) is not int or value < 0):
        raise Failure(f"line {number}: {name}: expected a whole number of at least 0, got {value!r}")
    return value


def _bytes(value: Any, number: int) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, dict) and value.keys() == {_BASE64}:
        try:
            return base64.b64decode(value[_BASE64], validate=True)
        except (TypeError, ValueError, binascii.Error) as error:
            raise Failure(
                f"line {number}: expected text in base64, got {value[_BASE64]!r}: {error}"
            ) from None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _text(data: Any) -> str | dict[str, str] | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return {_BASE64: base64.b64encode(data).decode()}
