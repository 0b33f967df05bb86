"""Values in Confluent's wire format, decoded with the schemas of the configured registry.

Owns the format (byte 0, the schema's id in four bytes, the Avro data), the schemas that were fetched, and the
requests to the registry. Only the address of `console.schema.registry.url` is ever asked, whatever a record
says, and no redirect is followed.

Invariants: a value that cannot be decoded costs bounded time and memory. So fastavro's reader in Python reads
them: its compiled one ends the process at data that is nested too deeply. Arrays of items that take no bytes
are refused, because a few bytes could announce a billion of them.

`fetch` is for the event loop; `decode` may run in a thread.

Source: Confluent's "Wire format" and Schema Registry API; Avro 1.12.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from io import BytesIO
from time import monotonic
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from tidelog.broker.console.records.shown_values import Decoded, Format

_MAGIC: Final = 0
_PREFIX_BYTES: Final = 5
_MOST_SCHEMAS: Final = 512
_MOST_SCHEMA_BYTES: Final = 1 << 20
_MOST_REFERENCES: Final = 64
_MOST_AT_ONCE: Final = 20
"""New schemas that one look at records asks for."""
_MOST_DECODED_BYTES: Final = 1 << 20
_ASK_AGAIN_SECONDS: Final = 30.0
_TIMEOUT_SECONDS: Final = 5.0


class RegistryError(ValueError):
    """The registry does not have a schema, or not in a form that can be used. The message is for users."""


class _Known(NamedTuple):
    """A schema, or why there is none until it is asked for again."""

    schema: Any
    type: str = "AVRO"
    problem: str = ""
    until: float = float("inf")


def schema_id(data: bytes | None) -> int | None:
    """The id in a value of the wire format; None for any other value."""
    if data is None or len(data) < _PREFIX_BYTES or data[0] != _MAGIC:
        return None
    return int.from_bytes(data[1:_PREFIX_BYTES], "big")


class AvroValues:
    """Decodes Avro values with the schemas of one registry, which it fetches and keeps."""

    def __init__(self, url: str, user_info: str = "") -> None:
        """`user_info` is `user:password` for basic authentication; empty for none."""
        self._url = url.rstrip("/")
        self._user_info = user_info
        self._known: dict[int, _Known] = {}

    async def fetch(self, values: Iterable[bytes | None]) -> None:
        """Ask for the schemas that `values` need and that are not known."""
        now = monotonic()
        ids = {found for value in values if (found := schema_id(value)) is not None}
        missing = [each for each in sorted(ids) if each not in self._known or self._known[each].until < now]
        if not missing:
            return
        from aiohttp import ClientSession, ClientTimeout

        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self._user_info:
            headers["Authorization"] = f"Basic {b64encode(self._user_info.encode()).decode()}"
        async with ClientSession(headers=headers, timeout=ClientTimeout(_TIMEOUT_SECONDS)) as session:
            registry = _Registry(session, self._url)
            for each in missing[:_MOST_AT_ONCE]:
                try:
                    known = await registry.schema(each)
                except RegistryError as error:
                    known = _Known(None, problem=str(error), until=monotonic() + _ASK_AGAIN_SECONDS)
                self._known.pop(each, None)
                if len(self._known) >= _MOST_SCHEMAS:
                    del self._known[next(iter(self._known))]
                self._known[each] = known

    def decode(self, data: bytes) -> Decoded | None:
        """A value in the wire format; None for any other value. Raises ValueError."""
        number = schema_id(data)
        if number is None:
            return None
        known = self._known.get(number)
        if known is None:
            raise RegistryError(f"schema {number} was not fetched yet: look again")
        if known.problem:
            raise RegistryError(known.problem)
        if known.type == "JSON":
            return Decoded(data[_PREFIX_BYTES:].decode(), number, Format.JSON)
        if len(data) > _MOST_DECODED_BYTES:
            raise ValueError(f"{len(data)} bytes are more than the {_MOST_DECODED_BYTES} that are decoded")
        return Decoded(_decoded(data, known.schema, number), number)


def _decoded(data: bytes, schema: Any, number: int) -> str:
    from fastavro._read_py import schemaless_reader

    stream = BytesIO(data)
    stream.seek(_PREFIX_BYTES)
    try:
        value = schemaless_reader(stream, schema)
        text = json.dumps(value, ensure_ascii=False, default=_as_json)
    except RecursionError:
        raise ValueError(f"nested too deeply for schema {number}") from None
    except Exception as error:  # fastavro raises what its parts raise: EOFError, IndexError, KeyError…
        raise ValueError(f"this does not fit schema {number}: {error or type(error).__name__}") from None
    if left := len(data) - stream.tell():
        raise ValueError(f"{left} bytes follow the value of schema {number}")
    return text


def _as_json(value: object) -> object:
    """What JSON lacks: bytes as Avro writes them in JSON, numbers and times as their text."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else repr(value)


class _Registry:
    """The registry's API, over one session."""

    def __init__(self, session: Any, url: str) -> None:
        self._session = session
        self._url = url

    async def schema(self, number: int) -> _Known:
        """A schema by its id, with all that it refers to. Raises RegistryError."""
        answer = await self._ask(f"/schemas/ids/{number}")
        schema_type = answer.get("schemaType", "AVRO")
        if schema_type == "JSON":
            return _Known(None, "JSON")
        if schema_type != "AVRO":
            raise RegistryError(f"schema {number} is of the type {schema_type}, which is not decoded")
        names: dict[str, Any] = {}
        await self._refer(answer, names, {})
        return _Known(_parsed(answer, names))

    async def _refer(self, answer: Mapping[str, Any], names: dict[str, Any], seen: dict[str, None]) -> None:
        """Parse what `answer` refers to, the deepest first, into `names`."""
        for reference in answer.get("references") or ():
            try:
                subject, version = quote(str(reference["subject"]), safe=""), int(reference["version"])
            except (TypeError, KeyError, ValueError):
                raise RegistryError("a schema refers to another without its subject and version") from None
            path = f"/subjects/{subject}/versions/{version}"
            if path in seen:
                continue
            seen[path] = None
            if len(seen) > _MOST_REFERENCES:
                raise RegistryError(f"a schema refers to more than {_MOST_REFERENCES} others")
            referred = await self._ask(path)
            await self._refer(referred, names, seen)
            _parsed(referred, names)

    async def _ask(self, path: str) -> Mapping[str, Any]:
        from aiohttp import ClientError

        url = f"{self._url}{path}"
        try:
            async with self._session.get(url, allow_redirects=False) as answer:
                body = await answer.content.read(_MOST_SCHEMA_BYTES)
                while not answer.content.at_eof() and len(body) < _MOST_SCHEMA_BYTES:
                    body += await answer.content.read(_MOST_SCHEMA_BYTES - len(body))
                status = answer.status
        except (TimeoutError, ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise RegistryError(f"the schema registry does not answer {path}: {reason}") from None
        if status != 200:
            raise RegistryError(f"the schema registry answers {status} to {path}")
        try:
            fields = json.loads(body)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict) or not isinstance(fields.get("schema"), str):
            raise RegistryError(f"the schema registry's answer to {path} has no schema")
        return fields


def _parsed(answer: Mapping[str, Any], names: dict[str, Any]) -> Any:
    """The schema in an answer, parsed for fastavro; its names go into `names`. Raises RegistryError."""
    from fastavro import parse_schema

    try:
        parsed = parse_schema(json.loads(answer["schema"]), named_schemas=names)
        _refuse_endless(parsed, names)
    except RegistryError:
        raise
    except Exception as error:  # fastavro raises what its parts raise.
        raise RegistryError(f"the schema registry's schema is no Avro schema: {error}") from None
    return parsed


def _refuse_endless(schema: Any, names: Mapping[str, Any]) -> None:
    """Raise RegistryError for an array whose items take no bytes."""
    if isinstance(schema, list):
        for branch in schema:
            _refuse_endless(branch, names)
    elif isinstance(schema, dict):
        if schema.get("type") == "array" and _is_empty(schema["items"], names):
            raise RegistryError("the schema has an array of items that take no bytes, which is not decoded")
        for field in schema.get("fields", ()):
            _refuse_endless(field["type"], names)
        for part in ("items", "values", "type"):
            _refuse_endless(schema.get(part), names)


def _is_empty(schema: Any, names: Mapping[str, Any]) -> bool:
    """Whether each value of a schema takes no bytes. A record that holds itself without a union is none."""
    if isinstance(schema, str) and schema in names:
        schema = names[schema]
    if isinstance(schema, dict):
        if schema.get("type") in ("record", "error"):
            return all(_is_empty(field["type"], names) for field in schema["fields"])
        if schema.get("type") == "fixed":
            return bool(schema["size"] == 0)
        return _is_empty(schema.get("type"), names)
    return schema == "null" if isinstance(schema, str) else False
