r"""How `consume` prints a record: a format with kcat's symbols, compiled once.

Owns the symbols. `%s` value, `%S` its length, `%k` key, `%K` its length (-1 for none), `%h` headers, `%t`
topic, `%p` partition, `%o` offset, `%T` timestamp in milliseconds, `%%` a percent sign; `\n`, `\r`, `\t`,
`\0`, `\\` and `\xNN` are the bytes they are elsewhere; any other backslash is itself. Kcat prints nothing for
a key or a value that is None. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from tidelog.client import ConsumerRecord

Part: TypeAlias = "Callable[[Any], bytes | None]"

_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%(?P<symbol>.?)|\\x(?P<code>[0-9a-fA-F]{2})|\\(?P<escape>.?)|[^%\\]+", re.DOTALL)
SYMBOLS: dict[str, Part] = {
    "s": lambda record: record.value,
    "S": lambda record: _length(record.value),
    "k": lambda record: record.key,
    "K": lambda record: _length(record.key),
    "h": lambda record: b",".join(_header(name, value) for name, value in record.headers),
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "%": lambda _: b"%",
}


def compile_format(text: str, none: bytes = b"") -> Callable[[ConsumerRecord], bytes]:
    """What makes the bytes of a record. `none` stands for a key or a value that is None. Raises ValueError
    for a symbol that does not exist."""
    parts = [_part(token) for token in _TOKEN.finditer(text)]

    def line(record: ConsumerRecord) -> bytes:
        made = (part(record) for part in parts)
        return b"".join([none if each is None else each for each in made])

    return line


def _part(token: re.Match[str]) -> Part:
    symbol, code, escape = token.group("symbol", "code", "escape")
    if symbol is not None:
        if symbol not in SYMBOLS:
            known = ", ".join(f"%{each}" for each in SYMBOLS)
            raise ValueError(f"expected one of {known}, got %{symbol}")
        return SYMBOLS[symbol]
    if code is not None:
        literal = bytes.fromhex(code)
    elif escape in _ESCAPES:
        literal = _ESCAPES[escape]
    else:
        literal = token[0].encode()
    return lambda _: literal


def _header(name: str, value: bytes | None) -> bytes:
    return name.encode() + b"=" + (b"null" if value is None else value)


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)
