"""A struct of the wire: construct's Struct, with tagged fields when the version is flexible.

Owns: which fields a struct of one version reads and writes, their defaults, the handling of fields that the
version lacks, and the tagged-field section (KIP-482).

Invariants: parsing returns a new Container with every declared field; fields that the version lacks have
their default. Building takes any mapping. A missing field gets its default, an unknown one raises TypeError.
A field that the version lacks is dropped; it is an error if it is not ignorable and differs from its default.
A tagged field with its default is never written (librdkafka up to 2.0.2 skips it wrongly). Tags are written
in ascending order, and unknown tags are skipped.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from io import BytesIO
from typing import Any, Final, TypeAlias
from uuid import UUID

from construct import Computed, Container, Struct

from tidelog.protocol.messages.declaration import ZERO, Field
from tidelog.protocol.primitives import (
    FAULTS,
    NUMBERS,
    WireError,
    WireStream,
    WireType,
    claim_elements,
    read_unsigned_varint,
    remaining,
    shown,
)
from tidelog.protocol.steps import Pace, finish
from tidelog.protocol.varint import MAX_SKIPPED_TAGGED_FIELDS, unsigned_varint

_SMALLEST_TAGGED_FIELD_BYTES: Final = 2
_ZEROS: Final[Mapping[str, object]] = {
    **dict.fromkeys(NUMBERS, 0),
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": UUID(int=0),
}

# The compiled code holds the repr of each default. Creating a uuid takes a microsecond.
cached_uuid: Final = cache(UUID)

Parse: TypeAlias = Callable[[WireStream, Pace], Any]
Build: TypeAlias = Callable[[Any, BytesIO, Pace], Any]
Typed: TypeAlias = tuple[Field, WireType]


class WireStruct(Struct):  # type: ignore[misc]
    """One struct in one version: its fields, its tagged fields, and the fields that the version lacks.

    Compiled code reads and writes it, in steps if it `is_long`.
    """

    def __init__(
        self,
        label: str,
        members: Sequence[Typed],
        tagged: Sequence[Typed] = (),
        absent: Sequence[Field] = (),
        *,
        flexible: bool = False,
    ) -> None:
        unwritten = (*(field for field, _ in tagged), *absent)
        super().__init__(
            *(field.name / wire_type for field, wire_type in members),
            *(field.name / Computed(default_of(field)) for field in unwritten),
        )
        self.label = label
        self.is_long = any(getattr(wire_type, "is_long", False) for _, wire_type in members)
        sizes = (
            NUMBERS[field.type].length if field.type in NUMBERS else wire_type.minimum_size
            for field, wire_type in members
        )
        self.minimum_size = sum(sizes) + flexible
        self._flexible = flexible
        self._members = members
        self._tagged = sorted(tagged, key=lambda typed: typed[0].tag or 0)
        self._required_absent = [field for field in absent if not field.ignorable]
        self._declared = {field.name: field for field in (*(field for field, _ in members), *unwritten)}
        self._names = frozenset(self._declared)

    def _emitparse(self, code: Any) -> str:
        name = f"parse_struct_{code.allocateId()}"
        fields = (f"at = {sc.name!r}; result[at] = {sc._compileparse(code)}" for sc in self.subcons)
        parsers = (
            f"{field.tag}: ({field.name!r}, lambda io, this: {wire_type._compileparse(code)})"
            for field, wire_type in self._tagged
        )
        this_struct = self._link(code)
        code.append(f"""
def {name}(io, this):
    result = Container()
    try:
        {_lines(fields)}
    except FAULTS as error:
        raise {this_struct}.located(at, error, "the end of the message") from None
    {f"{this_struct}.parse_tagged(io, this, result, {name}_tagged)" if self._flexible else "pass"}
    return result
""")
        code.append(f"{name}_tagged = {{{', '.join(parsers)}}}")
        return f"(yield from {name}(io, this))" if self.is_long else f"{name}(io, this)"

    def _emitbuild(self, code: Any) -> str:
        name = f"build_struct_{code.allocateId()}"
        fields = (
            f"at = {field.name!r}; obj = fields.get(at, {default_of(field)!r}); {write}"
            for field, write in ((field, wire_type._compilebuild(code)) for field, wire_type in self._members)
        )
        builders = (
            f"({field.tag}, {field.name!r}, lambda obj, io, this: {wire_type._compilebuild(code)})"
            for field, wire_type in self._tagged
        )
        this_struct = self._link(code)
        code.append(f"""
def {name}(fields, io, this):
    {this_struct}.check(fields)
    try:
        {_lines(fields)}
    except FAULTS as error:
        raise {this_struct}.located(at, error, shown(obj)) from None
    {f"{this_struct}.build_tagged(fields, io, {name}_tagged)" if self._flexible else "pass"}
""")
        code.append(f"{name}_tagged = [{', '.join(builders)}]")
        return f"(yield from {name}(obj, io, this))" if self.is_long else f"{name}(obj, io, this)"

    def _link(self, code: Any) -> str:
        """The name of this struct in the compiled code; imports the names for its defaults and errors."""
        code.linkedinstances[id(self)] = self
        code.append("from tidelog.protocol.structs import FAULTS, cached_uuid as UUID, shown")
        return f"linkedinstances[{id(self)}]"

    def parse_tagged(
        self,
        stream: WireStream,
        pace: Pace,
        values: dict[str, object],
        parsers: Mapping[int, tuple[str, Parse]],
    ) -> None:
        """Read the section of tagged fields at this position into `values`."""
        count = read_unsigned_varint(stream)
        if count == 0:
            return
        if count > MAX_SKIPPED_TAGGED_FIELDS:
            raise WireError(f"expected at most {MAX_SKIPPED_TAGGED_FIELDS} tagged fields, got {count}")
        claim_elements(stream, count, _SMALLEST_TAGGED_FIELD_BYTES)
        pace.left -= count
        previous = -1
        for _ in range(count):
            tag = read_unsigned_varint(stream)
            size = read_unsigned_varint(stream)
            if tag <= previous:
                raise WireError(f"expected tags in ascending order, got {tag} after {previous}")
            previous = tag
            rest = remaining(stream)
            if size > rest:
                raise WireError(f"expected {size} bytes of tagged field {tag}, {rest} bytes remain")
            if tag not in parsers:
                stream.seek(size, 1)
                continue
            name, parse = parsers[tag]
            try:
                values[name] = _parse_whole(parse, stream, size)
            except FAULTS as error:
                raise self.located(name, error, "the end of the message") from None

    def build_tagged(
        self, obj: Mapping[str, object], stream: BytesIO, builders: Sequence[tuple[int, str, Build]]
    ) -> None:
        """Write the tagged fields that differ from their default."""
        written: list[bytes] = []
        for tag, name, build in builders:
            if name not in obj or is_default(self._declared[name], obj[name]):
                continue
            inner = BytesIO()
            try:
                finish(build(obj[name], inner, Pace()))
            except FAULTS as error:
                raise self.located(name, error, shown(obj[name])) from None
            data = inner.getvalue()
            written.append(unsigned_varint(tag) + unsigned_varint(len(data)) + data)
        stream.write(unsigned_varint(len(written)))
        stream.writelines(written)

    def check(self, obj: Any) -> None:
        """Raise WireError or TypeError unless `obj` maps declared fields that this version can encode."""
        if not isinstance(obj, dict | Mapping):
            raise WireError(f"expected a mapping for {self.label}, got {shown(obj)}")
        if not self._names.issuperset(obj):
            unknown = ", ".join(sorted(str(name) for name in set(obj) - self._names))
            raise TypeError(
                f"{self.label} has no field {unknown}; it has {', '.join(sorted(self._declared))}"
            )
        for field in self._required_absent:
            if field.name in obj and not is_default(field, obj[field.name]):
                value = shown(obj[field.name])
                fault = f"expected the default, because this version lacks the field, got {value}"
                raise self.located(field.name, WireError(fault), value)

    def located(self, name: str, error: Exception, came: str) -> WireError:
        """The error with the field's name in its path; a new WireError for errors of construct's numbers."""
        if not isinstance(error, WireError):
            error = WireError(f"expected {self._declared[name].type}, got {came}")
        error.within(name)
        return error


class StructOrNull(WireType):
    """A struct after a byte that is 1, or a byte that is negative for None (KIP-893)."""

    def __init__(self, struct: WireStruct) -> None:
        super().__init__()
        self._struct = struct
        self.is_long = struct.is_long

    def _emitparse(self, code: Any) -> str:
        code.linkedinstances[id(self)] = self
        parse = self._struct._compileparse(code)
        return f"({parse} if linkedinstances[{id(self)}].parse_mark(io) else None)"

    def _emitbuild(self, code: Any) -> str:
        code.linkedinstances[id(self)] = self
        build = self._struct._compilebuild(code)
        return f"({build} if linkedinstances[{id(self)}].build_mark(obj, io) else None)"

    def parse_mark(self, stream: WireStream) -> bool:
        """Read the byte before the struct: whether the struct follows."""
        mark = stream.read(1)
        if not mark:
            raise WireError("expected a struct or null, 0 bytes remain")
        return mark < b"\x80"

    def build_mark(self, obj: object, stream: BytesIO) -> bool:
        """Write the byte before the struct: whether the struct follows."""
        stream.write(b"\xff" if obj is None else b"\x01")
        return obj is not None


def default_of(field: Field) -> object:
    """The value of a missing field."""
    if field.default is not ZERO:
        return field.default
    if field.is_array:
        return []
    if field.type == "struct":
        return Container((inner.name, default_of(inner)) for inner in field.fields)
    return _ZEROS[field.type]


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


def _lines(statements: Iterable[str]) -> str:
    return "\n        ".join(("pass", *statements))


def _parse_whole(parse: Parse, stream: WireStream, size: int) -> object:
    start = stream.tell()
    value: object = finish(parse(stream, Pace()))
    taken = stream.tell() - start
    if taken != size:
        raise WireError(f"expected {taken} bytes of tagged field, got {size}")
    return value
