"""Unsigned varints in a buffer.

Owns: the 7-bit groups, least significant first, and their limit: 32 bits in at most five bytes.

Invariants: nothing is read past the end of the buffer. A varint that is cut off or too long is a
ProtocolError.

Source: KIP-482.
"""

from typing import Final

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.types import Buffer

MAX_UNSIGNED_VARINT: Final = 4294967295
MAX_SKIPPED_TAGGED_FIELDS: Final = 1024

_SINGLE_BYTES: Final = tuple(bytes((value,)) for value in range(128))


def unsigned_varint(value: int) -> bytes:
    """The bytes of a value from 0 to 4294967295. Raises ProtocolError for any other."""
    if 0 <= value < 128:
        return _SINGLE_BYTES[value]
    if not 0 <= value <= MAX_UNSIGNED_VARINT:
        raise ProtocolError(f"expected a varint from 0 to {MAX_UNSIGNED_VARINT}, got {value}")
    octets = bytearray()
    while value >= 128:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def read_unsigned_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The value at the position, and the position after it. Raises ProtocolError."""
    value = 0
    end = len(buffer)
    for shift in (0, 7, 14, 21, 28):
        if position >= end:
            raise ProtocolError("expected another byte of a varint, got the end of the message")
        bits = buffer[position]
        position += 1
        value |= (bits & 0x7F) << shift
        if bits < 0x80:
            if value > MAX_UNSIGNED_VARINT:
                break
            return value, position
    raise ProtocolError("expected a varint of at most 32 bits in five bytes, got a longer one")


def skip_tagged_fields(buffer: Buffer, position: int) -> int:
    """The position after the section of tagged fields that starts here. Raises ProtocolError.

    A section may hold `MAX_SKIPPED_TAGGED_FIELDS`: more are never needed, and millions would take too long.
    """
    count, position = read_unsigned_varint(buffer, position)
    if count > MAX_SKIPPED_TAGGED_FIELDS:
        raise ProtocolError(f"expected at most {MAX_SKIPPED_TAGGED_FIELDS} tagged fields, got {count}")
    for _ in range(count):
        tag, position = read_unsigned_varint(buffer, position)
        size, position = read_unsigned_varint(buffer, position)
        remain = len(buffer) - position
        if size > remain:
            raise ProtocolError(f"expected {size} bytes of tagged field {tag}, {remain} bytes remain")
        position += size
    return position
