"""A struct of the wire as a construct type: fields in order, then tagged fields when the version is flexible.

Owns: which fields a struct of one version reads and writes, what it does with fields that the version lacks,
and the tagged-field section (KIP-482).

Invariants: parsing gives a Container with every declared field, those that the version lacks at their
default, fresh for each parse. Building takes any mapping: a missing field is its default, an unknown one is a
TypeError, one that the version lacks is dropped unless it is not ignorable and not at its default. A tagged
field at its default is never written (librdkafka up to 2.0.2 skips it wrongly), tags are written in ascending
order, and unknown tags are skipped.

Called by: `protocol.codecs`.
"""

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any, Final, NamedTuple

from construct import Container

from tidelog.protocol.primitives import (
    ScalarRun,
    WireError,
    WireType,
    claim_elements,
    read_unsigned_varint,
    remaining,
    shown,
)
from tidelog.protocol.varint import unsigned_varint

_SMALLEST_TAGGED_FIELD_BYTES: Final = 2


class Member(NamedTuple):
    """A field that the version has, and the value that a missing one takes."""

    name: str
    wire_type: WireType
    default: object


class Tagged(NamedTuple):
    """A tagged field that the version has."""

    tag: int
    name: str
    wire_type: WireType
    fresh_default: Callable[[], object]
    default_bytes: bytes


class Absent(NamedTuple):
    """A declared field that the version lacks."""

    name: str
    fresh_default: Callable[[], object]
    ignorable: bool
    is_default: Callable[[object], bool]


class WireStruct(WireType):
    """One struct in one version. `members` are fields, or runs of numbers that are read in one step."""

    def __init__(
        self,
        label: str,
        members: Sequence[Member | ScalarRun],
        tagged: Sequence[Tagged],
        absent: Sequence[Absent],
        *,
        flexible: bool,
    ) -> None:
        super().__init__()
        self.label = label
        self.flexible = flexible
        self._members: tuple[tuple[str | None, Any, object], ...] = tuple(
            (None, member, None) if isinstance(member, ScalarRun) else member for member in members
        )
        self._tagged = tuple(sorted(tagged, key=lambda field: field.tag))
        self._by_tag = {field.tag: field for field in tagged}
        self._unwritten = (
            *((field.name, field.fresh_default) for field in tagged),
            *((field.name, field.fresh_default) for field in absent),
        )
        self._required_absent = tuple(field for field in absent if not field.ignorable)
        self._names = frozenset(self._own_names(members)) | {name for name, _ in self._unwritten}
        sizes = (m.minimum_size if isinstance(m, ScalarRun) else m.wire_type.minimum_size for m in members)
        self.minimum_size = sum(sizes) + (1 if flexible else 0)

    @staticmethod
    def _own_names(members: Sequence[Member | ScalarRun]) -> list[str]:
        names: list[str] = []
        for member in members:
            names.extend(member.names if isinstance(member, ScalarRun) else (member.name,))
        return names

    def _parse(self, stream: BytesIO, context: object, path: str) -> Any:
        values = Container()
        for unwritten, fresh_default in self._unwritten:
            values[unwritten] = fresh_default()
        name: str | None = None
        try:
            for name, wire_type, _ in self._members:
                if name is None:
                    dict.update(
                        values, zip(wire_type.names, wire_type._parse(stream, context, path), strict=True)
                    )
                else:
                    values[name] = wire_type._parse(stream, context, path)
            name = None
            if self.flexible:
                self._parse_tagged(stream, values)
        except WireError as error:
            if name is not None:
                error.within(name)
            raise
        return values

    def _parse_tagged(self, stream: BytesIO, values: dict[str, object]) -> None:
        count = read_unsigned_varint(stream)
        if count == 0:
            return
        claim_elements(stream, count, _SMALLEST_TAGGED_FIELD_BYTES)
        previous = -1
        for _ in range(count):
            tag = read_unsigned_varint(stream)
            size = read_unsigned_varint(stream)
            if tag <= previous:
                raise WireError(f"expected tags in ascending order, came {tag} after {previous}")
            previous = tag
            room = remaining(stream)
            if size > room:
                raise WireError(f"expected {size} bytes of tagged field {tag}, {room} bytes remain")
            field = self._by_tag.get(tag)
            if field is None:
                stream.seek(size, 1)
                continue
            try:
                values[field.name] = _parse_whole(field.wire_type, stream, size)
            except WireError as error:
                error.within(field.name)
                raise

    def _build(self, obj: Any, stream: BytesIO, context: object, path: str) -> Any:
        if not isinstance(obj, Mapping):
            raise WireError(f"expected a mapping for {self.label}, came {shown(obj)}")
        if not self._names.issuperset(obj):
            raise self._unknown_field(obj)
        for field in self._required_absent:
            if field.name in obj and not field.is_default(obj[field.name]):
                raise self._no_room(field.name, obj[field.name])
        name: str | None = None
        get = obj.get
        try:
            for name, wire_type, default in self._members:
                if name is None:
                    wire_type._build(obj, stream, context, path)
                else:
                    wire_type._build(get(name, default), stream, context, path)
            name = None
            if self.flexible:
                self._build_tagged(obj, stream)
        except WireError as error:
            if name is not None:
                error.within(name)
            raise
        return obj

    def _build_tagged(self, obj: Mapping[str, object], stream: BytesIO) -> None:
        written: list[bytes] = []
        for field in self._tagged:
            if field.name not in obj:
                continue
            inner = BytesIO()
            try:
                field.wire_type._build(obj[field.name], inner, None, "")
            except WireError as error:
                error.within(field.name)
                raise
            data = inner.getvalue()
            if data != field.default_bytes:
                written.append(unsigned_varint(field.tag) + unsigned_varint(len(data)) + data)
        stream.write(unsigned_varint(len(written)))
        stream.writelines(written)

    def _unknown_field(self, obj: Mapping[str, object]) -> TypeError:
        unknown = ", ".join(sorted(str(name) for name in set(obj) - self._names))
        return TypeError(f"{self.label} has no field {unknown}; it has {', '.join(sorted(self._names))}")

    def _no_room(self, name: str, value: object) -> WireError:
        error = WireError(
            f"expected the default, because this version cannot carry the field, came {shown(value)}"
        )
        error.within(name)
        return error


def _parse_whole(wire_type: WireType, stream: BytesIO, size: int) -> object:
    start = stream.tell()
    value: object = wire_type._parse(stream, None, "")
    taken = stream.tell() - start
    if taken != size:
        raise WireError(f"expected {taken} bytes of tagged field, came {size}")
    return value
