"""Protobuf messages that name their schema in a registry.

The application has the classes that protoc generates, so a reader asks no registry. Source: Confluent's "Wire
format" for Protobuf: after the schema's id stand the indexes of the message type within its file, as zigzag
varints; the common [0] is one byte 0.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from tidelog.protocol.records.varints import encode_varint
from tidelog.schemas.protobuf import indexes_of
from tidelog.schemas.registry import (
    PREFIX_BYTES,
    PROTOBUF,
    RegisteredSchema,
    RegistryError,
    SchemaRegistry,
    prefix,
    required_schema_id,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

M = TypeVar("M", bound="Message")
_KNOWN_IMPORTS = "google/protobuf/"
"""Every registry has these."""


class ProtobufSerializer(Generic[M]):
    """Writes messages of one type, whose schema has this id in a registry."""

    def __init__(self, message_type: type[M], number: int) -> None:
        self._type = message_type
        self._prefix = prefix(number) + _indexes(message_type.DESCRIPTOR)

    @classmethod
    async def register(
        cls, registry: SchemaRegistry, subject: str, message_type: type[M]
    ) -> ProtobufSerializer[M]:
        """The serializer of a type, whose file is registered, in the form of Confluent's clients. Raises
        RegistryError, also for a file that imports others than Google's: register these first, and call the
        class with the id."""
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        file = message_type.DESCRIPTOR.file
        if foreign := [each.name for each in file.dependencies if not each.name.startswith(_KNOWN_IMPORTS)]:
            raise RegistryError(
                f"{file.name} imports {foreign[0]}: register both, and give the id of {file.name} to "
                "ProtobufSerializer"
            )
        described = FileDescriptorProto()
        file.CopyToProto(described)
        text = b64encode(described.SerializeToString()).decode()
        return cls(message_type, await registry.register(subject, RegisteredSchema(PROTOBUF, text)))

    def __call__(self, value: M | None) -> bytes | None:
        """Raises TypeError for a message of another type."""
        if value is None:
            return None
        if not isinstance(value, self._type):
            raise TypeError(f"expected {self._type.__name__}, got {type(value).__name__}")
        return self._prefix + bytes(value.SerializeToString())


class ProtobufDeserializer(Generic[M]):
    """Reads messages as one type, whatever version of its schema they name."""

    def __init__(self, message_type: type[M]) -> None:
        self._type = message_type
        self._indexes = _indexes(message_type.DESCRIPTOR)

    def __call__(self, data: bytes | None) -> M | None:
        """Raises ValueError for what is no message of the type."""
        if data is None:
            return None
        required_schema_id(data)
        _, start = indexes_of(data)
        if data[PREFIX_BYTES:start] not in (self._indexes, _long_form(self._indexes)):
            raise ValueError(f"expected a message {self._type.__name__}, got another one of its file")
        from google.protobuf.message import DecodeError

        try:
            return cast("M", self._type.FromString(data[start:]))
        except DecodeError as error:
            raise ValueError(f"this is no {self._type.__name__}: {error}") from None


def _indexes(descriptor: Descriptor) -> bytes:
    """Where a type stands in its file, as it is written."""
    path: list[int] = []
    at: Any = descriptor
    while at is not None:
        within = at.containing_type
        siblings = at.file.message_types_by_name.values() if within is None else within.nested_types
        path.insert(0, [each.full_name for each in siblings].index(at.full_name))
        at = within
    return b"\0" if path == [0] else b"".join(map(encode_varint, (len(path), *path)))


def _long_form(indexes: bytes) -> bytes:
    """[0] as some writers write it: the number of indexes, then 0."""
    return b"\x02\0" if indexes == b"\0" else indexes
