"""Which records a visitor looks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.console.records.filters import MOST_FILTER_BYTES, Filter, find

HEADERS = (("trace", b"abc"), ("empty", None))


@pytest.mark.parametrize(
    ("key", "header", "text", "matches"),
    [
        (None, "", "", True),
        ("k", "", "", True),
        ("", "", "", False),
        ("K", "", "", False),
        (None, "trace", "", True),
        (None, "trace=abc", "", True),
        (None, "trace=ab", "", False),
        (None, "empty", "", True),
        (None, "empty=", "", False),
        (None, "Trace", "", False),
        (None, "", "alu", True),
        (None, "", "k", True),
        (None, "", "bc", True),
        (None, "", "trace", False),
        ("k", "trace=abc", "value", True),
        ("k", "trace=abc", "other", False),
    ],
)
def test_all_conditions_must_hold(key: str | None, header: str, text: str, matches: bool) -> None:
    assert Filter.of(key, header, text).matches(b"k", b"value", HEADERS) is matches


def test_a_record_without_a_key_matches_no_key() -> None:
    assert not Filter.of("", "", "").matches(None, None, ())
    assert not Filter.of(None, "", "x").matches(None, None, ())
    assert Filter.of("", "", "").matches(b"", None, ())


@pytest.mark.parametrize(
    ("key", "header", "text", "problem"),
    [
        (None, "=value", "", "header: expected name or name=value"),
        (None, "", "x" * (MOST_FILTER_BYTES + 1), "text: expected at most 4096 bytes, got 4097"),
        ("é" * MOST_FILTER_BYTES, "", "", "key: expected at most"),
        (None, "\ud800", "", "surrogates not allowed"),
    ],
)
def test_what_cannot_be_sought_is_refused(key: str | None, header: str, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Filter.of(key, header, text)


@given(st.binary(max_size=40), st.binary(min_size=1, max_size=3), st.integers(0, 40))
def test_find_is_find(data: bytes, needle: bytes, start: int) -> None:
    assert find(needle, data, start) == (data.find(needle, start) if start < len(data) else -1)


@pytest.mark.parametrize("at", [0, (1 << 20) - 2, 1 << 20, (1 << 20) + 1, (3 << 20) - 3])
def test_what_stands_across_two_pieces_is_found(at: int) -> None:
    data = bytes(at) + b"abc" + bytes((3 << 20) - at)
    assert find(b"abc", data, 0) == at
    assert find(b"abc", data, at + 1) == -1
