"""Protobuf values, decoded with the files of a real registry on loopback."""

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP

from tests.unit.schemas.fake_registry import Registry, running_registry
from tidelog.schemas.decoded_values import DecodedValues
from tidelog.schemas.registry import SchemaRegistry

STRING, MESSAGE, INT64 = (
    FieldDescriptorProto.TYPE_STRING,
    FieldDescriptorProto.TYPE_MESSAGE,
    FieldDescriptorProto.TYPE_INT64,
)


def field(name: str, number: int, kind: Any, type_name: str | None = None) -> FieldDescriptorProto:
    return FieldDescriptorProto(
        name=name, number=number, type=kind, type_name=type_name, label=FieldDescriptorProto.LABEL_OPTIONAL
    )


def files() -> tuple[FileDescriptorProto, FileDescriptorProto]:
    """A file of orders, and the one of customers that it imports."""
    customers = FileDescriptorProto(name="customers.proto", package="shop", syntax="proto3")
    customers.message_type.add(name="Customer").field.append(field("email", 1, STRING))
    orders = FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    orders.dependency.extend(["customers.proto", "google/protobuf/timestamp.proto"])
    orders.message_type.add(name="Unused")
    order = orders.message_type.add(name="Order")
    order.field.extend(
        [
            field("order_id", 1, INT64),
            field("customer", 2, MESSAGE, ".shop.Customer"),
            field("at", 3, MESSAGE, ".google.protobuf.Timestamp"),
        ]
    )
    order.nested_type.add(name="Line").field.append(field("text", 1, STRING))
    return orders, customers


def serialized(file: FileDescriptorProto) -> str:
    return b64encode(file.SerializeToString()).decode()


def message(name: str, fields: dict[str, Any]) -> bytes:
    orders, customers = files()
    pool = DescriptorPool()
    pool.AddSerializedFile(TIMESTAMP.serialized_pb)
    pool.Add(customers)
    pool.Add(orders)
    return bytes(GetMessageClass(pool.FindMessageTypeByName(name))(**fields).SerializeToString())


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    async with running_registry() as running:
        orders, customers = files()
        reference = {"name": "customers.proto", "subject": "customers", "version": 1}
        running.answers |= {
            "/schemas/ids/7": {"schema": "a .proto", "schemaType": "PROTOBUF"},
            "/schemas/ids/7?format=serialized": {
                "schema": serialized(orders),
                "schemaType": "PROTOBUF",
                "references": [reference],
            },
            "/subjects/customers/versions/1?format=serialized": {"schema": serialized(customers)},
            "/schemas/ids/8": {"schema": "message Order {}", "schemaType": "PROTOBUF"},
        }
        yield running


async def decoded(registry: Registry, data: bytes) -> Any:
    values = DecodedValues(SchemaRegistry(registry.url))
    await values.fetch([data])
    found = values.decode(data)
    assert found is not None
    assert found.type == "PROTOBUF"
    return json.loads(found.text)


@pytest.mark.parametrize(
    ("indexes", "name", "fields", "expected"),
    [
        (
            b"\x02\x02",
            "shop.Order",
            {"order_id": 42, "customer": {"email": "ä@b"}, "at": {"seconds": 60}},
            {"order_id": "42", "customer": {"email": "ä@b"}, "at": "1970-01-01T00:01:00Z"},
        ),
        (b"\x04\x02\0", "shop.Order.Line", {"text": "x"}, {"text": "x"}),
        (b"\0", "shop.Unused", {}, {}),
    ],
)
async def test_a_message_is_decoded_by_the_type_that_its_indexes_name(
    registry: Registry, indexes: bytes, name: str, fields: dict[str, Any], expected: Any
) -> None:
    assert await decoded(registry, b"\0\0\0\0\x07" + indexes + message(name, fields)) == expected


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\0\0\0\0\x07\x02\x08", "this does not fit schema 7"),
        (b"\0\0\0\0\x07\x7f", "expected the indexes of a message type"),
        (b"\0\0\0\0\x07\x02\x02\xff", "this does not fit schema 7"),
        (b"\0\0\0\0\x08\0", "no Protobuf file that can be read"),
    ],
)
async def test_what_is_no_message_of_the_schema_is_an_error(
    registry: Registry, data: bytes, problem: str
) -> None:
    registry.answers["/schemas/ids/8?format=serialized"] = registry.answers["/schemas/ids/8"]
    with pytest.raises(ValueError, match=problem):
        await decoded(registry, data)


async def test_two_schemas_may_have_types_of_the_same_name(registry: Registry) -> None:
    other = FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    other.message_type.add(name="Order").field.append(field("number", 1, INT64))
    for suffix in ("", "?format=serialized"):
        registry.answers[f"/schemas/ids/9{suffix}"] = {"schema": serialized(other), "schemaType": "PROTOBUF"}
    assert await decoded(registry, b"\0\0\0\0\x09\0\x08\x05") == {"number": "5"}
    assert await decoded(registry, b"\0\0\0\0\x07\x02\x02\x08\x05") == {"order_id": "5"}
