"""The table of more cores than a bench has follows from the figures that it states."""

from pathlib import Path

from bench.cores import LOADS, Machine, limits_of, row_of, table


def test_the_page_has_the_table_that_the_model_prints() -> None:
    page = Path(__file__).parents[3] / "docs" / "processes.md"
    assert table(Machine()) in page.read_text()


def test_the_part_that_allows_least_is_the_limit() -> None:
    few, many = row_of(2, Machine(syncs_per_s=1_000.0)), row_of(2, Machine(disk_bytes_per_s=1e6))
    assert (few.rates[0], few.limits[0]) == (2_500.0, "syncs")
    assert many.limits == ("disk", "disk")
    assert (
        limits_of(LOADS[0], 8, Machine())["processor"] == 8 * limits_of(LOADS[0], 1, Machine())["processor"]
    )
