"""Numbers as people read them: the unit that fits, and separators."""

import pytest

from tidelog.pipeline.jobs.quantities import DURATION, SIZE, as_duration, as_number, as_size, unit_of


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (0.25, "0.25 ms"),
        (999, "999 ms"),
        (1_500, "1.5 s"),
        (60_000, "1 min"),
        (3_599_000, "59 min 59 s"),
        (3_600_000, "1 h"),
        (5_430_000, "1 h 30 min"),
        (86_400_000, "1 day"),
        (27_237_600_000, "315 days 6 h"),
        (86_400_000_000, "1,000 days"),
    ],
)
def test_a_duration_has_the_units_that_fit(milliseconds: float, text: str) -> None:
    assert as_duration(milliseconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (0.5, "0.5 B"), (999, "999 B"), (1_000, "1.0 kB"), (26_300_000, "26.3 MB")]
)
def test_a_size_has_the_unit_that_fits(size: float, text: str) -> None:
    assert as_size(size) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (27_237_600_000, "27,237,600,000"), (1234.5, "1,234"), (2.345, "2.35"), (0.0123, "0.012")],
)
def test_a_number_has_thousands_separators_and_the_digits_that_matter(value: float, text: str) -> None:
    assert as_number(value) == text


def test_a_unit_fits_where_the_amount_is_at_least_one_of_it() -> None:
    assert unit_of(0, DURATION).name == unit_of(999, DURATION).name == "ms"
    assert unit_of(10**12, DURATION).name == "days"
    assert unit_of(1_000, SIZE).name == "kB"
