"""Bytes as text: bounded, exact, and never an exception."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.console.records.shown_values import Format, indented, shown
from tidelog.schemas.decoded_values import DecodedValue

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@pytest.mark.parametrize(
    ("data", "wanted", "form", "text"),
    [
        (b"", Format.AUTO, "text", ""),
        (b"plain", Format.AUTO, "text", "plain"),
        (b"12", Format.AUTO, "text", "12"),
        (b' {"a": 1.50}', Format.AUTO, "json", ' {"a": 1.50}'),
        (b"[1", Format.AUTO, "text", "[1"),
        (b"12", Format.JSON, "json", "12"),
        (b'{"a": 1}', Format.TEXT, "text", '{"a": 1}'),
        (b"\xff\x00", Format.AUTO, "bytes", "ff 00"),
        (b"ab", Format.BYTES, "bytes", "61 62"),
        ("<b>\u202e\x1b".encode(), Format.AUTO, "text", "<b>\u202e\x1b"),
    ],
)
def test_what_fits_first_is_how_bytes_are_shown(data: bytes, wanted: Format, form: str, text: str) -> None:
    found = shown(data, wanted)
    assert found is not None
    assert (found["format"], found["text"], found["problem"]) == (form, text, "")
    assert (found["size_bytes"], found["is_truncated"]) == (len(data), False)


@pytest.mark.parametrize(
    ("data", "wanted", "form", "problem"),
    [
        (b"\xff", Format.TEXT, "bytes", "expected UTF-8, got something else at byte 0"),
        (b"\xff", Format.JSON, "bytes", "expected UTF-8, got something else at byte 0"),
        (b"{", Format.JSON, "text", "expected JSON: "),
        (b"[" * 100_000, Format.JSON, "text", "expected JSON: maximum recursion depth"),
        (b"text", Format.AVRO, "text", "expected byte 0 and a schema's id"),
    ],
)
def test_what_cannot_be_read_as_wanted_is_shown_all_the_same_and_says_why(
    data: bytes, wanted: Format, form: str, problem: str
) -> None:
    found = shown(data, wanted)
    assert found is not None
    assert found["format"] == form
    assert found["problem"].startswith(problem)


def test_none_is_none_and_what_is_long_is_cut_and_has_its_size() -> None:
    assert shown(None) is None
    for data, length in ((b"x" * 5_000, 100), (b'{"a": "%s"}' % (b"x" * 5_000), 100), (b"\xff" * 5_000, 149)):
        found = shown(data, most_bytes=100)
        assert found is not None
        assert (found["size_bytes"], found["is_truncated"], len(found["text"])) == (len(data), True, length)


def test_a_decoder_comes_first_and_its_failure_is_named() -> None:
    def decode(data: bytes) -> DecodedValue | None:
        if data == b"\x00bad":
            raise ValueError("no such schema")
        return DecodedValue('{"a": 1}', 7, "AVRO") if data.startswith(b"\x00") else None

    good, bad, other = (shown(data, Format.AUTO, decode) for data in (b"\x00good", b"\x00bad", b"other"))
    assert good is not None
    assert (good["format"], good["text"], good["schema_id"]) == ("avro", '{"a": 1}', 7)
    assert bad is not None
    assert (bad["text"], bad["problem"]) == ("\x00bad", "no such schema")
    assert other is not None
    assert (other["text"], other["problem"]) == ("other", "")
    as_text = shown(b"\x00good", Format.TEXT, decode)
    assert as_text is not None
    assert as_text["format"] == "text"


@given(st.binary(max_size=200), st.sampled_from(Format), st.integers(2, 64))
def test_any_bytes_give_a_bounded_text(data: bytes, wanted: Format, most_bytes: int) -> None:
    found = shown(data, wanted, most_bytes=most_bytes)
    assert found is not None
    assert len(found["text"]) <= 2 * most_bytes
    assert found["size_bytes"] == len(data)
    if not found["is_truncated"]:
        text = found["text"]
        assert (bytes.fromhex(text) if found["format"] == "bytes" else text.encode()) == data


@given(_JSON)
def test_indented_json_is_the_same_json(value: object) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, separators=(",", ":"))):
        assert json.loads(indented(text)) == value


def test_indented_json_has_a_line_per_element_and_keeps_every_digit() -> None:
    assert indented('{"a":1.50,"b":[],"c":[1,{"d":"{,}"}]}').split("\n") == [
        "{",
        '  "a": 1.50,',
        '  "b": [],',
        '  "c": [',
        "    1,",
        "    {",
        '      "d": "{,}"',
        "    }",
        "  ]",
        "}",
    ]


@pytest.mark.parametrize("text", ['"' + '\\"' * 30_000, "[" * 60_000, '{"a": "cut of', "}" * 60_000])
def test_what_is_cut_or_hostile_is_indented_in_bounded_size(text: str) -> None:
    assert len(indented(text)) <= 45 * len(text)
