"""Rows as aligned lines, and times as text."""

import pytest

from tidelog.cli.tables import format_table, format_timestamp, shortened


def test_numbers_stand_to_the_right_and_text_to_the_left() -> None:
    lines = format_table(("NAME", "COUNT"), [("a", 5), ("orders", 1234)])
    assert lines == ["NAME    COUNT", "a           5", "orders   1234"]
    assert format_table(("N", "COUNT"), [("a", "1,234.5")], numbers=("COUNT",)) == [
        "N    COUNT",
        "a  1,234.5",
    ]


def test_no_rows_leave_the_heading() -> None:
    assert format_table(("A", "B"), []) == ["A  B"]


def test_the_last_column_wraps_to_the_width_given() -> None:
    rows = [("name", "many words that go on and on and need a second line")]
    lines = format_table(("NAME", "MEANING"), rows, width=40)
    assert lines == ["NAME  MEANING", "name  many words that go on and on and", "      need a second line"]
    assert max(map(len, format_table(("NAME", "MEANING"), rows))) > 40


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        (-1, "-"),
        (-2, "-2"),
        (2**63 - 1, str(2**63 - 1)),
    ],
)
def test_times_are_utc_to_the_millisecond(timestamp_ms: int, expected: str) -> None:
    assert format_timestamp(timestamp_ms) == expected


def test_a_long_value_does_not_widen_its_column() -> None:
    assert shortened("x" * 40) == "x" * 40
    assert shortened("x" * 41) == "x" * 39 + "…"
