"""Builds, from a declaration and a version, the construct type that reads and writes the message.

Owns: the meaning of `protocol.messages.declaration`: which fields a version has, whether they are compact or
classic, nullable or tagged, and their defaults. `Codec` turns each `WireError` into a `ProtocolError`.

Invariants: everything that depends on the version is decided here, once, when a codec is built. Decoding and
encoding do not check the version. For any bytes `Codec.decode` raises only ProtocolError.

Import it lazily, because it imports construct.
"""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.messages.declaration import Field, Message, version_in
from tidelog.protocol.primitives import (
    NUMBERS,
    ArrayOf,
    Blob,
    NumberArray,
    Text,
    Uuid,
    WireError,
    WireStream,
    remaining,
)
from tidelog.protocol.steps import Pace, Steps, finish
from tidelog.protocol.structs import StructOrNull, WireStruct
from tidelog.protocol.types import Buffer


class Codec:
    """One message in one version.

    `max_elements` limits the array elements and tagged fields of one body, and so the cost of a peer's bytes.
    """

    def __init__(self, message: Message, version: int, max_elements: int) -> None:
        self.max_elements = max_elements
        self.label = f"{message.name} version {version}"
        flexible = version_in(version, message.flexible)
        struct = _struct(message.name, message.fields, version, flexible)
        self._is_long = struct.is_long
        self._compiled = struct.compile()

    def decode(self, body: Buffer, *, whole: bool = True) -> Any:
        """The body as a Container. Raises ProtocolError with the path of the wrong field.

        `whole`: bytes after the last field are an error.
        """
        return finish(self.decode_steps(body, whole=whole))

    def decode_steps(self, body: Buffer, *, whole: bool = True) -> Steps[Any]:
        """`decode` in steps. The body is copied first."""
        stream = WireStream(body, self.max_elements)
        try:
            values = self._compiled.parsefunc(stream, Pace())
            if self._is_long:
                values = yield from values
        except WireError as error:
            raise ProtocolError(f"{self.label}: {error}") from None
        rest = remaining(stream)
        if rest and whole:
            size = stream.tell()
            raise ProtocolError(f"{self.label}: expected {size} bytes, got {size + rest}")
        return values

    def encode(self, values: Mapping[str, object]) -> bytes:
        """The body's bytes. Raises ProtocolError for a wrong value, TypeError for an unknown name."""
        return finish(self.encode_steps(values))

    def encode_steps(self, values: Mapping[str, object]) -> Steps[bytes]:
        """`encode` in steps."""
        stream = BytesIO()
        try:
            steps = self._compiled.buildfunc(values, stream, Pace())
            if self._is_long:
                yield from steps
        except WireError as error:
            raise ProtocolError(f"{self.label}: {error}") from None
        return stream.getvalue()


def _struct(label: str, fields: tuple[Field, ...], version: int, flexible: bool) -> WireStruct:
    present = [field for field in fields if version_in(version, field.versions)]
    typed = [(field, _wire_type(f"{label}.{field.name}", field, version, flexible)) for field in present]
    return WireStruct(
        label,
        [(field, wire_type) for field, wire_type in typed if field.tag is None],
        [(field, wire_type) for field, wire_type in typed if field.tag is not None],
        [field for field in fields if field not in present],
        flexible=flexible,
    )


def _wire_type(label: str, field: Field, version: int, flexible: bool) -> Any:
    nullable = version_in(version, field.nullable)
    if not field.is_array:
        return _element(label, field, version, flexible, nullable=nullable)
    if field.element_type in NUMBERS:
        return NumberArray(field.element_type, compact=flexible, nullable=nullable)
    element = _element(label, field, version, flexible, nullable=False)
    return ArrayOf(element, compact=flexible, nullable=nullable)


def _element(label: str, field: Field, version: int, flexible: bool, *, nullable: bool) -> Any:
    match field.element_type:
        case "string":
            return Text(compact=flexible, nullable=nullable)
        case "bytes" | "records":
            return Blob(compact=flexible, nullable=nullable)
        case "uuid":
            return Uuid()
        case "struct":
            struct = _struct(label, field.fields, version, flexible)
            return StructOrNull(struct) if nullable else struct
        case kind if kind in NUMBERS:
            return NUMBERS[kind]
        case unknown:
            raise TypeError(f"{label} is declared with the unknown type {unknown!r}")
