"""Serializers and deserializers for keys and values: text, JSON, Avro and Protobuf.

    Producer(value_serializer=JsonSerializer())
    Consumer("orders", value_deserializer=JsonDeserializer(Order))

Each deserializer gives None for None. With a `SchemaRegistry` values name their schema, in the format of
Confluent's serializers.
"""

from tidelog.schemas.registry import RegistryError, SchemaRegistry
from tidelog.serializers.avro import AvroDeserializer, AvroSerializer
from tidelog.serializers.json_values import (
    JsonDeserializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    JsonSerializer,
)
from tidelog.serializers.protobuf import ProtobufDeserializer, ProtobufSerializer
from tidelog.serializers.text import deserialize_text, serialize_text

__all__ = [
    "AvroDeserializer", "AvroSerializer", "JsonDeserializer", "JsonSchemaDeserializer",
    "JsonSchemaSerializer", "JsonSerializer", "ProtobufDeserializer", "ProtobufSerializer", "RegistryError",
    "SchemaRegistry", "deserialize_text", "serialize_text",
]  # fmt: skip
