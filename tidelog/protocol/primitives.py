"""The types of the wire as construct types: construct's numbers, and our strings, bytes, uuids and arrays.

Owns: how one value is encoded and decoded, in the classic and the compact form, nullable or not, and the
limits on lengths and counts.

Invariants: a length or a count is compared with the remaining bytes before memory is allocated. A message has
a budget of elements, because an element of two bytes becomes an object of hundreds. For any bytes, a compiled
codec raises only `WireError`. A `WireError` collects the path of the field while it propagates, so valid
messages pay nothing for paths. construct's context is here the Pace of the message: types count in it their
work beyond one element.

Importing it imports construct, which takes tens of milliseconds, so only `protocol.schema`'s lazy codecs do.
Source: the protocol guide's "Protocol Primitive Types"; KIP-482 for the compact forms.
"""

import struct
from collections.abc import Callable, Mapping
from io import BytesIO
from struct import Struct as Packer
from typing import Any, Final
from uuid import UUID

from construct import (
    Construct,
    ConstructError,
    Float64b,
    FormatField,
    Int8sb,
    Int16sb,
    Int16ub,
    Int32sb,
    Int64sb,
)

from tidelog.protocol import varint
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.steps import NUMBERS_PER_ELEMENT, Pace, Steps
from tidelog.protocol.types import Buffer

MAX_STRING_BYTES: Final = 32767
MAX_BYTES: Final = 2147483647
NULL: Final = -1
_TEXT_BYTES_PER_ELEMENT: Final = 1024

# construct's compiled Flag reads true at the end of the message.
NUMBERS: Final[Mapping[str, FormatField]] = {
    "bool": FormatField(">", "?"),
    "int8": Int8sb,
    "int16": Int16sb,
    "uint16": Int16ub,
    "int32": Int32sb,
    "int64": Int64sb,
    "float64": Float64b,
}

_INT16 = Packer(">h")
_INT32 = Packer(">i")


class WireError(ConstructError):  # type: ignore[misc]
    """Says what was expected and what came. `within` adds the path, innermost step first."""

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self.fault = fault
        self.steps: list[str | int] = []

    def within(self, step: str | int) -> None:
        self.steps.append(step)

    def __str__(self) -> str:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in reversed(self.steps))
        return f"{where.removeprefix('.')}: {self.fault}" if where else self.fault


FAULTS: Final = (ConstructError, struct.error)
"""The exceptions of compiled code for bytes or values that do not fit."""


class WireType(Construct):  # type: ignore[misc]
    """A construct type that knows the smallest size of its values.

    With `is_long` only the message limits a value, and the compiled code is a generator of steps.
    """

    minimum_size: int = 1
    is_long: bool = False


class WireStream(BytesIO):
    """The bytes of one message, and how many array elements and tagged fields may still be read from them."""

    def __init__(self, data: Buffer, max_elements: int) -> None:
        super().__init__(data)
        self.elements_left = max_elements


def claim_elements(stream: WireStream, count: int, smallest: int) -> None:
    """Raise WireError if the remaining bytes or the message's budget cannot hold so many elements."""
    rest = remaining(stream)
    if count * smallest > rest:
        raise WireError(f"expected {count} elements of {smallest} bytes or more, {rest} bytes remain")
    if count > stream.elements_left:
        raise WireError(f"expected at most {stream.elements_left} more elements in the message, got {count}")
    stream.elements_left -= count


def remaining(stream: BytesIO) -> int:
    """The number of bytes after the position."""
    return stream.getbuffer().nbytes - stream.tell()


def shown(value: object) -> str:
    """A value for an error message, shortened so that a peer cannot make the message long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def read_unsigned_varint(stream: BytesIO) -> int:
    """0 to 4294967295 in at most five bytes."""
    octets = stream.read(1)
    if octets and octets < b"\x80":
        return octets[0]
    octets += stream.read(4)
    try:
        value, size = varint.read_unsigned_varint(octets, 0)
    except ProtocolError as error:
        raise WireError(str(error)) from None
    stream.seek(size - len(octets), 1)
    return value


def _read_packed_length(packer: Packer) -> Callable[[BytesIO], int]:
    def read(stream: BytesIO) -> int:
        data = stream.read(packer.size)
        if len(data) != packer.size:
            raise WireError(f"expected a length of {packer.size} bytes, {len(data)} bytes remain")
        length: int = packer.unpack(data)[0]
        return length

    return read


def _read_compact_length(stream: BytesIO) -> int:
    return read_unsigned_varint(stream) - 1


def _compact_length(length: int) -> bytes:
    return varint.unsigned_varint(length + 1)


class _Sized(WireType):
    """A value after its length: classic (int16 or int32, -1 is null) or compact (varint of length + 1)."""

    noun = "value"

    def __init__(self, classic: Packer, *, compact: bool, nullable: bool) -> None:
        super().__init__()
        self.nullable = nullable
        self.minimum_size = 1 if compact else classic.size
        self._read_length = _read_compact_length if compact else _read_packed_length(classic)
        self._length = _compact_length if compact else classic.pack

    def _length_or_null(self, stream: BytesIO) -> int:
        length = self._read_length(stream)
        if length < 0 and not (length == NULL and self.nullable):
            came = "null" if length == NULL else f"length {length}"
            raise WireError(f"expected {self.noun}{' or null' if self.nullable else ''}, got {came}")
        return length

    def _build_null(self, stream: BytesIO) -> None:
        if not self.nullable:
            raise WireError(f"expected {self.noun}, got None")
        stream.write(self._length(NULL))


class Text(_Sized):
    """A UTF-8 string of at most 32767 bytes as str, or None."""

    noun = "a string"

    def __init__(self, *, compact: bool, nullable: bool) -> None:
        super().__init__(_INT16, compact=compact, nullable=nullable)

    def _parse(self, stream: BytesIO, context: Pace, path: str) -> str | None:
        length = self._length_or_null(stream)
        if length < 0:
            return None
        if length > MAX_STRING_BYTES:
            raise WireError(f"expected a string of at most {MAX_STRING_BYTES} bytes, got length {length}")
        data = stream.read(length)
        if len(data) != length:
            raise WireError(f"expected a string of {length} bytes, {len(data)} bytes remain")
        if length >= _TEXT_BYTES_PER_ELEMENT:
            context.left -= length // _TEXT_BYTES_PER_ELEMENT
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise WireError(f"expected UTF-8, got {shown(data)} ({error.reason})") from None

    def _build(self, obj: Any, stream: BytesIO, context: Pace, path: str) -> Any:
        if obj is None:
            self._build_null(stream)
            return obj
        if not isinstance(obj, str):
            raise WireError(f"expected str, got {shown(obj)}")
        try:
            data = obj.encode()
        except UnicodeEncodeError as error:
            raise WireError(
                f"expected text that UTF-8 can encode, got {shown(obj)} ({error.reason})"
            ) from None
        if len(data) > MAX_STRING_BYTES:
            raise WireError(f"expected a string of at most {MAX_STRING_BYTES} bytes, got {len(data)} bytes")
        if len(data) >= _TEXT_BYTES_PER_ELEMENT:
            context.left -= len(data) // _TEXT_BYTES_PER_ELEMENT
        stream.write(self._length(len(data)))
        stream.write(data)
        return obj


class Blob(_Sized):
    """Bytes or records as bytes, or None."""

    noun = "bytes"

    def __init__(self, *, compact: bool, nullable: bool) -> None:
        super().__init__(_INT32, compact=compact, nullable=nullable)

    def _parse(self, stream: BytesIO, context: Pace, path: str) -> bytes | None:
        length = self._length_or_null(stream)
        if length < 0:
            return None
        data = stream.read(length)
        if len(data) != length:
            raise WireError(f"expected {length} bytes, {len(data)} bytes remain")
        return data

    def _build(self, obj: Any, stream: BytesIO, context: Pace, path: str) -> Any:
        if obj is None:
            self._build_null(stream)
            return obj
        if not isinstance(obj, bytes | bytearray | memoryview):
            raise WireError(f"expected bytes, bytearray or memoryview, got {shown(obj)}")
        size = obj.nbytes if isinstance(obj, memoryview) else len(obj)
        if size > MAX_BYTES:
            raise WireError(f"expected at most {MAX_BYTES} bytes, got {size}")
        stream.write(self._length(size))
        stream.write(obj)
        return obj


class Uuid(WireType):
    """Sixteen bytes as uuid.UUID. The zero uuid means none."""

    minimum_size = 16

    def _parse(self, stream: BytesIO, context: Pace, path: str) -> UUID:
        data = stream.read(16)
        if len(data) != 16:
            raise WireError(f"expected a uuid of 16 bytes, {len(data)} bytes remain")
        return UUID(bytes=data)

    def _build(self, obj: Any, stream: BytesIO, context: Pace, path: str) -> Any:
        if not isinstance(obj, UUID):
            raise WireError(f"expected uuid.UUID, got {shown(obj)}")
        stream.write(obj.bytes)
        return obj


class _Array(_Sized):
    """A list of elements, or None. A count too large for the remaining bytes is an error before any read."""

    noun = "an array"

    def __init__(self, smallest_element: int, *, compact: bool, nullable: bool) -> None:
        super().__init__(_INT32, compact=compact, nullable=nullable)
        self._smallest_element = max(1, smallest_element)

    def _count_or_null(self, stream: WireStream) -> int:
        count = self._length_or_null(stream)
        if count > 0:
            claim_elements(stream, count, self._smallest_element)
        return count

    def _build_count(self, obj: Any, stream: BytesIO) -> int:
        if obj is None:
            self._build_null(stream)
            return 0
        if not isinstance(obj, list | tuple):
            raise WireError(f"expected a list, got {shown(obj)}")
        stream.write(self._length(len(obj)))
        return len(obj)


class ArrayOf(_Array):
    """An array of structs, strings, bytes or uuids, which is read and written in steps."""

    is_long = True

    def __init__(self, element: WireType, *, compact: bool, nullable: bool) -> None:
        super().__init__(element.minimum_size, compact=compact, nullable=nullable)
        self.element = element

    def _emitparse(self, code: Any) -> str:
        code.linkedinstances[id(self)] = self
        parse = f"lambda io, this: {self.element._compileparse(code)}"
        return f"(yield from linkedinstances[{id(self)}].parse_steps(io, this, {parse}))"

    def _emitbuild(self, code: Any) -> str:
        code.linkedinstances[id(self)] = self
        build = f"lambda obj, io, this: {self.element._compilebuild(code)}"
        return f"(yield from linkedinstances[{id(self)}].build_steps(obj, io, this, {build}))"

    def parse_steps(
        self, stream: WireStream, pace: Pace, parse: Callable[[WireStream, Pace], Any]
    ) -> Steps[list[Any] | None]:
        """Read the array at this position; `parse` reads its elements. Raises WireError."""
        count = self._count_or_null(stream)
        if count < 0:
            return None
        values: list[Any] = []
        is_long = self.element.is_long
        try:
            for _ in range(count):
                value = parse(stream, pace)
                values.append((yield from value) if is_long else value)
                if pace.spent():
                    yield
        except WireError as error:
            error.within(len(values))
            raise
        return values

    def build_steps(
        self, obj: Any, stream: BytesIO, pace: Pace, build: Callable[[Any, BytesIO, Pace], Any]
    ) -> Steps[None]:
        """Write an array; `build` writes its elements. Raises WireError."""
        if not self._build_count(obj, stream):
            return
        is_long = self.element.is_long
        index = 0
        try:
            for index, value in enumerate(obj):  # noqa: B007
                steps = build(value, stream, pace)
                if is_long:
                    yield from steps
                if pace.spent():
                    yield
        except WireError as error:
            error.within(index)
            raise


class NumberArray(_Array):
    """An array of numbers, read and written together, at a tenth of a microsecond per number."""

    def __init__(self, kind: str, *, compact: bool, nullable: bool) -> None:
        number = NUMBERS[kind]
        super().__init__(number.length, compact=compact, nullable=nullable)
        self._kind = kind
        self._format = number.fmtstr[1:]

    def _parse(self, stream: WireStream, context: Pace, path: str) -> list[Any] | None:
        count = self._count_or_null(stream)
        if count < 0:
            return None
        packer = Packer(f">{count}{self._format}")
        context.left -= count // NUMBERS_PER_ELEMENT
        return list(packer.unpack(stream.read(packer.size)))

    def _build(self, obj: Any, stream: BytesIO, context: Pace, path: str) -> Any:
        count = self._build_count(obj, stream)
        if count:
            context.left -= count // NUMBERS_PER_ELEMENT
            try:
                stream.write(struct.pack(f">{count}{self._format}", *obj))
            except (struct.error, TypeError):
                raise WireError(f"expected {self._kind} elements, got {shown(obj)}") from None
        return obj
