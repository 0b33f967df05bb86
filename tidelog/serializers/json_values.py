"""JSON of plain values, dataclasses, typed dictionaries, msgspec's structs and pydantic's models; also JSON
that names its JSON Schema in a registry.

pydantic is used only for its own models, so it need not be installed. Source: Confluent's "Wire format".
"""

from __future__ import annotations

import json
from typing import Any, Generic, TypeVar, cast

import msgspec

from tidelog.schemas.registry import (
    JSON,
    PREFIX_BYTES,
    RegisteredSchema,
    SchemaRegistry,
    prefix,
    required_schema_id,
)

T = TypeVar("T")


class JsonSerializer:
    """Writes JSON. Raises TypeError for a value that has none, such as a set or an open file."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode

    def __call__(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if hasattr(value, "model_dump_json"):
            return str(value.model_dump_json()).encode()
        return self._encode(value)


class JsonDeserializer(Generic[T]):
    """Reads JSON as values of one type, and checks them. `type`: what msgspec can decode, or a model of
    pydantic; `Any` takes everything. Raises ValueError that names the part which does not fit."""

    def __init__(self, type: type[T]) -> None:
        validate = getattr(type, "model_validate_json", None)
        self._decode = msgspec.json.Decoder(type).decode if validate is None else validate

    def __call__(self, data: bytes | None) -> T | None:
        return None if data is None else cast("T", self._decode(data))


class JsonSchemaSerializer(Generic[T]):
    """Writes values of one class as JSON. The schema of the class has this id in a registry."""

    def __init__(self, type: type[T], number: int) -> None:
        self._type = type
        self._prefix = prefix(number)
        self._serialize = JsonSerializer()

    @classmethod
    async def register(cls, registry: SchemaRegistry, subject: str, type: type[T]) -> JsonSchemaSerializer[T]:
        """The serializer of a dataclass, a msgspec struct or a pydantic model, whose schema is registered.
        Raises RegistryError, also for a schema that is not compatible with those of the subject."""
        of_model = getattr(type, "model_json_schema", None)
        schema = msgspec.json.schema(type) if of_model is None else of_model()
        return cls(type, await registry.register(subject, RegisteredSchema(JSON, json.dumps(schema))))

    def __call__(self, value: T | None) -> bytes | None:
        """Raises TypeError for a value of another class."""
        if value is None:
            return None
        if not isinstance(value, self._type):
            raise TypeError(f"expected {self._type.__name__}, got {type(value).__name__}")
        return self._prefix + cast("bytes", self._serialize(value))


class JsonSchemaDeserializer(Generic[T]):
    """Reads the JSON of such values as values of one class, whatever version of its schema they name. Raises
    ValueError that names the part which does not fit."""

    def __init__(self, type: type[T]) -> None:
        self._deserialize = JsonDeserializer(type)

    def __call__(self, data: bytes | None) -> T | None:
        if data is None:
            return None
        required_schema_id(data)
        return self._deserialize(data[PREFIX_BYTES:])
