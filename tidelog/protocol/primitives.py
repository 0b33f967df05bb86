"""What emitted codecs call: lengths, strings, bytes, uuids and tagged fields, and the errors of all of them.

Owns: how one value is encoded and decoded where `protocol.emitter` does not write it into the codec itself,
the limits on lengths and counts, and which error a byte or a value gets that does not fit.

Invariants: a length or a count is compared with the remaining bytes before memory is allocated. A message has
a budget of elements, because an element of two bytes becomes an object of hundreds. Every error is a
`WireError`, which says what was expected and what came; the codec adds the path of the field.

Source: the protocol guide's "Protocol Primitive Types"; KIP-482 for the compact forms.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import lru_cache
from struct import Struct
from typing import Any, Final, NamedTuple
from uuid import UUID

from tidelog.protocol import varint
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.messages.declaration import ZERO, Field
from tidelog.protocol.types import Buffer

MAX_STRING_BYTES: Final = 32767
MAX_BYTES: Final = 2147483647
NULL: Final = -1
_SMALLEST_TAGGED_FIELD_BYTES: Final = 2

NUMBERS: Final[Mapping[str, str]] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
}
"""The formats of `struct` by the name of the type."""
ZEROS: Final[Mapping[str, object]] = {
    **dict.fromkeys(NUMBERS, 0),
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": UUID(int=0),
}

_INT16 = Struct(">h")
_INT32 = Struct(">i")


class WireError(Exception):
    """Says what was expected and what came. `within` is the path from where the codec is to the fault."""

    def __init__(self, fault: str, *within: str) -> None:
        super().__init__(fault)
        self.fault = fault
        self.within = within


FAULTS: Final = (WireError, struct.error, IndexError, UnicodeError)
"""The exceptions of an emitted codec for bytes or values that do not fit."""


class Place(NamedTuple):
    """What a statement of an emitted codec reads or writes.

    A number in `path` is that of a variable, the index of a loop. `numbers` are read or written together; the
    variable `of` is the mapping that has them. `read_length` raises the error of a length that is cut off.
    """

    path: tuple[str | int, ...]
    numbers: tuple[Field, ...] = ()
    of: int | None = None
    read_length: Callable[[Buffer, int], object] | None = None


def located(
    label: str, error: Exception, place: Place, variables: tuple[Any, ...], data: Buffer, at: int
) -> ProtocolError:
    """The error with the path of the field. `at` is a position in the `data` that is decoded."""
    within: tuple[str, ...] = ()
    match error:
        case WireError():
            fault, within = error.fault, error.within
        case UnicodeDecodeError():
            fault = f"expected UTF-8, got {shown(error.object)} ({error.reason})"
        case UnicodeEncodeError():
            fault = f"expected text that UTF-8 can encode, got {shown(error.object)} ({error.reason})"
        case _:
            fault, within = _misfit(place, variables, data, at)
    steps = (f"[{variables[step]}]" if isinstance(step, int) else f".{step}" for step in place.path)
    path = "".join((*steps, *(f".{name}" for name in within))).removeprefix(".")
    return ProtocolError(f"{label}: {path}: {fault}" if path else f"{label}: {fault}")


def _misfit(place: Place, variables: tuple[Any, ...], data: Buffer, at: int) -> tuple[str, tuple[str, ...]]:
    """What is wrong with the first number that does not fit, and its name; or with a length."""
    try:
        if place.read_length is not None:
            place.read_length(data, at)
    except WireError as error:
        return error.fault, ()
    for field in place.numbers:
        if place.of is None:
            at += struct.calcsize(NUMBERS[field.type])
            if at > len(data):
                return f"expected {field.type}, got the end of the message", (field.name,)
        else:
            value = variables[place.of].get(field.name, default_of(field))
            try:
                struct.pack(NUMBERS[field.type], value)
            except struct.error:
                return f"expected {field.type}, got {shown(value)}", (field.name,)
    raise AssertionError(place)


def shown(value: object) -> str:
    """A value for an error message, shortened so that a peer cannot make the message long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def default_of(field: Field) -> object:
    """The value of a missing field, which nobody may change. {} is a struct of defaults."""
    if field.default is not ZERO:
        return field.default
    if field.is_array:
        return []
    return {} if field.type == "struct" else ZEROS[field.type]


def is_default(field: Field, value: object) -> bool:
    """Whether the value means the same as a missing field."""
    if field.default is ZERO and field.is_array:
        return value is not None and not value
    if field.default is ZERO and field.type == "struct":
        inner = {inner.name: inner for inner in field.fields}
        return isinstance(value, Mapping) and all(
            name in inner and is_default(inner[name], element) for name, element in value.items()
        )
    return value == default_of(field)


def read_varint(data: Buffer, at: int) -> tuple[int, int]:
    """0 to 4294967295 in at most five bytes, and the position after it."""
    try:
        return varint.read_unsigned_varint(data, at)
    except ProtocolError as error:
        raise WireError(str(error)) from None


def read_compact_length(data: Buffer, at: int) -> tuple[int, int]:
    """A varint of length + 1; and the position after it, as with the other lengths."""
    length, at = read_varint(data, at)
    return length - 1, at


def read_int16_length(data: Buffer, at: int) -> tuple[int, int]:
    return _read_length(_INT16, data, at)


def read_int32_length(data: Buffer, at: int) -> tuple[int, int]:
    return _read_length(_INT32, data, at)


def _read_length(packer: Struct, data: Buffer, at: int) -> tuple[int, int]:
    remain = len(data) - at
    if remain < packer.size:
        raise WireError(f"expected a length of {packer.size} bytes, {remain} bytes remain")
    return packer.unpack_from(data, at)[0], at + packer.size


def read_text(data: Buffer, length: int, at: int, nullable: bool) -> tuple[str | None, int]:
    """A UTF-8 string of at most 32767 bytes, or None; and the position after it."""
    if length < 0:
        check_null("a string", length, nullable)
        return None, at
    if length > MAX_STRING_BYTES:
        raise WireError(f"expected a string of at most {MAX_STRING_BYTES} bytes, got length {length}")
    end = at + length
    if end > len(data):
        raise WireError(f"expected a string of {length} bytes, {len(data) - at} bytes remain")
    return str(data[at:end], "utf-8"), end


def read_bytes(data: Buffer, length: int, at: int, nullable: bool) -> tuple[Buffer | None, int]:
    """Bytes or records, or None; and the position after them. They are a slice of `data`."""
    if length < 0:
        check_null("bytes", length, nullable)
        return None, at
    end = at + length
    if end > len(data):
        raise WireError(f"expected {length} bytes, {len(data) - at} bytes remain")
    return data[at:end], end


def check_null(noun: str, length: int, nullable: bool) -> None:
    """Raise WireError if the negative length is not that of null, or null is not allowed."""
    if length != NULL or not nullable:
        came = "null" if length == NULL else f"length {length}"
        raise WireError(f"expected {noun}{' or null' if nullable else ''}, got {came}")


def read_uuid(data: Buffer, at: int) -> UUID:
    """Sixteen bytes. The zero uuid means none."""
    octets = data[at : at + 16]
    if len(octets) != 16:
        raise WireError(f"expected a uuid of 16 bytes, {len(octets)} bytes remain")
    return _uuid(bytes(octets))


# Ids of topics repeat in each request.
@lru_cache(4096)
def _uuid(octets: bytes) -> UUID:
    return UUID(bytes=octets)


def check_count(count: int, smallest: int, remain: int, left: int) -> None:
    """Raise WireError if the remaining bytes or the message's budget cannot hold so many elements."""
    if count * smallest > remain:
        raise WireError(f"expected {count} elements of {smallest} bytes or more, {remain} bytes remain")
    if count > left:
        raise WireError(f"expected at most {left} more elements in the message, got {count}")


def read_tag_count(data: Buffer, at: int, left: int) -> tuple[int, int]:
    """The number of tagged fields, and the position of the first. `left` elements may still be read."""
    count, at = read_varint(data, at)
    if count > varint.MAX_SKIPPED_TAGGED_FIELDS:
        raise WireError(f"expected at most {varint.MAX_SKIPPED_TAGGED_FIELDS} tagged fields, got {count}")
    check_count(count, _SMALLEST_TAGGED_FIELD_BYTES, len(data) - at, left)
    return count, at


def read_tag(data: Buffer, at: int, previous: int) -> tuple[int, int, int]:
    """The next tag, and where its value begins and ends."""
    tag, at = read_varint(data, at)
    size, at = read_varint(data, at)
    if tag <= previous:
        raise WireError(f"expected tags in ascending order, got {tag} after {previous}")
    remain = len(data) - at
    if size > remain:
        raise WireError(f"expected {size} bytes of tagged field {tag}, {remain} bytes remain")
    return tag, at, at + size


def check_tag(begin: int, at: int, end: int) -> None:
    """Raise WireError unless the value of a tagged field, which was read up to `at`, is the whole of it."""
    if at != end:
        raise WireError(f"expected {at - begin} bytes of tagged field, got {end - begin}")


def skip_tags(data: Buffer, at: int, left: int) -> tuple[int, int]:
    """The number of tagged fields that begin here, none of them known, and the position after them."""
    count, at = read_tag_count(data, at, left)
    tag = -1
    for _ in range(count):
        tag, _, at = read_tag(data, at, tag)
    return count, at


def compact_length(length: int) -> bytes:
    """-1 is null, as with the other lengths."""
    return varint.unsigned_varint(length + 1)


int16_length: Final = _INT16.pack
int32_length: Final = _INT32.pack


def text_bytes(value: object, length: Callable[[int], bytes], nullable: bool) -> bytes:
    """The length and the UTF-8 of a string, or a null."""
    if value is None:
        return _null_bytes("a string", length, nullable)
    if not isinstance(value, str):
        raise WireError(f"expected str, got {shown(value)}")
    data = value.encode()
    if len(data) > MAX_STRING_BYTES:
        raise WireError(f"expected a string of at most {MAX_STRING_BYTES} bytes, got {len(data)} bytes")
    return length(len(data)) + data


def bytes_length(value: object, length: Callable[[int], bytes], nullable: bool) -> bytes:
    """The length of bytes, bytearray or memoryview, or a null."""
    if value is None:
        return _null_bytes("bytes", length, nullable)
    if not isinstance(value, bytes | bytearray | memoryview):
        raise WireError(f"expected bytes, bytearray or memoryview, got {shown(value)}")
    size = value.nbytes if isinstance(value, memoryview) else len(value)
    if size > MAX_BYTES:
        raise WireError(f"expected at most {MAX_BYTES} bytes, got {size}")
    return length(size)


def records_length(value: object, length: Callable[[int], bytes], nullable: bool) -> bytes:
    """`bytes_length` of records, which may be several buffers."""
    if isinstance(value, list | tuple):
        return length(sum(map(len, value)))
    return bytes_length(value, length, nullable)


def buffers_of(records: Buffer | Sequence[Buffer]) -> Sequence[Buffer]:
    return (records,) if isinstance(records, bytes | bytearray | memoryview) else records


def _null_bytes(noun: str, length: Callable[[int], bytes], nullable: bool) -> bytes:
    if not nullable:
        raise WireError(f"expected {noun}, got None")
    return length(NULL)


def uuid_bytes(value: object) -> bytes:
    if not isinstance(value, UUID):
        raise WireError(f"expected uuid.UUID, got {shown(value)}")
    return value.bytes


def check_array(value: object) -> None:
    """Raise WireError unless `value` is a list or a tuple."""
    if value is None:
        raise WireError("expected an array, got None")
    if not isinstance(value, list | tuple):
        raise WireError(f"expected a list, got {shown(value)}")


def number_bytes(values: list[Any], kind: str) -> bytes:
    """The numbers of an array, without their count, at a tenth of a microsecond per number."""
    try:
        return struct.pack(f">{len(values)}{NUMBERS[kind]}", *values)
    except (struct.error, TypeError):
        raise WireError(f"expected {kind} elements, got {shown(values)}") from None


def check_names(values: Any, label: str, names: Set[str]) -> None:
    """Raise WireError unless `values` is a mapping, TypeError if `label` lacks one of its names."""
    if not isinstance(values, Mapping):
        raise WireError(f"expected a mapping for {label}, got {shown(values)}")
    unknown = values.keys() - names
    if unknown:
        said = ", ".join(sorted(map(str, unknown)))
        raise TypeError(f"{label} has no field {said}; it has {', '.join(sorted(names))}")


def check_absent(values: Mapping[str, object], absent: Iterable[Field]) -> None:
    """Raise WireError if a field that the version lacks has another value than its default."""
    for field in absent:
        if field.name in values and not is_default(field, values[field.name]):
            came = shown(values[field.name])
            fault = f"expected the default, because this version lacks the field, got {came}"
            raise WireError(fault, field.name)
