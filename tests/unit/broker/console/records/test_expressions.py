"""Expressions on JSON values: what matches, and what is refused because it would cost too much."""

import pytest

from tidelog.broker.console.records.expressions import MOST_CHARACTERS, MOST_VALUE_BYTES, Expression

ORDER = (
    '{"id": 7, "total": 120.5, "paid": false, "tags": [], "customer": {"city": "Bern"}, "lines": [{"n": 0}]}'
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id == `7`", True),
        ("total > `100` && starts_with(customer.city, 'B')", True),
        ("total > `200` || !paid", True),
        ("lines[?n == `0`]", True),
        ("lines[0].n", True),  # Zero is true in JMESPath.
        ("lines[0:1:1]", True),
        ("paid", False),
        ("tags", False),
        ("absent.deeper", False),
        ("length(customer.city) > `10`", False),
        ("abs(customer)", False),  # Of the wrong type.
    ],
)
def test_a_value_matches_if_the_expression_is_true_for_it(text: str, expected: bool) -> None:
    assert Expression(text).matches(ORDER) is expected


@pytest.mark.parametrize("value", ["", "{", "[" * 100_000, "1" * 5_000, " " * MOST_VALUE_BYTES + "1"])
def test_what_is_no_json_or_too_large_does_not_match(value: str) -> None:
    assert not Expression("@").matches(value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "JMESPath"),
        ("a ==", "JMESPath"),
        ("nosuch(@)", "nosuch"),
        ("(" * 400, "JMESPath"),
        ("x" * (MOST_CHARACTERS + 1), "at most"),
        # Each step doubles what the next one sees: 40 of them are a terabyte.
        ("|".join(["[@, @]"] * 40), r"\[a, b\]"),
        ("lines[*].{a: n}", r"\[a, b\]"),
        ("to_string(@)", "to_string"),
        ("join(@, lines)", "join"),
        ("lines[?map(&n, @)]", "map"),
        ("max_by(lines, &to_string(@))", "to_string"),
    ],
)
def test_what_cannot_be_read_or_costs_too_much_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Expression(text)
