"""Protobuf schemas of a registry, as descriptors, and messages of theirs as JSON text.

Invariant: a schema is read in a pool of its own, so two of them may have types of the same name; it may
import what it refers to in the registry and Google's own files, and nothing else. A message is nested no
deeper than protobuf's limit.

Source: Confluent's "Wire format" for Protobuf: after the schema's id stand the indexes of the message type
within its file, as zigzag varints; the common [0] is one byte 0.
"""

import re
from base64 import b64decode
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

from tidelog.protocol.records.varints import decode_varint
from tidelog.schemas.registry import PREFIX_BYTES, RegistryError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

MOST_INDEXES: Final = 32
"""Types within types."""
_OF_GOOGLE: Final = re.compile(r"google/protobuf/([a-z_]+)\.proto")


def indexes_of(data: bytes) -> tuple[list[int], int]:
    """Where the type of a message stands in its file, and where the message begins. Raises ValueError."""
    try:
        count, at = decode_varint(data, PREFIX_BYTES)
        if not 0 <= count <= MOST_INDEXES:
            raise ValueError(f"{count} indexes")
        indexes = []
        for _ in range(count):
            index, at = decode_varint(data, at)
            indexes.append(index)
    except ValueError as error:
        raise ValueError(f"expected the indexes of a message type: {error}") from None
    return indexes or [0], at


class ProtobufSchema:
    """A file of message types, with the files that it refers to, by the names under which they are imported.

    Each is a FileDescriptorProto in base64, as a registry gives it with `format=serialized`.
    """

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        """Blocking; raises RegistryError for what is no file of message types."""
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.descriptor_pool import DescriptorPool

        pool = DescriptorPool()

        def add(text: str, name: str) -> None:
            file = FileDescriptorProto.FromString(b64decode(text, validate=True))
            file.name = name
            for each in file.dependency:
                if (found := _OF_GOOGLE.fullmatch(each)) and each not in references:
                    known = import_module(f"google.protobuf.{found[1]}_pb2").DESCRIPTOR
                    pool.AddSerializedFile(known.serialized_pb)
            pool.AddSerializedFile(file.SerializeToString())

        try:
            for name, referred in references.items():
                add(referred, name)
            add(text, "schema.proto")
            self._pool, self._file = pool, pool.FindFileByName("schema.proto")
        except Exception as error:  # protobuf raises what its parts raise.
            message = f"the schema registry's schema is no Protobuf file that can be read: {error}"
            raise RegistryError(message) from None

    def read(self, data: bytes, number: int) -> str:
        """The JSON of a value of schema `number`. Raises ValueError for what is none."""
        from google.protobuf.json_format import MessageToJson
        from google.protobuf.message_factory import GetMessageClass

        indexes, start = indexes_of(data)
        try:
            found: Descriptor = list(self._file.message_types_by_name.values())[indexes[0]]
            for index in indexes[1:]:
                found = found.nested_types[index]
            message = GetMessageClass(found).FromString(data[start:])
            return str(
                MessageToJson(
                    message,
                    indent=None,
                    ensure_ascii=False,
                    preserving_proto_field_name=True,
                    descriptor_pool=self._pool,
                )
            )
        except Exception as error:  # protobuf raises what its parts raise.
            raise ValueError(f"this does not fit schema {number}: {error or type(error).__name__}") from None
