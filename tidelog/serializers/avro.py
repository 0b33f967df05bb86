"""Avro values that name their schema in a registry.

Source: Confluent's "Wire format"; Avro 1.12.
"""

from __future__ import annotations

import json
from functools import partial
from io import BytesIO
from typing import Any

from tidelog.client.errors import DeserializerNotReadyError
from tidelog.schemas.avro import AvroSchema, avro_schema, read_value
from tidelog.schemas.registry import (
    AVRO,
    PREFIX_BYTES,
    RegisteredSchema,
    RegistryError,
    SchemaRegistry,
    prefix,
    required_schema_id,
)


class AvroSerializer:
    """Writes values of one schema, which `register` makes known to the registry."""

    def __init__(self, schema: AvroSchema, number: int) -> None:
        self._schema = schema.parsed
        self._prefix = prefix(number)

    @classmethod
    async def register(cls, registry: SchemaRegistry, subject: str, schema: Any) -> AvroSerializer:
        """The serializer of a schema, as its JSON or as what that is in Python. `subject`: mostly
        "TOPIC-value" or "TOPIC-key". Raises RegistryError, also for a schema that is not compatible with
        those of the subject."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return cls(avro_schema(text), await registry.register(subject, RegisteredSchema(AVRO, text)))

    def __call__(self, value: Any) -> bytes | None:
        """Raises ValueError or TypeError for a value that does not fit the schema."""
        if value is None:
            return None
        from fastavro import schemaless_writer

        stream = BytesIO()
        stream.write(self._prefix)
        try:
            schemaless_writer(stream, self._schema, value)
        except (KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"the value does not fit the Avro schema: {error!r}") from error
        return stream.getvalue()


class AvroDeserializer:
    """Reads values with the schemas that they name, each of which is asked for once. A value is what fastavro
    makes of it: a dict for a record."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._schemas: dict[int, AvroSchema] = {}

    def __call__(self, data: bytes | None) -> Any:
        """Raises ValueError for what is no value of its schema."""
        if data is None:
            return None
        number = required_schema_id(data)
        schema = self._schemas.get(number)
        if schema is None:
            raise DeserializerNotReadyError(
                f"schema {number} was not fetched yet", partial(self.fetch, number)
            )
        return read_value(schema, data, number, PREFIX_BYTES, is_fast=True)

    async def fetch(self, number: int) -> None:
        """Ask for a schema by its id. Raises RegistryError."""
        found = await self._registry.schema(number)
        if found.type != AVRO:
            raise RegistryError(f"schema {number} is of the type {found.type}, expected {AVRO}")
        self._schemas[number] = avro_schema(found.text, found.references)
