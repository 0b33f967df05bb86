"""Records as lines of JSON: what is printed can be sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client import ConsumerRecord, TimestampType
from tidelog.protocol.json_lines import Line, format_line, parse_line

texts = st.none() | st.text().map(str.encode) | st.binary()


@given(texts, texts, st.lists(st.tuples(st.text(), texts), max_size=3), st.integers(0, 2**62))
def test_what_is_printed_is_sent_as_it_was(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int
) -> None:
    kept = tuple(headers)
    record = ConsumerRecord("t", 3, 7, timestamp, TimestampType.CREATE_TIME, key, value, kept, 0, 0, -1)
    printed = format_line(record)
    assert printed.endswith(b"\n")
    assert printed.count(b"\n") == 1
    assert parse_line(printed, 1) == Line(value, key, kept, 3, timestamp)


def test_what_is_no_text_is_sent_as_the_json_that_it_is() -> None:
    line = parse_line(b'{"value": {"a": [1, null]}, "key": 5, "headers": {"h": true, "n": null}}', 1)
    assert line == Line(b'{"a":[1,null]}', b"5", (("h", b"true"), ("n", None)))
    assert parse_line(b"{}", 1) == Line(None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"value", "line 9 is not JSON"),
        (b"\xff", "line 9 is not JSON"),
        (b"[1]", "line 9: expected an object .*, got list"),
        (b'{"valeu": 1}', "line 9: expected an object whose fields are among .*value, got valeu"),
        (b'{"value": {"base64": "*"}}', "line 9: expected text in base64, got '\\*'"),
        (b'{"partition": -1}', "line 9: partition: expected .*, got -1"),
        (b'{"timestamp": "now"}', "line 9: timestamp: expected .*, got 'now'"),
        (b'{"headers": [1]}', "line 9: headers are"),
        (b'{"headers": [[1, "a"]]}', "line 9: headers are"),
    ],
)
def test_a_line_that_is_no_record_is_named(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_line(text, 9)
