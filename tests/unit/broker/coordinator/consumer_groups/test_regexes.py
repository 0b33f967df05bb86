"""Subscription by regular expression: RE2's syntax, bounded work, whole names."""

import pytest

from tidelog.broker.coordinator.consumer_groups.regexes import MAX_REGEX_CHARACTERS, compiled, matching
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.steps import finish

NAMES = ["orders", "orders-eu", "old-orders", "__consumer_offsets", "__transaction_state"]


@pytest.mark.parametrize(
    ("regex", "found"),
    [("orders.*", {"orders", "orders-eu"}), ("orders", {"orders"}), (".*", {*NAMES[:3]}), ("no", set())],
)
def test_a_regular_expression_must_match_the_whole_name_of_a_topic_of_users(
    regex: str, found: set[str]
) -> None:
    assert finish(matching(regex, NAMES)) == found


@pytest.mark.parametrize(
    "regex", ["[", "(?=lookahead)", r"(a)\1", "a" * (MAX_REGEX_CHARACTERS + 1), "(.{0,100}){0,10}"]
)
def test_what_re2_cannot_match_in_bounded_time_is_refused(regex: str) -> None:
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.INVALID_REGULAR_EXPRESSION):
        finish(matching(regex, NAMES))


def test_an_expression_that_backtracks_for_ever_elsewhere_takes_a_step_for_each_few_names() -> None:
    hostile = "((a?){30}){30}b"
    names = ["a" * 249] * 30
    steps = sum(1 for _ in matching(hostile, names))
    assert steps >= len(names) * (compiled(hostile).programsize // 50) // 200
    assert sum(1 for _ in matching("orders", names)) == 0
