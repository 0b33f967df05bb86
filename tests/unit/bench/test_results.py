"""What is required is judged on medians of per-round ratios, and never held on missing numbers."""

from collections.abc import Sequence

import pytest

from bench.report import middle_and_range
from bench.results import Requirement, Results, Row


def row(tidelog: list[float], tansu: list[float], *requirements: Requirement) -> Row:
    return Row("requests", "rate", "requests/s", requirements, {"tidelog": tidelog, "tansu": tansu})


_BELOW = Requirement(1, "tansu", at_least=False)


@pytest.mark.parametrize(
    ("measured", "holds"),
    [
        (row([20, 30, 10], [10, 10, 10], Requirement(2, "tansu")), True),
        (row([19, 30, 10], [10, 10, 10], Requirement(2, "tansu")), False),
        (row([1.0], [1.0], _BELOW), False),
        (row([0.9], [1.0], _BELOW), True),
        (row([79, 79, 500], [], Requirement(80, at_least=False)), True),
        (row([20], [10], Requirement(1.5, "tansu"), Requirement(3, "tansu")), False),
        (row([20], [], Requirement(2, "tansu")), False),
        (row([1], [1]), None),
    ],
)
def test_a_row_holds_when_each_of_its_requirements_was_measured_and_is_met(
    measured: Row, holds: bool | None
) -> None:
    assert measured.verdict is holds


def test_a_target_that_dropped_out_is_compared_in_the_rounds_that_it_had() -> None:
    assert row([20, 30, 10], [10, 10]).ratio("tansu") == 2.5


def test_a_row_is_believed_unless_others_took_much_of_the_machine_in_the_middle_round() -> None:
    measured = row([], [])
    for others in (0.05, 0.09, 0.9):
        measured.add("tidelog", 1.0, others)
    assert measured.is_quiet
    measured.add("tansu", 1.0, 0.11)
    assert not measured.is_quiet


def test_a_row_is_made_once_and_keeps_its_rounds_in_order() -> None:
    results = Results(("tansu",), "title")
    results.row("start", "time", "s").add("tidelog", 0.4)
    results.row("start", "time", "s").add("tidelog", 0.3)
    assert results.rows["start", "time"].values == {"tidelog": [0.4, 0.3]}


def test_requirements_read_as_they_are_meant() -> None:
    assert Requirement(1.5, "tansu").describe("MB/s") == "≥ 1.5 × tansu"
    assert Requirement(80, at_least=False).describe("MB") == "< 80 MB"
    assert Requirement(1.2, "kafka", of="other").describe("MB") == "other ≥ 1.2 × kafka"


def test_a_ratio_has_the_range_of_its_rounds() -> None:
    assert row([20, 30, 10], [10, 10, 10]).ratio_range("tansu") == (1.0, 3.0)
    assert row([20, 30, 10], []).ratio_range("tansu") is None


@pytest.mark.parametrize(
    ("busy", "limit"),
    [
        ((1.0, 0.2, 0.9), "broker"),
        ((0.4, 1.2, 0.9), "client"),
        ((0.9, 0.9, 0.9), "broker and client"),
        ((0.3, 0.2, 0.9), "disk"),
        ((0.3, 0.2, 0.3), "waiting"),
        ((0.3, 0.2), "waiting"),
    ],
)
def test_what_limits_a_rate_is_who_is_busy_in_the_middle_round(busy: Sequence[float], limit: str) -> None:
    measured = row([], [])
    assert not measured.limit("tidelog")
    for each in ([0.0] * len(busy), busy, [2.0] * len(busy)):
        measured.add("tidelog", 1.0, busy=each)
    assert measured.limit("tidelog") == limit


def test_a_cell_has_the_median_and_the_range() -> None:
    assert middle_and_range(2.0, (1.0, 30_000.0)) == "2 (1 to 30,000)"
    assert middle_and_range(2.0, (2.0, 2.001)) == "2"
    assert middle_and_range(None, None) == "–"
