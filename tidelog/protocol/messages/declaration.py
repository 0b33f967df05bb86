"""The types of a declaration: fields with version ranges, and messages that consist of them.

Owns: `Field`, `Message`, the functions that declare them, and the meaning of a version range ("0+", "2-5",
"3", "" for none).

Invariants: plain immutable data, so importing every declaration is cheap. The default of a field without one
is its type's zero: 0, False, "", b"", [], the zero uuid, or a struct of defaults.

Source: the schema format of Kafka's message definitions (clients/src/main/resources/common/message).
"""

from functools import partial
from typing import Final, NamedTuple


class _Zero:
    """The type's own default."""

    def __repr__(self) -> str:
        return "ZERO"


ZERO: Final = _Zero()
"""Default marker: the zero of the field's type."""


class Field(NamedTuple):
    """One field. `type` is a scalar ("int32", "string", "uuid", ...), "[]int32" for an array of scalars,
    "struct" or "[]struct" with `fields` (see `struct` and `structs`).

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


def _nested(
    kind: str,
    name: str,
    *fields: Field,
    versions: str = "0+",
    nullable: str = "",
    default: object = ZERO,
    ignorable: bool = False,
    tag: int | None = None,
) -> Field:
    return Field(name, kind, versions, fields, nullable, default, ignorable, tag)


struct: Final = partial(_nested, "struct")
"""A field that is a struct: its name, the fields in it, then options of `Field`."""
structs: Final = partial(_nested, "[]struct")
"""A field that is an array of structs, declared as with `struct`."""


def by_partition(*fields: Field) -> Field:
    """The array `topics`, each with its `name` and its `partitions`: these have their index and `fields`."""
    partitions = structs("partitions", Field("partition_index", "int32"), *fields)
    return structs("topics", Field("name", "string"), partitions)


ERROR: Final = (Field("error_code", "int16", "0+"), Field("error_message", "string", "0+", nullable="0+"))
"""The two fields by which many answers say what failed; the message is null without an error."""
ERROR_OR_NULL: Final = (ERROR[0], ERROR[1]._replace(default=None))
"""As `ERROR`, where Kafka declares null as the default of the message."""


class Message(NamedTuple):
    """One request or response: `flexible` is the range of versions with compact lengths and tagged fields."""

    name: str
    flexible: str
    fields: tuple[Field, ...]


def message(name: str, flexible: str, *fields: Field) -> Message:
    """Declare a `Message`."""
    return Message(name, flexible, fields)


def version_in(version: int, versions: str) -> bool:
    """Whether the range ("0+", "2-5", "3", "") contains the version."""
    if not versions:
        return False
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    first, _, last = versions.partition("-")
    return int(first) <= version <= int(last or first)
