"""The wire's primitive types as construct types: varints, strings, bytes, uuids, numbers and arrays.

Owns: how one value becomes bytes and back, in the classic and the compact form, nullable or not, and the
bounds on what bytes may ask for.

Invariants: a length or a count is compared with the bytes that remain before memory is taken for it, and a
message has a budget of elements, because an element of two bytes becomes an object of hundreds. For any
bytes, parsing raises `WireError` or nothing. A `WireError` collects the path of the field while it unwinds,
so that no path is kept on the way that works. What construct calls the context is here the Pace of a message
that is read or written in steps: types count in it what they do beyond one element's work.

Importing it imports construct, which takes tens of milliseconds, so only `protocol.schema`'s lazy codecs do.
Source: the protocol guide's "Protocol Primitive Types"; KIP-482 for the compact forms.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from itertools import starmap
from struct import Struct as Packer
from typing import Any, Final
from uuid import UUID

from construct import Construct, ConstructError

from tidelog.protocol.steps import NUMBERS_AN_ELEMENT, Pace, Steps, finish
from tidelog.protocol.types import Buffer
from tidelog.protocol.varint import MAX_UNSIGNED_VARINT, unsigned_varint

MAX_STRING_BYTES: Final = 32767
MAX_BYTES: Final = 2147483647
NULL: Final = -1
_TEXT_BYTES_AN_ELEMENT: Final = 1024

SCALAR_FORMATS: Final[Mapping[str, str]] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
}

_INT16 = Packer(">h")
_INT32 = Packer(">i")


class WireError(ConstructError):  # type: ignore[misc]
    """What was expected and what came; `within` adds the path, innermost step first."""

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self.fault = fault
        self.steps: list[str | int] = []

    def within(self, step: str | int) -> None:
        self.steps.append(step)

    def __str__(self) -> str:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in reversed(self.steps))
        return f"{where.removeprefix('.')}: {self.fault}" if where else self.fault


class WireType(Construct):  # type: ignore[misc]
    """A construct type that knows the fewest bytes its value can take.

    With `is_long` a value has no bound but the message's: `parse_steps` and `build_steps` read and write it.
    """

    minimum_size: int = 1
    is_long: bool = False

    def parse_steps(self, stream: BytesIO, pace: Pace) -> Steps[Any]:
        """The value that stands here. Raises WireError."""
        return self._parse(stream, pace, "")
        yield

    def build_steps(self, obj: Any, stream: BytesIO, pace: Pace) -> Steps[None]:
        """Write the value. Raises WireError."""
        self._build(obj, stream, pace, "")
        return
        yield


class WireStream(BytesIO):
    """The bytes of one message, and how many array elements and tagged fields may still be read from them."""

    def __init__(self, data: Buffer, max_elements: int) -> None:
        super().__init__(data)
        self.elements_left = max_elements


def claim_elements(stream: BytesIO, count: int, smallest: int) -> None:
    """Refuses, before memory is taken, more elements than the bytes or the message's budget can hold."""
    room = remaining(stream)
    if count * smallest > room:
        raise WireError(f"expected {count} elements of {smallest} bytes or more, {room} bytes remain")
    if isinstance(stream, WireStream):
        if count > stream.elements_left:
            raise WireError(
                f"expected at most {stream.elements_left} more elements in the message, came {count}"
            )
        stream.elements_left -= count


def count_work(context: object, elements: int) -> None:
    """Add to the work of the step that is under way, if this message is read or written in steps."""
    if elements and isinstance(context, Pace):
        context.left -= elements


def remaining(stream: BytesIO) -> int:
    """Bytes between the position and the end."""
    here = stream.tell()
    end = stream.seek(0, 2)
    stream.seek(here)
    return end - here


def shown(value: object) -> str:
    """A value for an error message, cut so that a peer cannot make the message long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def read_unsigned_varint(stream: BytesIO) -> int:
    """0 to 4294967295 in at most five bytes."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        octet = stream.read(1)
        if not octet:
            raise WireError("expected another byte of a varint, came the end of the message")
        bits = octet[0]
        value |= (bits & 0x7F) << shift
        if bits < 0x80:
            if value > MAX_UNSIGNED_VARINT:
                break
            return value
    raise WireError("expected a varint of at most 32 bits in five bytes, came a longer one")


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
    return unsigned_varint(length + 1)


class _Sized(WireType):
    """What has a length in front: classic (int16 or int32, -1 is null) or compact (varint of length + 1)."""

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
            raise WireError(f"expected {self.noun}{' or null' if self.nullable else ''}, came {came}")
        return length

    def _build_null(self, stream: BytesIO) -> None:
        if not self.nullable:
            raise WireError(f"expected {self.noun}, came None")
        stream.write(self._length(NULL))


class Text(_Sized):
    """A UTF-8 string of at most 32767 bytes as str, or None."""

    noun = "a string"

    def __init__(self, *, compact: bool, nullable: bool) -> None:
        super().__init__(_INT16, compact=compact, nullable=nullable)

    def _parse(self, stream: BytesIO, context: object, path: str) -> str | None:
        length = self._length_or_null(stream)
        if length < 0:
            return None
        if length > MAX_STRING_BYTES:
            raise WireError(f"expected a string of at most {MAX_STRING_BYTES} bytes, came length {length}")
        data = stream.read(length)
        if len(data) != length:
            raise WireError(f"expected a string of {length} bytes, {len(data)} bytes remain")
        if length >= _TEXT_BYTES_AN_ELEMENT:
            count_work(context, length // _TEXT_BYTES_AN_ELEMENT)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise WireError(f"expected UTF-8, came {shown(data)} ({error.reason})") from None

    def _build(self, obj: Any, stream: BytesIO, context: object, path: str) -> Any:
        if obj is None:
            self._build_null(stream)
            return obj
        if not isinstance(obj, str):
            raise WireError(f"expected str, came {shown(obj)}")
        try:
            data = obj.encode()
        except UnicodeEncodeError as error:
            raise WireError(
                f"expected text that UTF-8 can hold, came {shown(obj)} ({error.reason})"
            ) from None
        if len(data) > MAX_STRING_BYTES:
            raise WireError(f"expected a string of at most {MAX_STRING_BYTES} bytes, came {len(data)} bytes")
        if len(data) >= _TEXT_BYTES_AN_ELEMENT:
            count_work(context, len(data) // _TEXT_BYTES_AN_ELEMENT)
        stream.write(self._length(len(data)))
        stream.write(data)
        return obj


class Blob(_Sized):
    """Bytes or records as bytes, or None."""

    noun = "bytes"

    def __init__(self, *, compact: bool, nullable: bool) -> None:
        super().__init__(_INT32, compact=compact, nullable=nullable)

    def _parse(self, stream: BytesIO, context: object, path: str) -> bytes | None:
        length = self._length_or_null(stream)
        if length < 0:
            return None
        data = stream.read(length)
        if len(data) != length:
            raise WireError(f"expected {length} bytes, {len(data)} bytes remain")
        return data

    def _build(self, obj: Any, stream: BytesIO, context: object, path: str) -> Any:
        if obj is None:
            self._build_null(stream)
            return obj
        if not isinstance(obj, bytes | bytearray | memoryview):
            raise WireError(f"expected bytes, bytearray or memoryview, came {shown(obj)}")
        size = obj.nbytes if isinstance(obj, memoryview) else len(obj)
        if size > MAX_BYTES:
            raise WireError(f"expected at most {MAX_BYTES} bytes, came {size}")
        stream.write(self._length(size))
        stream.write(obj)
        return obj


class Uuid(WireType):
    """Sixteen bytes as uuid.UUID; the zero uuid stands for none."""

    minimum_size = 16

    def _parse(self, stream: BytesIO, context: object, path: str) -> UUID:
        data = stream.read(16)
        if len(data) != 16:
            raise WireError(f"expected a uuid of 16 bytes, {len(data)} bytes remain")
        return UUID(bytes=data)

    def _build(self, obj: Any, stream: BytesIO, context: object, path: str) -> Any:
        if not isinstance(obj, UUID):
            raise WireError(f"expected uuid.UUID, came {shown(obj)}")
        stream.write(obj.bytes)
        return obj


class ScalarRun(WireType):
    """Neighbouring numbers and booleans of a struct, read and written in one step as a tuple."""

    def __init__(self, fields: Sequence[tuple[str, str, object]]) -> None:
        """`fields` are (name, type, default)."""
        super().__init__()
        self.fields = tuple(fields)
        self.names = tuple(name for name, _, _ in fields)
        self._defaults = tuple((name, default) for name, _, default in fields)
        self._packer = Packer(">" + "".join(SCALAR_FORMATS[kind] for _, kind, _ in fields))
        self.minimum_size = self._packer.size

    def _parse(self, stream: BytesIO, context: object, path: str) -> tuple[Any, ...]:
        data = stream.read(self.minimum_size)
        if len(data) != self.minimum_size:
            raise self._truncated(len(data))
        return self._packer.unpack(data)

    def _build(self, obj: Any, stream: BytesIO, context: object, path: str) -> Any:
        get = obj.get
        values = tuple(starmap(get, self._defaults))
        try:
            stream.write(self._packer.pack(*values))
        except (struct.error, TypeError):
            raise self._misfit(values) from None
        return obj

    def _truncated(self, remain: int) -> WireError:
        for name, kind, _ in self.fields:
            size = Packer(">" + SCALAR_FORMATS[kind]).size
            if remain < size:
                return _at(name, f"expected {kind} of {size} bytes, {remain} bytes remain")
            remain -= size
        return WireError("expected another field, came the end of the message")

    def _misfit(self, values: tuple[object, ...]) -> WireError:
        for (name, kind, _), value in zip(self.fields, values, strict=True):
            try:
                Packer(">" + SCALAR_FORMATS[kind]).pack(value)
            except (struct.error, TypeError):
                return _at(name, f"expected {kind}, came {shown(value)}")
        return WireError(f"expected numbers for {', '.join(self.names)}, came {shown(values)}")


class ArrayOf(_Sized):
    """A list of elements, or None. A count that cannot fit into the remaining bytes is refused unread."""

    noun = "an array"
    is_long = True

    def __init__(self, element: WireType, *, compact: bool, nullable: bool) -> None:
        super().__init__(_INT32, compact=compact, nullable=nullable)
        self.element = element
        self._element_size = max(1, element.minimum_size)

    def _count_or_null(self, stream: BytesIO) -> int:
        count = self._length_or_null(stream)
        if count > 0:
            claim_elements(stream, count, self._element_size)
        return count

    def _parse(self, stream: BytesIO, context: object, path: str) -> list[Any] | None:
        return finish(self.parse_steps(stream, Pace()))

    def _build(self, obj: Any, stream: BytesIO, context: object, path: str) -> Any:
        finish(self.build_steps(obj, stream, Pace()))
        return obj

    def parse_steps(self, stream: BytesIO, pace: Pace) -> Steps[list[Any] | None]:
        count = self._count_or_null(stream)
        if count < 0:
            return None
        values: list[Any] = []
        element = self.element
        parse = element._parse
        try:
            for _ in range(count):
                if element.is_long:
                    values.append((yield from element.parse_steps(stream, pace)))
                else:
                    values.append(parse(stream, pace, ""))
                if pace.spent():
                    yield
        except WireError as error:
            error.within(len(values))
            raise
        return values

    def build_steps(self, obj: Any, stream: BytesIO, pace: Pace) -> Steps[None]:
        if not self._build_count(obj, stream):
            return
        element = self.element
        build = element._build
        index = 0
        try:
            for index, value in enumerate(obj):  # noqa: B007
                if element.is_long:
                    yield from element.build_steps(value, stream, pace)
                else:
                    build(value, stream, pace, "")
                if pace.spent():
                    yield
        except WireError as error:
            error.within(index)
            raise

    def _build_count(self, obj: Any, stream: BytesIO) -> int:
        if obj is None:
            self._build_null(stream)
            return 0
        if not isinstance(obj, list | tuple):
            raise WireError(f"expected a list, came {shown(obj)}")
        stream.write(self._length(len(obj)))
        return len(obj)


class ScalarArray(ArrayOf):
    """A list of numbers, read and written at once, which takes a tenth of a microsecond for each."""

    is_long = False

    def __init__(self, kind: str, *, compact: bool, nullable: bool) -> None:
        super().__init__(ScalarRun([("element", kind, 0)]), compact=compact, nullable=nullable)
        self._kind = kind

    def _parse(self, stream: BytesIO, context: object, path: str) -> list[Any] | None:
        count = self._count_or_null(stream)
        if count < 0:
            return None
        packer = Packer(f">{count}{SCALAR_FORMATS[self._kind]}")
        count_work(context, count // NUMBERS_AN_ELEMENT)
        return list(packer.unpack(stream.read(packer.size)))

    def _build(self, obj: Any, stream: BytesIO, context: object, path: str) -> Any:
        count = self._build_count(obj, stream)
        if count:
            count_work(context, count // NUMBERS_AN_ELEMENT)
            try:
                stream.write(Packer(f">{count}{SCALAR_FORMATS[self._kind]}").pack(*obj))
            except (struct.error, TypeError):
                raise WireError(f"expected {self._kind} elements, came {shown(obj)}") from None
        return obj


def _at(name: str, fault: str) -> WireError:
    error = WireError(fault)
    error.within(name)
    return error
