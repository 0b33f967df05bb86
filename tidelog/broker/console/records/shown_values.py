"""Bytes as text, JSON, Avro, Protobuf or hexadecimal digits, cut to what a page can show.

Owns the formats. Invariant: whatever bytes come, the result is text of bounded length that says how long
the bytes are. The text is exact: a page escapes it (`console.rendering`). Pure.
"""

import json
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypedDict

from tidelog.schemas.decoded_values import DecodedValue
from tidelog.schemas.registry import schema_id

MOST_SHOWN_BYTES: Final = 1_024
"""Of one key or value in a list of records."""
MOST_DETAIL_BYTES: Final = 64 * 1024
"""Of one key or value where a single record is shown."""
_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\],:]|[^\s"{}\[\],:]+', re.DOTALL)
"""A string may lack its end: so a text that was cut is read once, not once for each quotation mark."""
_DEEPEST_INDENT: Final = 20


class Format(StrEnum):
    """How keys or values are read. AUTO takes the first that fits: Avro or Protobuf,
    JSON, text, bytes."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    BYTES = "bytes"


class ShownBytes(TypedDict):
    """A key or value as text."""

    format: str
    """How it was read: text, json, avro, protobuf, or bytes as hexadecimal digits."""
    text: str
    size_bytes: int
    """Of all of it, as it is stored."""
    is_truncated: bool
    """Whether `text` is only its beginning."""
    schema_id: int | None
    """The schema that it names in the registry; of bytes that would, if a registry were set."""
    problem: str
    """Why it could not be read as wanted; empty if it could."""


Decode = Callable[[bytes], DecodedValue | None]
"""None for what is not in the wire format. Raises ValueError for what cannot be decoded."""


def not_decoded(data: bytes) -> None:
    """Without a schema registry."""
    return


def shown(
    data: bytes | None,
    wanted: Format = Format.AUTO,
    decode: Decode = not_decoded,
    most_bytes: int = MOST_SHOWN_BYTES,
) -> ShownBytes | None:
    """A key or value; None for none. What cannot be read as wanted is shown as text or bytes."""
    if data is None:
        return None
    problem = ""
    if wanted in (Format.AUTO, Format.AVRO, Format.PROTOBUF):
        try:
            if (found := decode(data)) is not None:
                form = Format(found.type.lower())
                return _shown(form, found.text, len(data), most_bytes, schema_id=found.schema_id)
            if wanted is not Format.AUTO:
                problem = "expected byte 0 and a schema's id, and that console.schema.registry.url is set"
        except ValueError as error:
            problem = str(error)
    named = schema_id(data) if decode is not_decoded and wanted is Format.AUTO else None
    if wanted is not Format.BYTES:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            if not problem and wanted is not Format.AUTO:
                problem = f"expected UTF-8, got something else at byte {error.start}"
        else:
            is_json = False
            if wanted is Format.JSON or (wanted is Format.AUTO and _may_be_json(text, most_bytes)):
                try:
                    json.loads(text)
                    is_json = True
                except (ValueError, RecursionError) as error:
                    problem = problem or (f"expected JSON: {error}" if wanted is Format.JSON else "")
            return _shown(
                Format.JSON if is_json else Format.TEXT, text, len(data), most_bytes, problem, named
            )
    most_digits = most_bytes // 2
    shown_bytes = _shown(Format.BYTES, data[:most_digits].hex(" "), len(data), most_bytes * 2, problem, named)
    return {**shown_bytes, "is_truncated": len(data) > most_digits}


def _may_be_json(text: str, most_bytes: int) -> bool:
    """Only objects and arrays: to most people a number or a word is text. A long one is not parsed for each
    look at a list."""
    return len(text) <= most_bytes and text.lstrip()[:1] in ("{", "[")


def _shown(
    form: Format, text: str, size_bytes: int, most: int, problem: str = "", schema_id: int | None = None
) -> ShownBytes:
    return {
        "format": form.value,
        "text": text[:most],
        "size_bytes": size_bytes,
        "is_truncated": len(text) > most,
        "schema_id": schema_id,
        "problem": problem,
    }


def indented(text: str) -> str:
    """JSON with a line per element. Every token stays as it was sent, so no digit of a number is lost."""
    lines: list[str] = []
    line, depth, previous = "", 0, ""
    for token in _JSON_TOKEN.findall(text):
        closes, was_opened = token in ("}", "]"), previous in ("{", "[")
        depth -= closes
        if previous == "," or closes != was_opened:
            lines.append(line)
            line = "  " * min(depth, _DEEPEST_INDENT)
        line += ": " if token == ":" else token
        depth += token in ("{", "[")
        previous = token
    return "\n".join([*lines, line])
