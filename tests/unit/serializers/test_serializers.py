"""Keys and values as text, JSON, Avro and Protobuf, through a broker and a schema registry on loopback."""

import json
from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, assert_type

import pydantic
import pytest
from aiohttp import web
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from tests.unit.schemas.fake_registry import Registry, running_registry
from tidelog import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    Producer,
    RecordDeserializationError,
    ShareConsumer,
)
from tidelog.broker.testing.embedded import EmbeddedBroker
from tidelog.serializers import (
    AvroDeserializer,
    AvroSerializer,
    JsonDeserializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    JsonSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    RegistryError,
    SchemaRegistry,
    deserialize_text,
    serialize_text,
)

SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "long"}]}
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"], "default": None}],
}


@dataclass
class Order:
    number: int


class Model(pydantic.BaseModel):  # type: ignore[misc]
    number: int


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    async with running_registry() as running:
        yield running


@pytest.fixture
async def servers() -> AsyncIterator[str]:
    async with EmbeddedBroker() as broker:
        yield broker.bootstrap_servers


async def test_text_and_json_go_through_a_broker_with_their_types(servers: str) -> None:
    async with Producer(
        bootstrap_servers=servers, key_serializer=serialize_text, value_serializer=JsonSerializer()
    ) as producer:
        await producer.send_and_wait("orders", Order(7), key="häuser")
        await producer.send_and_wait("orders", None, key=None)
    async with Consumer(
        "orders",
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        key_deserializer=deserialize_text,
        value_deserializer=JsonDeserializer(Order),
    ) as consumer:
        record = await consumer.getone()
        assert assert_type(record.value, Order | None) == Order(7)
        assert assert_type(record.key, str | None) == "häuser"
        deleted = await consumer.getone()
        assert (deleted.key, deleted.value) == (None, None)


def test_models_of_pydantic_are_written_and_checked_by_pydantic() -> None:
    written = JsonSerializer()(Model(number=7))
    assert written == b'{"number":7}'
    assert JsonDeserializer(Model)(written) == Model(number=7)
    with pytest.raises(ValueError, match="number"):
        JsonDeserializer(Model)(b"{}")


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b'{"number": "7"}', b"\xff", b"[" * 100_000])
def test_json_that_does_not_fit_is_a_value_error(data: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        JsonDeserializer(Order)(data)
    with pytest.raises(TypeError):
        JsonSerializer()(object())


@pytest.mark.parametrize("kind", [Order, Model])
async def test_json_schema_values_name_the_schema_of_their_class(registry: Registry, kind: type) -> None:
    serialize = await JsonSchemaSerializer.register(SchemaRegistry(registry.url), "orders-value", kind)
    [registered] = registry.registered
    assert registered["schemaType"] == "JSON"
    written = serialize(kind(number=7))
    schema = json.loads(registered["schema"])
    schema = schema["$defs"]["Order"] if "$defs" in schema else schema
    assert (schema["properties"]["number"]["type"], schema["required"]) == ("integer", ["number"])
    assert written == b'\0\0\0\0\1{"number":7}'
    read = JsonSchemaDeserializer(kind)
    assert (read(written), read(None), serialize(None)) == (kind(number=7), None, None)
    for wrong in (b"", b'{"number":7}', written[:7], b'\0\0\0\0\1{"number":"x"}'):
        with pytest.raises(ValueError):
            read(wrong)
    with pytest.raises(TypeError, match=f"expected {kind.__name__}, got str"):
        serialize("7")


async def test_avro_values_name_their_schema_which_a_reader_asks_for_once(
    servers: str, registry: Registry
) -> None:
    known = SchemaRegistry(registry.url)
    first = await AvroSerializer.register(known, "orders-value", SCHEMA)
    second = await AvroSerializer.register(known, "orders-value", {**SCHEMA, "doc": "newer"})
    async with Producer(bootstrap_servers=servers) as producer:
        for number in range(10):
            serialize = first if number % 2 else second
            await producer.send_and_wait("orders", serialize({"number": number}))
    registry.asked.clear()
    async with Consumer(
        "orders",
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(known),
    ) as consumer:
        read = [(await consumer.getone()).value for _ in range(3)]
        while len(read) < 10:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                read += [each.value for each in records]
    assert read == [{"number": number} for number in range(10)]
    assert [path for path, _ in registry.asked] == ["/schemas/ids/2", "/schemas/ids/1"]


async def test_a_share_consumer_waits_for_a_schema_without_giving_a_record_back(
    servers: str, registry: Registry
) -> None:
    serialize = await AvroSerializer.register(SchemaRegistry(registry.url), "orders-value", SCHEMA)
    async with Producer(bootstrap_servers=servers, value_serializer=serialize) as producer:
        await producer.send_and_wait("orders", {"number": 7})
    async with Admin(bootstrap_servers=servers) as admin:
        group = ConfigResource(ConfigResourceType.GROUP, "workers")
        await admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})
    async with ShareConsumer(
        "orders",
        bootstrap_servers=servers,
        group_id="workers",
        value_deserializer=AvroDeserializer(SchemaRegistry(registry.url)),
    ) as consumer:
        record = await consumer.getone()
        assert (record.value, record.delivery_count) == ({"number": 7}, 1)
        record.accept()
        await consumer.commit()


async def test_a_schema_that_the_registry_lacks_is_an_error_of_the_record_that_can_be_read_later(
    servers: str, registry: Registry
) -> None:
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("orders", b"\0\0\0\0\1\x0e")
    async with Consumer(
        "orders",
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(SchemaRegistry(registry.url)),
    ) as consumer:
        for read in (consumer.getone(), consumer.getmany(timeout_ms=60_000)):
            with pytest.raises(RecordDeserializationError, match="answers 404 to /schemas/ids/1") as caught:
                await read
            assert caught.value.offset == 0
        registry.has(1, SCHEMA)
        assert (await consumer.getone()).value == {"number": 7}


async def test_avro_that_does_not_fit_its_schema_is_a_value_error(registry: Registry) -> None:
    known = SchemaRegistry(registry.url, "user:secret")
    serialize = await AvroSerializer.register(known, "orders-value", SCHEMA)
    assert registry.asked == []
    for wrong in ({}, {"number": "x"}, {"number": 1 << 70}, 7):
        with pytest.raises((ValueError, TypeError)):
            serialize(wrong)
    deserialize = AvroDeserializer(known)
    await deserialize.fetch(1)
    assert registry.asked == [("/schemas/ids/1", "Basic dXNlcjpzZWNyZXQ=")]
    for data in (b"", b"text", b"\0\0\0\0\1", b"\0\0\0\0\1\2\2"):
        with pytest.raises(ValueError, match=r"schema|byte 0"):
            deserialize(data)
    assert (serialize(None), deserialize(None)) == (None, None)


async def test_deep_values_of_a_schema_that_holds_itself_are_refused(registry: Registry) -> None:
    registry.has(1, NODE)
    deserialize = AvroDeserializer(SchemaRegistry(registry.url))
    await deserialize.fetch(1)
    assert deserialize(b"\0\0\0\0\1\2\0") == {"next": {"next": None}}
    with pytest.raises(ValueError, match="nested too deeply"):
        deserialize(b"\0\0\0\0\1" + b"\2" * 900_000 + b"\0")


async def test_a_schema_that_the_registry_refuses_is_an_error_with_what_it_says(registry: Registry) -> None:
    refusal = web.json_response({"error_code": 409, "message": "incompatible: NAME_MISMATCH"}, status=409)
    registry.answers["/subjects/a%2Fb/versions"] = refusal
    with pytest.raises(RegistryError, match="NAME_MISMATCH") as caught:
        await AvroSerializer.register(SchemaRegistry(registry.url), "a/b", SCHEMA)
    assert caught.value.status == 409
    with pytest.raises(RegistryError, match="is no Avro schema"):
        await AvroSerializer.register(SchemaRegistry(registry.url), "a/b", {"type": "nonsense"})


async def test_protobuf_messages_go_there_and_back_and_register_their_file(registry: Registry) -> None:
    known = SchemaRegistry(registry.url)
    serialize = await ProtobufSerializer.register(known, "files-value", FileDescriptorProto)
    [body] = registry.registered
    assert body["schemaType"] == "PROTOBUF"
    described: Any = FileDescriptorProto()
    described.ParseFromString(b64decode(body["schema"]))
    assert described.name == "google/protobuf/descriptor.proto"
    message = FileDescriptorProto(name="x")
    written = serialize(message)
    assert written is not None
    deserialize = ProtobufDeserializer(FileDescriptorProto)
    assert assert_type(deserialize(written), FileDescriptorProto | None) == message
    assert (serialize(None), deserialize(None)) == (None, None)
    with pytest.raises(TypeError, match="expected FileDescriptorProto, got FieldDescriptorProto"):
        serialize(FieldDescriptorProto())


def test_the_indexes_of_a_message_type_are_those_of_confluents_format() -> None:
    first = FileDescriptorProto.DESCRIPTOR.file.message_types_by_name["FileDescriptorSet"]._concrete_class
    assert ProtobufSerializer(first, 9)(first()) == b"\0\0\0\0\x09\0"
    assert ProtobufDeserializer(first)(b"\0\0\0\0\x09\2\0") == first()
    # The third type of its file, and the first within it: 2 indexes, 2, 0.
    nested = DescriptorProto.ExtensionRange
    assert ProtobufSerializer(nested, 9)(nested()) == b"\0\0\0\0\x09\4\4\0"


@pytest.mark.parametrize(
    "data",
    [b"", b"text", b"\0\0\0\0\1", b"\0\0\0\0\1\x80", b"\0\0\0\0\1\xfe\xff\xff\x0f", b"\0\0\0\0\1\0\xff"],
)
def test_what_is_no_message_of_the_type_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"expected|no MetricsData"):
        ProtobufDeserializer(MetricsData)(data)


async def test_a_file_that_imports_others_is_registered_by_its_owner(registry: Registry) -> None:
    with pytest.raises(RegistryError, match="imports opentelemetry/proto/common"):
        await ProtobufSerializer.register(SchemaRegistry(registry.url), "metrics-value", MetricsData)
