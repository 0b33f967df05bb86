"""Avro schemas of a registry, parsed for fastavro, and values of theirs.

Invariant: a value costs memory in proportion to its bytes, and no value ends the process. So arrays of items
that take no bytes are refused, because a few bytes could announce a billion of them; and fastavro's compiled
reader, which ends the process at data that is nested too deeply, never reads a schema that refers to itself.

Source: Avro 1.12.
"""

import json
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any, Final, NamedTuple

from tidelog.schemas.registry import RegistryError

_NAMED: Final = ("record", "error", "enum", "fixed")


class AvroSchema(NamedTuple):
    """A schema as fastavro takes it."""

    parsed: Any
    is_recursive: bool


def avro_schema(text: str, references: Iterable[str] = ()) -> AvroSchema:
    """A schema from its JSON, with the JSON of those that it refers to. Raises RegistryError."""
    from fastavro import parse_schema

    names: dict[str, Any] = {}
    try:
        for each in references:
            parse_schema(json.loads(each), named_schemas=names)
        parsed = parse_schema(json.loads(text), named_schemas=names)
        _refuse_endless(parsed, names)
        return AvroSchema(parsed, _refers_to_itself(parsed, names, frozenset()))
    except RegistryError:
        raise
    except Exception as error:  # fastavro raises what its parts raise.
        raise RegistryError(f"the schema registry's schema is no Avro schema: {error}") from None


def read_value(schema: AvroSchema, data: bytes, number: int, start: int, *, is_fast: bool = False) -> Any:
    """The value of schema `number` in data[start:]. `is_fast`: with compiled code, if no value of the schema
    can be nested deeply. Raises ValueError for what is not exactly one value."""
    if is_fast and not schema.is_recursive:
        from fastavro import schemaless_reader
    else:
        from fastavro._read_py import schemaless_reader
    stream = BytesIO(data)
    stream.seek(start)
    try:
        value = schemaless_reader(stream, schema.parsed, None)
    except RecursionError:
        raise ValueError(f"nested too deeply for schema {number}") from None
    except Exception as error:  # fastavro raises what its parts raise: EOFError, IndexError, KeyError…
        raise ValueError(f"this does not fit schema {number}: {error or type(error).__name__}") from None
    if left := len(data) - stream.tell():
        raise ValueError(f"{left} bytes follow the value of schema {number}")
    return value


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


def _refers_to_itself(schema: Any, names: Mapping[str, Any], above: frozenset[str]) -> bool:
    """Whether a named type is within itself."""
    if isinstance(schema, str):
        if schema in above:
            return True
        return schema in names and _refers_to_itself(names[schema], names, above)
    if isinstance(schema, list):
        return any(_refers_to_itself(branch, names, above) for branch in schema)
    if not isinstance(schema, dict):
        return False
    if schema.get("type") in _NAMED:
        above = above | {schema["name"]}
        parts = [field["type"] for field in schema.get("fields", ())]
    else:
        parts = [schema.get(part) for part in ("items", "values", "type")]
    return any(_refers_to_itself(part, names, above) for part in parts)
