"""Keys and values of coordinators' records in the logs of internal topics: a version, then a message.

Owns: the int16 version before the message, and its codecs. The declarations are in `protocol.messages`.

Invariants: a codec is built once, with the first record of its version. Decoding consumes all bytes and
raises only ProtocolError.

Source: Kafka's CoordinatorRecordSerde.
"""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.messages.declaration import Message
from tidelog.protocol.types import Buffer

if TYPE_CHECKING:
    from tidelog.protocol.codecs import Codec

MAX_ELEMENTS: Final = 1_000_000
"""Array elements and tagged fields of one key or value, such as the members in a group's metadata."""
_VERSION_BYTES: Final = 2


def record_version(data: Buffer) -> int:
    """The version at the start of a key or a value. Raises ProtocolError if there is none."""
    if len(data) < _VERSION_BYTES:
        raise ProtocolError(f"expected a version in {_VERSION_BYTES} bytes, came {len(data)} bytes")
    return int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)


class RecordSchema:
    """A key or a value in the versions `first` to `last`."""

    def __init__(self, message: Message, first: int, last: int) -> None:
        self.message = message
        self.first = first
        self.last = last

    def has(self, version: int) -> bool:
        return self.first <= version <= self.last

    def encode(self, version: int, values: Mapping[str, object]) -> bytes:
        """The version and the message, by the rules of `protocol.schema`. Raises ProtocolError, TypeError."""
        self._check(version)
        return version.to_bytes(_VERSION_BYTES, "big") + _codec(self.message, version).encode(values)

    def decode(self, data: Buffer) -> Any:
        """The message as a construct Container with every declared field. Raises ProtocolError."""
        version = record_version(data)
        self._check(version)
        return _codec(self.message, version).decode(data[_VERSION_BYTES:])

    def _check(self, version: int) -> None:
        if not self.has(version):
            raise ProtocolError(
                f"{self.message.name} version {version}: expected {self.first} to {self.last}"
            )


@cache
def _codec(message: Message, version: int) -> "Codec":
    from tidelog.protocol.codecs import Codec

    return Codec(message, version, MAX_ELEMENTS)
