"""The types of a declaration: classes of annotated fields, and the plain data that is read from them.

Owns: `Struct`, the base of each class; the types of numbers; `field`, a field's options; `DictOf`, the dict
that encoding takes; `Field` and `Message`, which the emitter reads; and the meaning of a version range ("0+",
"2-5", "3", "" for none).

To a type checker a class is what decoding returns: every declared field is present. `DictOf[X]` is a dict of
the fields of X, where a missing field gets its default (`tests/tidy/mypy_messages.py` tells mypy).

What many messages have: `error_code` is a code of `protocol.errors`, 0 for none, and `error_message` says
why, or is null. For `throttle_time_ms` the broker reads nothing more from a client above its quota. A
`topic_id` stays with its topic, also if another topic gets the name (KIP-516). In `*authorized_operations`
bit n stands for operation n of `protocol.acls.Operation`; the least int32: not asked for (KIP-430).
Timestamps are milliseconds since 1970. Any other field has a sentence where its name does not say everything.

Invariants: the import of a declaration reads no field; that is done when its first codec is made. The default
of a field without one is its type's zero: 0, False, "", b"", [], the zero uuid, or a struct of defaults.

Source: the schema format of Kafka's message definitions (clients/src/main/resources/common/message).
"""

from types import NoneType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    NamedTuple,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
)
from uuid import UUID

from tidelog.protocol.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs


class _Zero:
    """The type's own default."""

    def __repr__(self) -> str:
        return "ZERO"


ZERO: Final = _Zero()
"""Default marker: the zero of the field's type."""

Int8: TypeAlias = Annotated[int, "int8"]
Int16: TypeAlias = Annotated[int, "int16"]
Uint16: TypeAlias = Annotated[int, "uint16"]
Int32: TypeAlias = Annotated[int, "int32"]
Int64: TypeAlias = Annotated[int, "int64"]
Records: TypeAlias = Annotated[bytes, "records"]
_TYPES: Final[dict[Any, str]] = {
    **{alias: get_args(alias)[1] for alias in (Int8, Int16, Uint16, Int32, Int64, Records)},
    bool: "bool",
    float: "float64",
    str: "string",
    bytes: "bytes",
    UUID: "uuid",
    Offset: "int64",
    LeaderEpoch: "int32",
    ProducerId: "int64",
    ProducerEpoch: "int16",
    TimestampMs: "int64",
}


class Struct:
    """The base of messages and of the structs in them; `flexible`: the range of versions of a message with
    compact lengths and tagged fields."""

    flexible_versions = ""

    def __init_subclass__(cls, flexible: str = "") -> None:
        cls.flexible_versions = flexible


class _Options(NamedTuple):
    versions: str = "0+"
    nullable: str | None = None
    default: object = ZERO
    ignorable: bool = False
    tag: int | None = None


def field(
    versions: str = "0+",
    *,
    nullable: str | None = None,
    default: object = ZERO,
    ignorable: bool = False,
    tag: int | None = None,
) -> Any:
    """What the type of a field does not say: its versions, and the options of `Field`. A value that
    may be None may be null in all of them, if `nullable` does not name other ones."""
    return _Options(versions, nullable, default, ignorable, tag)


class Field(NamedTuple):
    """One field. `type` is a scalar ("int32", "string", "uuid", ...), "[]int32" for an array of scalars,
    "struct" or "[]struct" with `fields`.

    `nullable` is the range of versions in which the value (not an element) may be null. `tag` makes it a
    tagged field in all of its versions. `ignorable`: its value is dropped silently if the version lacks the
    field.
    """

    name: str
    type: str
    versions: str = "0+"
    fields: "tuple[Field, ...]" = ()
    nullable: str = ""
    default: object = ZERO
    ignorable: bool = False
    tag: int | None = None

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def element_type(self) -> str:
        """The scalar type, or "struct", of the value itself or of one element."""
        return self.type.removeprefix("[]")


class Message(NamedTuple):
    """One request or response: `flexible` is the range of versions with compact lengths and tagged fields."""

    name: str
    flexible: str
    fields: tuple[Field, ...]


def message_of(declaration: type[Struct]) -> Message:
    return Message(declaration.__name__, declaration.flexible_versions, _fields_of(declaration))


def _fields_of(declaration: type[Struct]) -> tuple[Field, ...]:
    options = vars(declaration)
    return tuple(
        _field(name, annotation, options.get(name, _Options()))
        for name, annotation in declaration.__annotations__.items()
    )


def _field(name: str, annotation: Any, options: _Options) -> Field:
    may_be_none = NoneType in get_args(annotation)
    kind = get_args(annotation)[0] if may_be_none else annotation
    prefix = "[]" if get_origin(kind) is list else ""
    if prefix:
        (kind,) = get_args(kind)
    is_struct = isinstance(kind, type) and issubclass(kind, Struct)
    nullable = options.nullable
    if nullable is None:
        nullable = options.versions if may_be_none else ""
    return Field(
        name,
        prefix + ("struct" if is_struct else _TYPES[kind]),
        options.versions,
        _fields_of(kind) if is_struct else (),
        nullable,
        options.default,
        options.ignorable,
        options.tag,
    )


def version_in(version: int, versions: str) -> bool:
    """Whether the range ("0+", "2-5", "3", "") contains the version."""
    if not versions:
        return False
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    first, _, last = versions.partition("-")
    return int(first) <= version <= int(last or first)


_Declared = TypeVar("_Declared", bound=Struct)


class DictOf(Generic[_Declared]):
    """A dict of the fields of a struct; see above."""
