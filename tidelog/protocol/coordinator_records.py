"""Keys and values of coordinators' records in the logs of internal topics: a version, then a message.

Owns: the int16 version before the message, and its codecs. The declarations are in `protocol.messages`.

Invariants: a codec is built once, with the first record of its version. Decoding consumes all bytes and
raises only ProtocolError.

Source: Kafka's CoordinatorRecordSerde.
"""

from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from tidelog.protocol.codecs import Codec
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.messages.declaration import Message, Struct, message_of
from tidelog.protocol.types import Buffer

MAX_ELEMENTS: Final = 1_000_000
"""Array elements and tagged fields of one key or value, such as the members in a group's metadata."""
_VERSION_BYTES: Final = 2
StructT = TypeVar("StructT", bound=Struct)


def record_version(data: Buffer) -> int:
    """The version at the start of a key or a value. Raises ProtocolError if there is none."""
    if len(data) < _VERSION_BYTES:
        raise ProtocolError(f"expected a version in {_VERSION_BYTES} bytes, got {len(data)} bytes")
    return int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)


class RecordSchema(Generic[StructT]):
    """A key or a value in the versions `first` to `last`."""

    def __init__(self, declaration: type[StructT], first: int, last: int) -> None:
        self._declaration = declaration
        self.first = first
        self.last = last
        self._codecs: dict[int, Codec] = {}

    @property
    def message(self) -> Message:
        return message_of(self._declaration)

    def has(self, version: int) -> bool:
        return self.first <= version <= self.last

    def encode(self, version: int, values: Mapping[str, object]) -> bytes:
        """The version and the message, by the rules of `protocol.schema`. Raises ProtocolError, TypeError."""
        return version.to_bytes(_VERSION_BYTES, "big") + self._codec(version).encode(values)

    def decode(self, data: Buffer) -> StructT:
        """The message as `protocol.values` with every declared field. Raises ProtocolError."""
        message: StructT = self._codec(record_version(data)).decode(data[_VERSION_BYTES:])
        return message

    def _codec(self, version: int) -> Codec:
        codec = self._codecs.get(version)
        if codec is None:
            if not self.has(version):
                expected = f"expected {self.first} to {self.last}"
                raise ProtocolError(f"{self.message.name} version {version}: {expected}")
            codec = self._codecs[version] = Codec(self.message, version, MAX_ELEMENTS)
        return codec
