"""Which records a visitor looks for.

Owns the conditions on a record. A record must meet all that are set. Bytes are compared, so case counts.

Invariants: each condition but `expression` names bytes of the encoded records, so a batch without them is
left out before it is decoded. `expression` is for who knows the value as JSON (`matches` does not). Pure.
"""

from typing import Final, NamedTuple, Self

from tidelog.broker.console.records.expressions import Expression
from tidelog.protocol.records import Headers

MOST_FILTER_BYTES: Final = 4_096
_PIECE_BYTES: Final = 1 << 20


class Filter(NamedTuple):
    """The conditions on a record: all bytes of its key, the name and (unless None) the value of a header, a
    part of key, value or a header's value. None and empty: no such condition."""

    key: bytes | None = None
    header: str = ""
    header_value: bytes | None = None
    text: bytes = b""
    expression: Expression | None = None

    @classmethod
    def of(cls, key: str | None, header: str, text: str, expression: str = "") -> Self:
        """From a form: the header as `name` or `name=value`. Raises ValueError."""
        name, equals, value = header.partition("=")
        given = cls(
            *(None if key is None else key.encode(), name, value.encode() if equals else None),
            *(text.encode(), Expression(expression) if expression else None),
        )
        for part, data in (("key", given.key), ("header", header.encode()), ("text", given.text)):
            if data is not None and len(data) > MOST_FILTER_BYTES:
                raise ValueError(f"{part}: expected at most {MOST_FILTER_BYTES} bytes, got {len(data)}")
        if equals and not name:
            raise ValueError("header: expected name or name=value, got no name")
        return given

    @property
    def is_empty(self) -> bool:
        return self == Filter()

    @property
    def needles(self) -> tuple[bytes, ...]:
        """Bytes of each record that matches."""
        wanted = (self.key, self.header.encode(), self.header_value, self.text)
        return tuple(sorted(filter(None, wanted), key=len, reverse=True))

    def matches(self, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        if self.key is not None and key != self.key:
            return False
        if self.header and not any(
            name == self.header and self.header_value in (None, content) for name, content in headers
        ):
            return False
        text = self.text
        return not text or any(
            part is not None and text in part for part in (key, value, *(each for _, each in headers))
        )


def find(needle: bytes, data: bytes, start: int) -> int:
    """As `data.find(needle, start)`, in pieces: one search through many megabytes would keep the
    interpreter's lock for all that time."""
    while start < len(data):
        found = data.find(needle, start, start + _PIECE_BYTES + len(needle))
        if found >= 0:
            return found
        start += _PIECE_BYTES
    return -1
