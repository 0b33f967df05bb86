"""How standard input becomes records."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.cli.failures import Failure
from tidelog.cli.options import unescape
from tidelog.cli.produce import _lines, _split


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


async def lines_of(pipe: tuple[int, int], data: bytes) -> list[bytes]:
    reading, writing = pipe
    os.write(writing, data)
    os.close(writing)
    return [line async for some in _lines(reading) for line in some]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"\n\n", [b"", b""]),
        (b"a\r\nb", [b"a\r", b"b"]),
        (b"\x00\xff\xfe\n", [b"\x00\xff\xfe"]),
    ],
)
async def test_a_line_is_what_stands_before_a_line_feed(
    pipe: tuple[int, int], data: bytes, expected: list[bytes]
) -> None:
    assert await lines_of(pipe, data) == expected


async def test_a_line_comes_as_soon_as_it_is_whole(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    lines = _lines(reading)
    os.write(writing, b"one\ntw")
    assert await anext(lines) == [b"one"]
    os.write(writing, b"o\nthree")
    assert await anext(lines) == [b"two"]
    os.close(writing)
    assert [some async for some in lines] == [[b"three"]]


async def test_lines_longer_than_one_read_stay_whole(tmp_path: Path) -> None:
    expected = [random.Random(1).randbytes(700_000).replace(b"\n", b"x"), b"", b"short"]
    (tmp_path / "lines").write_bytes(b"\n".join(expected))
    descriptor = os.open(tmp_path / "lines", os.O_RDONLY)
    assert [line async for some in _lines(descriptor) for line in some] == expected
    os.close(descriptor)


def test_the_first_separator_parts_key_and_value() -> None:
    assert _split(b"key:va:lue", b":", 1) == (b"key", b"va:lue")
    assert _split(b":", b":", 1) == (b"", b"")
    with pytest.raises(Failure, match="line 8 does not contain the key separator ':'"):
        _split(b"nothing", b":", 8)


def test_separators_may_be_typed_as_escapes() -> None:
    assert unescape(r"\t") == b"\t"
    assert unescape("€") == "€".encode()
