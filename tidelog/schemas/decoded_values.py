"""Values that name a schema of a registry, decoded as JSON text.

Owns the schemas that were fetched. A value of Avro or Protobuf is written as JSON, one of JSON Schema is JSON
already.

`fetch` is for the event loop; `decode` may run in a thread.
"""

import asyncio
import json
from collections.abc import Iterable
from datetime import date, datetime, time
from decimal import Decimal
from time import monotonic
from typing import Final, NamedTuple

from tidelog.schemas.avro import AvroSchema, avro_schema, read_value
from tidelog.schemas.protobuf import ProtobufSchema
from tidelog.schemas.registry import (
    AVRO,
    JSON,
    PREFIX_BYTES,
    PROTOBUF,
    RegistryError,
    SchemaRegistry,
    schema_id,
)

_MOST_SCHEMAS: Final = 512
MOST_AT_ONCE: Final = 20
"""New schemas that one look at records asks for."""
_MOST_DECODED_BYTES: Final = 1 << 20
_ASK_AGAIN_SECONDS: Final = 30.0


class DecodedValue(NamedTuple):
    """A value as JSON, with the id and the type of its schema: AVRO, JSON or PROTOBUF."""

    text: str
    schema_id: int
    type: str


class _Known(NamedTuple):
    """A schema of Avro or Protobuf, None for JSON; or why there is none until it is asked for again."""

    schema: AvroSchema | ProtobufSchema | None
    problem: str = ""
    until: float = float("inf")


class DecodedValues:
    """Decodes values with the schemas of one registry, which it fetches and keeps."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._known: dict[int, _Known] = {}

    async def fetch(self, values: Iterable[bytes | None]) -> None:
        """Ask for the schemas that `values` need and that are not known."""
        now = monotonic()
        ids = {found for value in values if (found := schema_id(value)) is not None}
        missing = [each for each in sorted(ids) if each not in self._known or self._known[each].until < now]
        for each in missing[:MOST_AT_ONCE]:
            try:
                known = await self._ask(each)
            except RegistryError as error:
                known = _Known(None, problem=str(error), until=monotonic() + _ASK_AGAIN_SECONDS)
            self._known.pop(each, None)
            if len(self._known) >= _MOST_SCHEMAS:
                del self._known[next(iter(self._known))]
            self._known[each] = known

    async def _ask(self, number: int) -> _Known:
        found = await self._registry.schema(number)
        if found.type == JSON:
            return _Known(None)
        if found.type == PROTOBUF:
            return _Known(await asyncio.to_thread(ProtobufSchema, found.text, found.references))
        if found.type != AVRO:
            raise RegistryError(f"schema {number} is of the type {found.type}, which is not decoded")
        return _Known(avro_schema(found.text, found.references.values()))

    def decode(self, data: bytes) -> DecodedValue | None:
        """A value in the wire format; None for any other value. Raises ValueError."""
        number = schema_id(data)
        if number is None:
            return None
        known = self._known.get(number)
        if known is None:
            raise RegistryError(f"schema {number} was not fetched yet: look again")
        if known.problem:
            raise RegistryError(known.problem)
        if known.schema is None:
            return DecodedValue(data[PREFIX_BYTES:].decode(), number, JSON)
        if len(data) > _MOST_DECODED_BYTES:
            raise ValueError(f"{len(data)} bytes are more than the {_MOST_DECODED_BYTES} that are decoded")
        if isinstance(known.schema, ProtobufSchema):
            return DecodedValue(known.schema.read(data, number), number, PROTOBUF)
        value = read_value(known.schema, data, number, PREFIX_BYTES)
        return DecodedValue(_as_text(value, number), number, AVRO)


def _as_text(value: object, number: int) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=_as_json)
    except (RecursionError, ValueError, TypeError) as error:
        raise ValueError(f"a value of schema {number} cannot be written as JSON: {error}") from None


def _as_json(value: object) -> object:
    """What JSON lacks: bytes as Avro writes them in JSON, numbers and times as their text."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else repr(value)
