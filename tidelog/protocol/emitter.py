"""Writes the functions that decode and encode a message in one version, as Python source, and compiles them.

Owns: the meaning of `protocol.messages.declaration`: which fields a version has, whether they are compact or
classic, nullable or tagged, and their defaults; and the handling of fields that the version lacks.

Decoding returns a `protocol.values` object with every declared field; fields that the version lacks have
their default. Encoding takes any mapping. A missing field gets its default, an unknown one raises TypeError.
A field that the version lacks is dropped; it is an error if it is not ignorable and differs from its default.
A tagged field with its default is never written (librdkafka up to 2.0.2 skips it wrongly). Tags are written
in ascending order, and unknown tags are skipped.

Invariants: everything that depends on the version is decided here, once, so emitted code does not check the
version. Numbers that follow each other are read or written by one call. What is long, null or wrong is left
to `protocol.primitives`. Work is counted in elements, as `protocol.steps.Pace` does, but in a variable, and
only if the function is emitted in steps. `where` is the number of the `Place` at work.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import groupby
from operator import attrgetter
from struct import Struct, calcsize, unpack_from
from typing import Any, Final, NamedTuple

from tidelog.protocol import primitives
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.messages.declaration import ZERO, Field, Message, version_in
from tidelog.protocol.primitives import NUMBERS, Place, default_of
from tidelog.protocol.steps import ELEMENTS_PER_STEP, NUMBERS_PER_ELEMENT
from tidelog.protocol.values import values_class
from tidelog.protocol.varint import unsigned_varint

_TEXT_BYTES_PER_ELEMENT: Final = 1024
_SINGLE_BYTE: Final = 128
"""The first length + 1 whose varint takes two bytes."""
_LITERALS: Final = (bool, int, float, str, bytes, type(None))
_NAMES: Final = {
    **{name: value for name, value in vars(primitives).items() if not name.startswith("_")},
    "ProtocolError": ProtocolError,
    "new": object.__new__,
    "unpack_from": unpack_from,
}
_Path = tuple[str | int, ...]


class _Members(NamedTuple):
    """The fields of a struct in one version: in their order, tagged in the order of their tags, lacking."""

    plain: list[Field]
    tagged: list[Field]
    absent: list[Field]


def may_be_long(message: Message, version: int) -> bool:
    """Whether it has arrays whose elements are read and written one by one."""
    return _has_loops(message.fields, version)


def has_records(message: Message, version: int) -> bool:
    """Whether it is decoded from a memoryview, so that its records are slices of the body."""
    return _has_records(message.fields, version)


def emit_decoder(message: Message, version: int, *, in_steps: bool) -> Callable[[Any, int, bool], Any]:
    """A function of the body, how many elements may be read, and whether bytes after the last field are an
    error. The body is a memoryview if the message has records, else bytes. It returns the values, in steps if
    asked for. Raises only ProtocolError."""
    return _Decoder(message, version, in_steps).function()


def emit_encoder(message: Message, version: int, *, in_steps: bool) -> Callable[[Any], Any]:
    """A function of the values. It returns the bytes, or the buffers if the message has records; in steps if
    asked for. Raises ProtocolError for a wrong value, TypeError for an unknown name."""
    return _Encoder(message, version, in_steps).function()


def _has_loops(fields: tuple[Field, ...], version: int) -> bool:
    return any(
        (field.is_array and field.element_type not in NUMBERS) or _has_loops(field.fields, version)
        for field in fields
        if version_in(version, field.versions)
    )


def _has_records(fields: tuple[Field, ...], version: int) -> bool:
    return any(
        field.element_type == "records" or _has_records(field.fields, version)
        for field in fields
        if version_in(version, field.versions)
    )


class _Source(ABC):
    """The lines of one function, the names that it uses, and its places."""

    head = ""
    start: tuple[str, ...] = ()

    def __init__(self, message: Message, version: int, in_steps: bool) -> None:
        self._message = message
        self._version = version
        self._flexible = version_in(version, message.flexible)
        self._in_steps = in_steps
        self._lines = [self.head]
        self._indent = 1
        self._names: dict[str, Any] = {**_NAMES, "label": f"{message.name} version {version}"}
        self._places: list[Place] = []
        self._variables = ["top"]
        """Those that a fault names or shows."""

    def function(self) -> Callable[..., Any]:
        if self._in_steps:
            self._write(f"pace = {ELEMENTS_PER_STEP}")
        with self._block("try:"):
            self._struct(self._message.name, self._message.fields, "top", ())
        with self._block("except FAULTS as error:"):
            variables = f"({', '.join(self._variables)},)"
            self._write(f"raise located(label, error, places[where], {variables}, data, at) from None")
        self._end()
        unset = "".join(f"{name} = " for name in self._variables[1:])
        self._lines[1:1] = [f" {line}" for line in (*self.start, f"{unset}None")]
        self._names["places"] = self._places
        exec(compile("\n".join(self._lines), f"<{self._names['label']}>", "exec"), self._names)
        function: Callable[..., Any] = self._names["run"]
        return function

    @abstractmethod
    def _struct(self, label: str, fields: tuple[Field, ...], name: str, path: _Path) -> None:
        """Write the statements for the struct in the variable `name`."""

    @abstractmethod
    def _end(self) -> None:
        """Write the statements that return the result."""

    def _may_be_null(self, field: Field) -> bool:
        return version_in(self._version, field.nullable)

    def _members(self, fields: tuple[Field, ...]) -> _Members:
        present = [field for field in fields if version_in(self._version, field.versions)]
        return _Members(
            [field for field in present if field.tag is None],
            sorted((field for field in present if field.tag is not None), key=attrgetter("tag")),
            [field for field in fields if field not in present],
        )

    def _write(self, *lines: str) -> None:
        self._lines.extend(" " * self._indent + line for line in lines)

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        self._write(head)
        self._indent += 1
        yield
        self._indent -= 1

    def _name(self, start: str) -> str:
        """A name that no other statement uses."""
        return f"{start}{len(self._lines)}"

    def _constant(self, value: object) -> str:
        """A literal, or a name, for a value that all calls share."""
        if type(value) in _LITERALS:
            return repr(value)
        name = f"constant{len(self._names)}"
        self._names[name] = value
        return name

    def _packed(self, fields: list[Field], method: str) -> str:
        """The name of a method of `struct.Struct` for these numbers."""
        form = ">" + "".join(NUMBERS[field.type] for field in fields)
        return self._constant(getattr(Struct(form), method))

    def _variable(self, name: str) -> int:
        """Its number among those that a fault names or shows."""
        if name not in self._variables:
            self._variables.append(name)
        return self._variables.index(name)

    def _place(self, place: Place) -> None:
        self._write(f"where = {len(self._places)}")
        self._places.append(place)

    def _spend(self, elements: str) -> None:
        """Count work beyond one element."""
        if self._in_steps:
            self._write(f"pace -= {elements}")

    def _end_of_element(self) -> None:
        if self._in_steps:
            self._write("pace -= 1")
            with self._block("if pace <= 0:"):
                self._write(f"pace = {ELEMENTS_PER_STEP}", "yield")

    @staticmethod
    def _runs(fields: list[Field]) -> Iterator[tuple[bool, list[Field]]]:
        """The fields, with numbers that follow each other together."""
        for are_numbers, run in groupby(fields, lambda field: field.type in NUMBERS):
            if are_numbers:
                yield True, list(run)
            else:
                yield from ((False, [field]) for field in run)


class _Decoder(_Source):
    head = "def run(data, left, whole):"
    start = ("at = 0", "size = len(data)")

    def _end(self) -> None:
        with self._block("if at != size and whole:"):
            self._write("raise ProtocolError(f'{label}: expected {at} bytes, got {size}')")
        self._write("return top")

    def _struct(self, label: str, fields: tuple[Field, ...], name: str, path: _Path) -> None:
        members = self._members(fields)
        self._new(label, fields, name)
        for are_numbers, run in self._runs(members.plain):
            if are_numbers:
                self._numbers(run, name, path)
            else:
                self._field(label, run[0], f"{name}.{run[0].name}", (*path, run[0].name))
        for field in (*members.tagged, *members.absent):
            self._default(label, field, f"{name}.{field.name}")
        if self._flexible:
            self._tagged(label, members.tagged, name, path)

    def _numbers(self, run: list[Field], name: str, path: _Path) -> None:
        self._place(Place(path, tuple(run)))
        targets = "".join(f"{name}.{field.name}, " for field in run)
        self._write(f"{targets}= {self._packed(run, 'unpack_from')}(data, at)")
        self._write(f"at += {sum(calcsize(NUMBERS[field.type]) for field in run)}")

    def _new(self, label: str, fields: tuple[Field, ...], name: str) -> None:
        kind = values_class(label, tuple(field.name for field in fields))
        self._write(f"{name} = new({self._constant(kind)})")

    def _default(self, label: str, field: Field, target: str) -> None:
        if field.type == "struct" and field.default is ZERO:
            name = self._name("struct")
            self._new(f"{label}.{field.name}", field.fields, name)
            self._write(f"{target} = {name}")
            for inner in field.fields:
                self._default(f"{label}.{field.name}", inner, f"{name}.{inner.name}")
        elif field.is_array and field.default is ZERO:
            self._write(f"{target} = []")
        else:
            self._write(f"{target} = {self._constant(default_of(field))}")

    def _tagged(self, label: str, tagged: list[Field], name: str, path: _Path) -> None:
        place = Place(path, read_length=primitives.read_varint)
        self._place(place)
        self._write("n = data[at]", "at += 1")
        with self._block("if n:"):
            if not tagged:
                self._write("n, at = skip_tags(data, at - 1, left)", "left -= n")
                self._spend("n")
                return
            self._write("n, at = read_tag_count(data, at - 1, left)", "left -= n")
            self._spend("n")
            tag, begin, end = self._name("tag"), self._name("begin"), self._name("end")
            self._write(f"{tag} = -1")
            with self._block("for _ in range(n):"):
                self._place(place)
                self._write(f"{tag}, at, {end} = read_tag(data, at, {tag})", f"{begin} = at")
                word = "if"
                for field in tagged:
                    with self._block(f"{word} {tag} == {field.tag}:"):
                        inner = (*path, field.name)
                        if field.type in NUMBERS:
                            self._numbers([field], name, path)
                        else:
                            self._field(label, field, f"{name}.{field.name}", inner)
                        self._place(Place(inner))
                        self._write(f"check_tag({begin}, at, {end})")
                    word = "elif"
                with self._block("else:"):
                    self._write(f"at = {end}")

    def _field(self, label: str, field: Field, target: str, path: _Path) -> None:
        if field.is_array:
            self._array(label, field, target, path)
        else:
            self._value(label, field, target, path, nullable=self._may_be_null(field))

    def _value(self, label: str, field: Field, target: str, path: _Path, *, nullable: bool) -> None:
        """Anything but numbers and arrays."""
        match field.element_type:
            case "string":
                self._text(target, path, nullable)
            case "bytes" | "records":
                self._place(Place(path))
                read = f"{self._length('read_int32_length')}(data, at)"
                self._write(f"{target}, at = read_bytes(data, *{read}, {nullable})")
            case "uuid":
                self._place(Place(path))
                self._write(f"{target} = read_uuid(data, at)", "at += 16")
            case "struct":
                label = f"{label}.{field.name}"
                name = target if target.isidentifier() else self._name("struct")
                if nullable:
                    self._place(Place(path))
                    with self._block("if at == size:"):
                        self._write("raise WireError('expected a struct or null, 0 bytes remain')")
                    self._write("at += 1")
                    with self._block(f"if data[at - 1] >= {0x80}:"):
                        self._write(f"{target} = None")
                with self._block("else:") if nullable else nullcontext():
                    self._struct(label, field.fields, name, path)
                    if name != target:
                        self._write(f"{target} = {name}")
            case unknown:
                raise TypeError(f"{label}.{field.name} is declared with the unknown type {unknown!r}")

    def _length(self, classic: str) -> str:
        return "read_compact_length" if self._flexible else classic

    def _text(self, target: str, path: _Path, nullable: bool) -> None:
        read = self._length("read_int16_length")
        self._place(Place(path, read_length=getattr(primitives, read)))
        if self._flexible:
            self._write("n = data[at]", "start, end = at + 1, at + n")
            short = f"0 < n < {_SINGLE_BYTE} and end <= size"
        else:
            self._write("n = data[at] << 8 | data[at + 1]", "start = at + 2", "end = start + n")
            short = f"n < {_TEXT_BYTES_PER_ELEMENT} and end <= size"
        with self._block(f"if {short}:"):
            of_view = has_records(self._message, self._version)
            text = "str(data[start:end], 'utf-8')" if of_view else "data[start:end].decode()"
            self._write(f"{target} = {text}", "at = end")
        with self._block("else:"):
            self._write(f"{target}, at = read_text(data, *{read}(data, at), {nullable})")
            self._spend(f"(at - start) // {_TEXT_BYTES_PER_ELEMENT}")

    def _array(self, label: str, field: Field, target: str, path: _Path) -> None:
        kind, loop = field.element_type, len(self._lines)
        count = f"count{loop}"
        read = self._length("read_int32_length")
        self._place(Place(path, read_length=getattr(primitives, read)))
        if self._flexible:
            self._write(f"{count} = data[at] - 1", "at += 1")
            with self._block(f"if {count} >= {_SINGLE_BYTE - 1}:"):
                self._write(f"{count}, at = {read}(data, at - 1)")
        else:
            self._write(f"{count}, at = {read}(data, at)")
        with self._block(f"if {count} < 0:"):
            nullable = self._may_be_null(field)
            self._write(f"check_null('an array', {count}, {nullable})", f"{target} = None")
        with self._block("else:"):
            smallest = max(1, self._smallest(field, nullable=False))
            with self._block(f"if {count} * {smallest} > size - at or {count} > left:"):
                self._write(f"check_count({count}, {smallest}, size - at, left)")
            self._write(f"left -= {count}")
            if kind in NUMBERS:
                form = f"f'>{{{count}}}{NUMBERS[kind]}'"
                self._write(f"{target} = list(unpack_from({form}, data, at)) if {count} else []")
                self._write(f"at += {count} * {smallest}")
                self._spend(f"{count} // {NUMBERS_PER_ELEMENT}")
                return
            values, element, index = f"values{loop}", f"element{loop}", f"index{loop}"
            self._write(f"{target} = {values} = []")
            with self._block(f"for {index} in range({count}):"):
                inner = (*path, self._variable(index))
                self._value(label, field, element, inner, nullable=False)
                self._write(f"{values}.append({element})")
                self._end_of_element()

    def _smallest(self, field: Field, *, nullable: bool) -> int:
        """The size of the smallest value that is no array."""
        kind = field.element_type
        if kind in NUMBERS:
            return calcsize(NUMBERS[kind])
        if kind == "struct" and not nullable:
            return self._flexible + sum(
                (1 if self._flexible else 4)
                if field.is_array
                else self._smallest(field, nullable=self._may_be_null(field))
                for field in self._members(field.fields).plain
            )
        if self._flexible:
            return 16 if kind == "uuid" else 1
        return {"uuid": 16, "string": 2, "struct": 1}.get(kind, 4)


class _Encoder(_Source):
    head = "def run(top):"
    start = ("out, buffers = bytearray(), []", "data, at = b'', 0")

    def __init__(self, message: Message, version: int, in_steps: bool) -> None:
        super().__init__(message, version, in_steps)
        self._out = "out"

    def _end(self) -> None:
        if has_records(self._message, self._version):
            self._write("buffers.append(out)", "return buffers")
        else:
            self._write("return bytes(out)")

    def _struct(self, label: str, fields: tuple[Field, ...], name: str, path: _Path) -> None:
        members = self._members(fields)
        names = self._constant(frozenset(field.name for field in fields))
        self._place(Place(path))
        with self._block(f"if {name}.__class__ is not dict or not {names}.issuperset({name}):"):
            self._write(f"check_names({name}, {label!r}, {names})")
        required = tuple(field for field in members.absent if not field.ignorable)
        if required:
            self._write(f"check_absent({name}, {self._constant(required)})")
        get = self._name("get")
        self._write(f"{get} = {name}.get")
        for are_numbers, run in self._runs(members.plain):
            if are_numbers:
                self._numbers(run, name, get, path)
            else:
                self._field(label, run[0], self._get(get, run[0]), (*path, run[0].name))
        if self._flexible:
            self._tagged(label, members.tagged, name, path)

    def _get(self, get: str, field: Field) -> str:
        return f"{get}({field.name!r}, {self._constant(default_of(field))})"

    def _numbers(self, run: list[Field], name: str, get: str, path: _Path) -> None:
        self._place(Place(path, tuple(run), self._variable(name)))
        values = ", ".join(self._get(get, field) for field in run)
        self._write(f"{self._out} += {self._packed(run, 'pack')}({values})")

    def _tagged(self, label: str, tagged: list[Field], name: str, path: _Path) -> None:
        if not tagged:
            self._write(f"{self._out}.append(0)")
            return
        count, fields, inner, outer = *map(self._name, ("count", "fields", "inner")), self._out
        self._write(f"{count} = 0", f"{fields} = bytearray()")
        self._out = inner
        for field in tagged:
            value = f"{name}[{field.name!r}]"
            with self._block(f"if {field.name!r} in {name} and not ({self._is_default(field, value)}):"):
                self._write(f"{inner} = bytearray()")
                if field.type in NUMBERS:
                    self._numbers([field], name, f"{name}.get", path)
                else:
                    self._field(label, field, value, (*path, field.name))
                self._write(
                    f"{fields} += {unsigned_varint(field.tag or 0)!r}",
                    f"{fields} += compact_length(len({inner}) - 1)",
                    f"{fields} += {inner}",
                    f"{count} += 1",
                )
        self._out = outer
        self._write(f"{outer} += compact_length({count} - 1)", f"{outer} += {fields}")

    def _is_default(self, field: Field, value: str) -> str:
        if field.default is ZERO and (field.is_array or field.type == "struct"):
            return f"is_default({self._constant(field)}, {value})"
        return f"{value} == {self._constant(default_of(field))}"

    def _field(self, label: str, field: Field, value: str, path: _Path) -> None:
        name = self._name("value")
        self._place(Place(path))
        self._write(f"{name} = {value}")
        if field.is_array:
            self._array(label, field, name, path)
        else:
            self._value(label, field, name, path, nullable=self._may_be_null(field))

    def _value(self, label: str, field: Field, name: str, path: _Path, *, nullable: bool) -> None:
        """Anything but numbers and arrays. The caller has set the place."""
        match field.element_type:
            case "string":
                self._text(name, nullable)
            case "bytes":
                self._write(
                    f"{self._out} += bytes_length({name}, {self._length('int32_length')}, {nullable})"
                )
                with self._block(f"if {name} is not None:"):
                    self._write(f"{self._out} += {name}")
            case "records":
                self._write(f"out += records_length({name}, {self._length('int32_length')}, {nullable})")
                with self._block(f"if {name}:"):
                    self._write(f"buffers += out, *buffers_of({name})", "out = bytearray()")
            case "uuid":
                self._write(f"{self._out} += uuid_bytes({name})")
            case "struct":
                if nullable:
                    self._write(f"{self._out}.append(255 if {name} is None else 1)")
                with self._block(f"if {name} is not None:") if nullable else nullcontext():
                    self._struct(f"{label}.{field.name}", field.fields, name, path)
            case unknown:
                raise TypeError(f"{label}.{field.name} is declared with the unknown type {unknown!r}")

    def _length(self, classic: str) -> str:
        return "compact_length" if self._flexible else classic

    def _text(self, name: str, nullable: bool) -> None:
        short = f"{name}.__class__ is str and len(text := {name}.encode())"
        if self._flexible:
            with self._block(f"if {short} < {_SINGLE_BYTE - 1}:"):
                self._write(f"{self._out}.append(len(text) + 1)", f"{self._out} += text")
        else:
            with self._block(f"if {short} < {_TEXT_BYTES_PER_ELEMENT}:"):
                self._write(f"{self._out} += int16_length(len(text))", f"{self._out} += text")
        with self._block("else:"):
            self._write(f"text = text_bytes({name}, {self._length('int16_length')}, {nullable})")
            self._write(f"{self._out} += text")
            self._spend(f"len(text) // {_TEXT_BYTES_PER_ELEMENT}")

    def _array(self, label: str, field: Field, name: str, path: _Path) -> None:
        kind, loop = field.element_type, len(self._lines)
        length = self._length("int32_length")
        if self._may_be_null(field):
            with self._block(f"if {name} is None:"):
                self._write(f"{self._out} += {length}(NULL)")
        with self._block("else:") if self._may_be_null(field) else nullcontext():
            with self._block(f"if {name}.__class__ is not list:"):
                self._write(f"check_array({name})")
            if self._flexible:
                with self._block(f"if len({name}) < {_SINGLE_BYTE - 1}:"):
                    self._write(f"{self._out}.append(len({name}) + 1)")
                with self._block("else:"):
                    self._write(f"{self._out} += {length}(len({name}))")
            else:
                self._write(f"{self._out} += {length}(len({name}))")
            if kind in NUMBERS:
                self._write(f"{self._out} += number_bytes({name}, {kind!r})")
                self._spend(f"len({name}) // {NUMBERS_PER_ELEMENT}")
                return
            element, index = f"element{loop}", f"index{loop}"
            inner = (*path, self._variable(index))
            with self._block(f"for {index}, {element} in enumerate({name}):"):
                if kind != "struct":
                    self._place(Place(inner))
                self._value(label, field, element, inner, nullable=False)
                self._end_of_element()
