"""A struct of the wire as a construct type: fields in order, then tagged fields when the version is flexible.

Owns: which fields a struct of one version reads and writes, what it does with fields that the version lacks,
and the tagged-field section (KIP-482).

Invariants: parsing gives a Container with every declared field, those that the version lacks at their
default, fresh for each parse. Building takes any mapping: a missing field is its default, an unknown one is a
TypeError, one that the version lacks is dropped unless it is not ignorable and not at its default. A tagged
field at its default is never written (librdkafka up to 2.0.2 skips it wrongly), tags are written in ascending
order, and unknown tags are skipped.
"""

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any, Final, NamedTuple, TypeAlias

from construct import Container

from tidelog.protocol.primitives import (
    ScalarRun,
    WireError,
    WireType,
    claim_elements,
    count_work,
    read_unsigned_varint,
    remaining,
    shown,
)
from tidelog.protocol.steps import Pace, Steps, finish
from tidelog.protocol.varint import MAX_SKIPPED_TAGGED_FIELDS, unsigned_varint

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


_Members: TypeAlias = tuple[tuple[str | None, Any, object], ...]
"""(name, type, default) of fields in order; a ScalarRun has several names, and stands there without one."""


def _stretches(members: _Members) -> list[tuple[_Members, str, WireType | None, object]]:
    """The members, cut behind each long one: (those before it, its name, type and default). The last stretch
    holds those that follow, and None for a type."""
    stretches: list[tuple[_Members, str, WireType | None, object]] = []
    before: list[tuple[str | None, Any, object]] = []
    for name, wire_type, default in members:
        if name is not None and wire_type.is_long:
            stretches.append((tuple(before), name, wire_type, default))
            before = []
        else:
            before.append((name, wire_type, default))
    return [*stretches, (tuple(before), "", None, None)]


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
        self._members: _Members = tuple(
            (None, member, None) if isinstance(member, ScalarRun) else member for member in members
        )
        self._stretches = _stretches(self._members)
        self.is_long = len(self._stretches) > 1
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
        if self.is_long:
            return finish(self.parse_steps(stream, Pace()))
        values = self._unwritten_values()
        self._parse_members(self._members, stream, context, values)
        if self.flexible:
            self._parse_tagged(stream, context, values)
        return values

    def parse_steps(self, stream: BytesIO, pace: Pace) -> Steps[Any]:
        values = self._unwritten_values()
        for short_members, name, long_type, _ in self._stretches:
            self._parse_members(short_members, stream, pace, values)
            if long_type is not None:
                try:
                    values[name] = yield from long_type.parse_steps(stream, pace)
                except WireError as error:
                    error.within(name)
                    raise
        if self.flexible:
            self._parse_tagged(stream, pace, values)
        return values

    def _unwritten_values(self) -> Any:
        values = Container()
        for unwritten, fresh_default in self._unwritten:
            values[unwritten] = fresh_default()
        return values

    def _parse_members(
        self, members: _Members, stream: BytesIO, context: object, values: dict[str, object]
    ) -> None:
        name: str | None = None
        try:
            for name, wire_type, _ in members:
                if name is None:
                    numbers = wire_type._parse(stream, context, "")
                    dict.update(values, zip(wire_type.names, numbers, strict=True))
                else:
                    values[name] = wire_type._parse(stream, context, "")
        except WireError as error:
            if name is not None:
                error.within(name)
            raise

    def _parse_tagged(self, stream: BytesIO, context: object, values: dict[str, object]) -> None:
        count = read_unsigned_varint(stream)
        if count == 0:
            return
        if count > MAX_SKIPPED_TAGGED_FIELDS:
            raise WireError(f"expected at most {MAX_SKIPPED_TAGGED_FIELDS} tagged fields, came {count}")
        claim_elements(stream, count, _SMALLEST_TAGGED_FIELD_BYTES)
        count_work(context, count)
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
        if self.is_long:
            finish(self.build_steps(obj, stream, Pace()))
            return obj
        self._check(obj)
        self._build_members(self._members, obj, stream, context)
        if self.flexible:
            self._build_tagged(obj, stream)
        return obj

    def build_steps(self, obj: Any, stream: BytesIO, pace: Pace) -> Steps[None]:
        self._check(obj)
        for short_members, name, long_type, default in self._stretches:
            self._build_members(short_members, obj, stream, pace)
            if long_type is not None:
                try:
                    yield from long_type.build_steps(obj.get(name, default), stream, pace)
                except WireError as error:
                    error.within(name)
                    raise
        if self.flexible:
            self._build_tagged(obj, stream)

    def _check(self, obj: Any) -> None:
        if not isinstance(obj, Mapping):
            raise WireError(f"expected a mapping for {self.label}, came {shown(obj)}")
        if not self._names.issuperset(obj):
            raise self._unknown_field(obj)
        for field in self._required_absent:
            if field.name in obj and not field.is_default(obj[field.name]):
                raise self._no_room(field.name, obj[field.name])

    def _build_members(
        self, members: _Members, obj: Mapping[str, Any], stream: BytesIO, context: object
    ) -> None:
        name: str | None = None
        get = obj.get
        try:
            for name, wire_type, default in members:
                if name is None:
                    wire_type._build(obj, stream, context, "")
                else:
                    wire_type._build(get(name, default), stream, context, "")
        except WireError as error:
            if name is not None:
                error.within(name)
            raise

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
