"""The words in which a message is declared: fields with version ranges, and the messages made of them.

Owns: `Field`, `Message` and the meaning of a version range ("0+", "2-5", "3", "" for none).

Invariants: plain immutable data, so that importing every declaration stays cheap; ranges are parsed when a
codec is built, never at import. A field without a default takes its type's zero: 0, False, "", b"", [],
the zero uuid, or a struct of defaults.

Source: the schema format of Kafka's message definitions (clients/src/main/resources/common/message).
"""

from typing import Final, NamedTuple


class _Zero:
    """The default that the type implies."""

    def __repr__(self) -> str:
        return "ZERO"


ZERO: Final = _Zero()
"""Default marker: the zero of the field's type."""


class Field(NamedTuple):
    """One field. `type` is a scalar ("int32", "string", "uuid", ...), "[]int32" for an array of scalars,
    "struct" or "[]struct" with `fields`.

    `nullable` is the range of versions in which null may stand for it; `tag` makes it a tagged field in all
    of its versions; `ignorable` lets a value be dropped silently when the version has no room for it.
    """

    name: str
    type: str
    versions: str
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


def version_in(version: int, versions: str) -> bool:
    """Whether the range ("0+", "2-5", "3", "") holds the version."""
    if not versions:
        return False
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    first, _, last = versions.partition("-")
    return int(first) <= version <= int(last or first)
