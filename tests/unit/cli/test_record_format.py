"""Formats of `consume`."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from tidelog.cli.record_format import compile_format


@dataclass
class Record:
    topic: str = "t"
    partition: int = 1
    offset: int = 2
    timestamp: int = 3
    key: bytes | None = b"k"
    value: bytes | None = b"value"
    headers: list[tuple[str, bytes | None]] = field(default_factory=lambda: [("a", b"1"), ("b", None)])


@pytest.mark.parametrize(
    ("text", "record", "line"),
    [
        ("%t-%p@%o %T %k=%s", Record(), b"t-1@2 3 k=value"),
        ("%K %S %h", Record(), b"1 5 a=1,b=null"),
        ("%K %S %k %s", Record(key=None, value=None), b"-1 -1  "),
        (r"100%% \n\r\t\0\\\x7c\|\x", Record(), b"100% \n\r\t\0\\|\\|\\x"),
        ("é\n", Record(), "é\n".encode()),
        ("%s", Record(value=b"\xff"), b"\xff"),
        ("", Record(), b""),
    ],
)
def test_symbols_and_escapes_are_those_of_kcat(text: str, record: Any, line: bytes) -> None:
    assert compile_format(text)(record) == line


@pytest.mark.parametrize("text", ["%q", "%", "%\n"])
def test_a_symbol_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected one of %s, %S"):
        compile_format(text)
