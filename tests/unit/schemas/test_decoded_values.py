"""Avro values, decoded with the schemas of a real registry on loopback: an HTTP server that says what it is
told, also what no registry should."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest
from aiohttp import web

from tests.ports import free_address
from tests.unit.schemas.fake_registry import Registry, running_registry
from tidelog.schemas import decoded_values
from tidelog.schemas.decoded_values import DecodedValues
from tidelog.schemas.registry import SchemaRegistry, schema_id

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
VALUE = {
    "id": 7,
    "note": "<b>\u202e",
    "raw": b"\xff\x00",
    "at": datetime(2026, 11, 26, 18, tzinfo=UTC),
    "price": Decimal("12.50"),
}
LIST = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    async with running_registry() as running:
        yield running


def wire(number: int, schema: Any, value: object) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


async def decoded(registry: Registry, data: bytes) -> Any:
    values = DecodedValues(SchemaRegistry(registry.url))
    await values.fetch([data])
    found = values.decode(data)
    assert found is not None
    return json.loads(found.text)


@pytest.mark.parametrize("data", [None, b"", b"\0\0\0\0", b"\1\0\0\0\7", b"text"])
async def test_what_is_not_in_the_wire_format_is_not_decoded_and_asks_nobody(
    registry: Registry, data: bytes | None
) -> None:
    values = DecodedValues(SchemaRegistry(registry.url))
    await values.fetch([data])
    assert schema_id(data) is None
    assert data is None or values.decode(data) is None
    assert registry.asked == []


async def test_a_value_is_decoded_by_its_schema_which_is_asked_for_once(registry: Registry) -> None:
    registry.has(7, ORDER)
    data = wire(7, ORDER, VALUE)
    values = DecodedValues(SchemaRegistry(registry.url + "/", "user:secret"))
    await values.fetch([data, None, data])
    await values.fetch([data])
    found = values.decode(data)
    assert found is not None
    assert (found.schema_id, found.type) == (7, "AVRO")
    assert json.loads(found.text) == {
        "id": 7,
        "note": "<b>\u202e",
        "raw": "\xff\x00",
        "at": "2026-11-26T18:00:00+00:00",
        "price": "12.50",
    }
    assert registry.asked == [("/schemas/ids/7", "Basic dXNlcjpzZWNyZXQ=")]


async def test_a_schema_may_refer_to_others(registry: Registry) -> None:
    part = {"type": "record", "name": "a.Part", "fields": [{"name": "n", "type": "int"}]}
    whole = {
        "type": "record",
        "name": "a.Whole",
        "fields": [{"name": "parts", "type": {"type": "array", "items": "a.Part"}}],
    }
    reference = {"name": "a.Part", "subject": "a/part value", "version": 2}
    registry.has(1, whole, references=[reference])
    registry.answers["/subjects/a%2Fpart%20value/versions/2"] = {"schema": json.dumps(part)}
    inlined = {**whole, "fields": [{"name": "parts", "type": {"type": "array", "items": part}}]}
    value = {"parts": [{"n": 1}, {"n": 2}]}
    assert await decoded(registry, wire(1, inlined, value)) == value


async def test_a_value_of_a_json_schema_is_json(registry: Registry) -> None:
    registry.has(3, {"type": "object"}, schemaType="JSON")
    values, data = DecodedValues(SchemaRegistry(registry.url)), b'\0\0\0\0\3{"a": 1}'
    await values.fetch([data])
    found = values.decode(data)
    assert found is not None
    assert (found.text, found.type, found.schema_id) == ('{"a": 1}', "JSON", 3)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "the schema registry answers 404 to /schemas/ids/9"),
        (web.Response(status=302, headers={"Location": "http://127.0.0.2/"}), "answers 302"),
        (web.Response(text="<html>"), "has no schema"),
        (web.Response(text="[" * 100_000), "has no schema"),
        (web.Response(text="x" * 2_000_000), "has no schema"),
        ({"schema": 5}, "has no schema"),
        ({"schema": "{"}, "is no Avro schema"),
        ({"schema": '{"type": "nonsense"}'}, "is no Avro schema"),
        ({"schema": '"x"', "schemaType": "OTHER"}, "is of the type OTHER"),
        ({"schema": '{"type": "array", "items": "null"}'}, "items that take no bytes"),
        (
            {"schema": '{"type": "array", "items": {"type": "record", "name": "E", "fields": []}}'},
            "items that take no bytes",
        ),
        ({"schema": '"string"', "references": [5]}, "refers to another without"),
        ({"schema": '"string"', "references": [{"subject": "s", "version": "../1"}]}, "refers to another"),
    ],
)
async def test_a_schema_that_cannot_be_had_is_a_problem_that_is_remembered(
    registry: Registry, answer: Any, problem: str
) -> None:
    if answer is not None:
        registry.answers["/schemas/ids/9"] = answer
    values, data = DecodedValues(SchemaRegistry(registry.url)), b"\0\0\0\0\x09x"
    await values.fetch([data])
    await values.fetch([data])
    assert [path for path, _ in registry.asked] == ["/schemas/ids/9"]
    with pytest.raises(ValueError, match=problem):
        values.decode(data)


async def test_a_registry_that_is_not_there_is_a_problem_that_is_asked_again_later(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoded_values, "_ASK_AGAIN_SECONDS", -1.0)
    data = wire(7, ORDER, VALUE)
    values = DecodedValues(SchemaRegistry(registry.url))
    await values.fetch([data])
    with pytest.raises(ValueError, match="answers 404"):
        values.decode(data)
    registry.has(7, ORDER)
    await values.fetch([data])
    assert values.decode(data) is not None
    absent = DecodedValues(SchemaRegistry(f"http://{free_address()}"))
    await absent.fetch([data])
    with pytest.raises(ValueError, match="the schema registry does not answer"):
        absent.decode(data)


@pytest.mark.parametrize(
    ("schema", "rest", "problem"),
    [
        (LIST, b"\2" * 900_000 + b"\0", "nested too deeply for schema 5"),
        ("string", b"\xfe\xff\xff\xff\x0f", "this does not fit schema 5"),
        ("string", b"\4\xff\xff", "this does not fit schema 5"),
        (["null", "long"], b"\x08", "this does not fit schema 5"),
        ({"type": "array", "items": "long"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\2", "this does not fit"),
        ("long", b"", "this does not fit schema 5"),
        ("long", b"\2tail", "4 bytes follow the value of schema 5"),
        ("bytes", bytes(2_000_000), "are more than the 1048576 that are decoded"),
    ],
)
async def test_hostile_data_is_a_problem_and_nothing_worse(
    registry: Registry, schema: object, rest: bytes, problem: str
) -> None:
    registry.has(5, schema)
    with pytest.raises(ValueError, match=problem):
        await decoded(registry, b"\0\0\0\0\5" + rest)


async def test_only_so_many_schemas_are_kept_and_asked_for_at_once(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoded_values, "_MOST_SCHEMAS", 2)
    monkeypatch.setattr(decoded_values, "MOST_AT_ONCE", 3)
    for number in range(5):
        registry.has(number, "long")
    values = DecodedValues(SchemaRegistry(registry.url))
    every = [wire(number, "long", number) for number in range(5)]
    await values.fetch(every)
    assert len(registry.asked) == 3
    for number in (1, 2):
        assert values.decode(every[number]) is not None
    for number in (0, 4):
        with pytest.raises(ValueError, match="was not fetched yet"):
            values.decode(every[number])
