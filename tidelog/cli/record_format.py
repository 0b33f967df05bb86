r"""How `consume` prints a record: a format with kcat's symbols, compiled once.

Owns the symbols. `%s` value, `%S` its length, `%k` key, `%K` its length (-1 for none), `%h` headers, `%t`
topic, `%p` partition, `%o` offset, `%T` timestamp in milliseconds, `%%` a percent sign; `\n`, `\r`, `\t`,
`\0`, `\\` and `\xNN` are the bytes they are elsewhere; any other backslash is itself. What is None is printed
as `null`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from tidelog.client import ConsumerRecord

Part: TypeAlias = "Callable[[Any], bytes]"

_NONE = b"null"
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%(?P<symbol>.?)|\\x(?P<code>[0-9a-fA-F]{2})|\\(?P<escape>.?)|[^%\\]+", re.DOTALL)
SYMBOLS: dict[str, Part] = {
    "s": lambda record: _bytes(record.value),
    "S": lambda record: _length(record.value),
    "k": lambda record: _bytes(record.key),
    "K": lambda record: _length(record.key),
    "h": lambda record: b",".join(name.encode() + b"=" + _bytes(value) for name, value in record.headers),
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "%": lambda _: b"%",
}


def compile_format(text: str) -> Callable[[ConsumerRecord], bytes]:
    """What makes the bytes of a record. Raises ValueError for a symbol that does not exist."""
    parts = [_part(token) for token in _TOKEN.finditer(text)]
    return lambda record: b"".join([part(record) for part in parts])


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


def _bytes(data: bytes | None) -> bytes:
    return _NONE if data is None else data


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)
