"""kio, generated from Kafka's own definitions, as an independent oracle of every message that is advertised.

Both directions for each (message, version): what we encode, kio reads as the same values and writes as the
same bytes; what kio writes, we read as the same values.
"""

import dataclasses
import datetime
import io
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, get_field_tag, is_optional

from tests.property.messages import (
    FEWER_EXAMPLES,
    KAFKA_APIS,
    MESSAGES,
    layouts_of,
    message_of,
    present,
    values_of,
    versions_of,
)
from tidelog.protocol import schema
from tidelog.protocol.messages.declaration import Field, version_in
from tidelog.protocol.schema import ApiKey

KAFKA_MESSAGES = [(key, kind) for key, kind in MESSAGES if key in KAFKA_APIS]

NO_UUID = UUID(int=0)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
LAST_TIMESTAMP_MS = 4_100_000_000_000

# kio types some milliseconds as datetime (-1 is None) or timedelta, rounded by a float from 2150 on.
KIO_DATES: Mapping[str, st.SearchStrategy[Any]] = {
    "log_append_time_ms": st.just(-1) | st.integers(0, LAST_TIMESTAMP_MS),
    "retention_time_ms": st.integers(-1, LAST_TIMESTAMP_MS),
    "session_lifetime_ms": st.integers(0, LAST_TIMESTAMP_MS),
    "transaction_start_time_ms": st.integers(0, LAST_TIMESTAMP_MS),
}
KIO_NAMES = {"values": "quotas"}
KIO_UNITS = {"timedelta_i32": "_ms", "timedelta_i64": "_ms", "datetime_i64": "_ms"}
KIO_TYPES = {
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
    "error_code": "int16",
}


def kio_type(key: int, version: int, kind: str) -> Any:
    return (load_request_schema if kind == "request" else load_response_schema)(key, version)


def our_name(field: "dataclasses.Field[Any]") -> str:
    name = KIO_NAMES.get(field.name, field.name)
    return name + KIO_UNITS.get(field.metadata.get("kafka_type", ""), "")


def to_kio(entity_type: Any, values: Mapping[str, Any]) -> Any:
    return entity_type(
        **{
            field.name: _to_kio_value(field, values[our_name(field)])
            for field in dataclasses.fields(entity_type)
        }
    )


def _to_kio_value(field: "dataclasses.Field[Any]", value: Any) -> Any:
    kind = classify_field(field)
    if value is None:
        return None
    if isinstance(kind, EntityField):
        return to_kio(kind.type_, value)
    if isinstance(kind, EntityTupleField):
        return tuple(to_kio(kind.type_, element) for element in value)
    match field.metadata["kafka_type"]:
        case "error_code":
            return KioErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else EPOCH + datetime.timedelta(milliseconds=value)
        case "uuid":
            return None if value == NO_UUID else value
    return tuple(value) if kind.is_array else value


def from_kio(entity: Any) -> dict[str, Any]:
    return {
        our_name(field): _from_kio_value(field, getattr(entity, field.name))
        for field in dataclasses.fields(entity)
    }


def _from_kio_value(field: "dataclasses.Field[Any]", value: Any) -> Any:
    kind = classify_field(field)
    if isinstance(kind, EntityField | EntityTupleField):
        if isinstance(value, tuple):
            return [from_kio(element) for element in value]
        return None if value is None else from_kio(value)
    match field.metadata["kafka_type"]:
        case "error_code":
            return int(value)
        case "timedelta_i32" | "timedelta_i64":
            return value // datetime.timedelta(milliseconds=1)
        case "datetime_i64":
            return -1 if value is None else (value - EPOCH) // datetime.timedelta(milliseconds=1)
        case "uuid":
            return value or NO_UUID
    return list(value) if isinstance(value, tuple) else value


def test_a_declaration_has_the_fields_types_order_nulls_tags_and_defaults_of_kafka_s() -> None:
    for key, kind in KAFKA_MESSAGES:
        message = message_of(key, kind)
        for version in versions_of(key):
            where = f"{kind} {key.name}, version {version}"
            entity_type = kio_type(key, version, kind)
            assert _described_by_us(message.fields, version) == _described_by_kio(entity_type), where
            assert version_in(version, message.flexible) == entity_type.__flexible__, where

            read, _ = entity_reader(entity_type)(_encoded(key, version, kind, {}), 0)
            for field in dataclasses.fields(entity_type):
                if field.default is not dataclasses.MISSING:
                    assert getattr(read, field.name) == field.default, f"{field.name} in {where}"


def _described_by_us(fields: tuple[Field, ...], version: int) -> list[Any]:
    described = [
        (
            field.name,
            field.is_array,
            _described_by_us(field.fields, version) if field.element_type == "struct" else field.element_type,
            version_in(version, field.nullable),
            field.tag,
        )
        for field in fields
        if version_in(version, field.versions)
    ]
    return sorted(described, key=_tagged_last)


def _described_by_kio(entity_type: Any) -> list[Any]:
    described = []
    for field in dataclasses.fields(entity_type):
        kind = classify_field(field)
        kafka_type = field.metadata.get("kafka_type", "")
        # kio types a uuid and a date as optional: None is how it shows the zero uuid and -1.
        nullable = is_optional(field) and kafka_type not in ("uuid", "datetime_i64")
        element: object = KIO_TYPES.get(kafka_type, kafka_type)
        if isinstance(kind, EntityField | EntityTupleField):
            element = _described_by_kio(kind.type_)
        described.append((our_name(field), kind.is_array, element, nullable, get_field_tag(field)))
    return sorted(described, key=_tagged_last)


def _tagged_last(described: Any) -> int:
    tag = described[-1]
    return -1 if tag is None else int(tag)


@pytest.mark.parametrize(
    ("key", "kind"), KAFKA_MESSAGES, ids=lambda each: each if isinstance(each, str) else each.name
)
def test_kio_reads_and_writes_the_same_values_as_the_same_bytes_in_every_layout(
    key: ApiKey, kind: str
) -> None:
    fields = message_of(key, kind).fields
    for version in layouts_of(key, kind):

        @FEWER_EXAMPLES
        @given(version=st.just(version), values=values_of(fields, version, KIO_DATES))
        def is_the_same(version: int, values: dict[str, Any]) -> None:
            entity_type = kio_type(key, version, kind)
            ours = _encoded(key, version, kind, values)
            read, size = entity_reader(entity_type)(ours, 0)
            assert size == len(ours)
            assert from_kio(read) == values

            written = io.BytesIO()
            entity_writer(entity_type)(written, to_kio(entity_type, values))
            assert written.getvalue() == ours
            decoded = (schema.decode_request if kind == "request" else schema.decode_response)(
                key, version, written.getvalue()
            )
            assert present(fields, version, decoded) == values

        is_the_same()


def _encoded(key: ApiKey, version: int, kind: str, values: dict[str, Any]) -> bytes:
    return (schema.encode_request if kind == "request" else schema.encode_response)(key, version, values)
