"""From a declaration and a version to the construct type that reads and writes it.

Owns: the meaning of `protocol.messages.declaration`: which field a version has, compact or classic, nullable,
tagged, and what default stands for it. `Codec` is the edge where a `WireError` becomes a `ProtocolError`.

Invariants: every value of a declaration is decided here, once, when a codec is built; decoding and encoding
look at no version. For any bytes `Codec.decode` raises ProtocolError or nothing.

To be imported lazily: this module brings construct with it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from typing import Any, Final
from uuid import UUID

from construct import Container

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.messages.declaration import ZERO, Field, Message, version_in
from tidelog.protocol.primitives import (
    SCALAR_FORMATS,
    ArrayOf,
    Blob,
    ScalarArray,
    ScalarRun,
    Text,
    Uuid,
    WireError,
    WireStream,
    WireType,
    remaining,
)
from tidelog.protocol.steps import Pace, Steps, finish
from tidelog.protocol.structs import Absent, Member, Tagged, WireStruct
from tidelog.protocol.types import Buffer

_NO_UUID: Final = UUID(int=0)
_ZEROS: Final[Mapping[str, object]] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": _NO_UUID,
}


class Codec:
    """One message in one version. `wire_type` is the construct type.

    `max_elements` bounds the array elements and tagged fields of one body: what a peer's bytes may cost.
    """

    def __init__(self, message: Message, version: int, max_elements: int) -> None:
        self.max_elements = max_elements
        self.label = f"{message.name} version {version}"
        flexible = version_in(version, message.flexible)
        self.wire_type = _struct(message.name, message.fields, version, flexible)

    def decode(self, body: Buffer, *, whole: bool = True) -> Any:
        """The body as a Container. Raises ProtocolError with the path of the field at fault.

        `whole`: bytes behind the last field are an error too.
        """
        return finish(self.decode_steps(body, whole=whole))

    def decode_steps(self, body: Buffer, *, whole: bool = True) -> Steps[Any]:
        """What `decode` gives, in steps. The body is copied first."""
        stream = WireStream(body, self.max_elements)
        try:
            values = yield from self.wire_type.parse_steps(stream, Pace())
        except WireError as error:
            raise ProtocolError(f"{self.label}: {error}") from None
        rest = remaining(stream)
        if rest and whole:
            size = stream.tell()
            raise ProtocolError(f"{self.label}: expected {size} bytes, came {size + rest}")
        return values

    def encode(self, values: Mapping[str, object]) -> bytes:
        """The body's bytes. ProtocolError for a value that does not fit, TypeError for an unknown name."""
        return finish(self.encode_steps(values))

    def encode_steps(self, values: Mapping[str, object]) -> Steps[bytes]:
        """What `encode` gives, in steps."""
        stream = BytesIO()
        try:
            yield from self.wire_type.build_steps(values, stream, Pace())
        except WireError as error:
            raise ProtocolError(f"{self.label}: {error}") from None
        return stream.getvalue()


def _struct(label: str, fields: tuple[Field, ...], version: int, flexible: bool) -> WireStruct:
    members: list[Member | ScalarRun] = []
    run: list[tuple[str, str, object]] = []
    tagged: list[Tagged] = []
    absent: list[Absent] = []
    for field in fields:
        if not version_in(version, field.versions):
            absent.append(
                Absent(field.name, _fresh_default(field), field.ignorable, partial(_is_default, field))
            )
            continue
        if field.tag is None and field.type in SCALAR_FORMATS:
            run.append((field.name, field.type, _fresh_default(field)()))
            continue
        wire_type = _wire_type(f"{label}.{field.name}", field, version, flexible)
        if field.tag is not None:
            tagged.append(_tagged(field, field.tag, wire_type))
            continue
        if run:
            members.append(ScalarRun(run))
            run = []
        members.append(Member(field.name, wire_type, _fresh_default(field)()))
    if run:
        members.append(ScalarRun(run))
    return WireStruct(label, members, tagged, absent, flexible=flexible)


def _tagged(field: Field, tag: int, wire_type: WireType) -> Tagged:
    fresh_default = _fresh_default(field)
    stream = BytesIO()
    wire_type._build(fresh_default(), stream, None, "")
    return Tagged(tag, field.name, wire_type, fresh_default, stream.getvalue())


def _wire_type(label: str, field: Field, version: int, flexible: bool) -> WireType:
    nullable = version_in(version, field.nullable)
    if not field.is_array:
        return _element(label, field, version, flexible, nullable=nullable)
    if field.element_type in SCALAR_FORMATS:
        return ScalarArray(field.element_type, compact=flexible, nullable=nullable)
    element = _element(label, field, version, flexible, nullable=False)
    return ArrayOf(element, compact=flexible, nullable=nullable)


def _element(label: str, field: Field, version: int, flexible: bool, *, nullable: bool) -> WireType:
    match field.element_type:
        case "string":
            return Text(compact=flexible, nullable=nullable)
        case "bytes" | "records":
            return Blob(compact=flexible, nullable=nullable)
        case "uuid":
            return Uuid()
        case "struct":
            return _struct(label, field.fields, version, flexible)
        case kind if kind in SCALAR_FORMATS:
            return _Scalar(kind)
        case unknown:
            raise TypeError(f"{label} is declared with the unknown type {unknown!r}")


class _Scalar(WireType):
    """One number or boolean by itself, as a tagged field has it."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._run = ScalarRun([(kind, kind, 0)])
        self.minimum_size = self._run.minimum_size

    def _parse(self, stream: BytesIO, context: object, path: str) -> Any:
        try:
            return self._run._parse(stream, context, path)[0]
        except WireError as error:
            raise WireError(error.fault) from None

    def _build(self, obj: Any, stream: BytesIO, context: object, path: str) -> Any:
        try:
            self._run._build({self._run.names[0]: obj}, stream, context, path)
        except WireError as error:
            raise WireError(error.fault) from None
        return obj


def _fresh_default(field: Field) -> Callable[[], object]:
    """What makes the field's default: a new list or Container each time, or the same immutable value."""
    if field.default is not ZERO:
        return lambda: field.default
    if field.is_array:
        return list
    if field.type == "struct":
        factories = tuple((inner.name, _fresh_default(inner)) for inner in field.fields)
        return lambda: Container((name, factory()) for name, factory in factories)
    zero = _ZEROS[field.type]
    return lambda: zero


def _is_default(field: Field, value: object) -> bool:
    if field.default is ZERO and field.is_array:
        return not value
    if field.default is ZERO and field.type == "struct":
        return isinstance(value, Mapping) and all(
            _is_default(inner, value[inner.name]) for inner in field.fields if inner.name in value
        )
    return value == _fresh_default(field)()
