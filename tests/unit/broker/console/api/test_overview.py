"""The charts of several brokers as one."""

from typing import Any

from tidelog.broker.console.api.overview import summed_series


def series(times: list[int], **columns: list[float | None]) -> Any:
    named = {name.replace("produce_ms_", "produce_ms."): values for name, values in columns.items()}
    return {"period_ms": 1000, "times": times, "columns": named, "marks": [{"at_ms": times[0], "text": "x"}]}


def test_numbers_of_brokers_are_added_and_of_percentiles_the_largest_is_shown() -> None:
    one = series([1100, 2100, 3100], bytes_in=[1.0, 2.0, 3.0], produce_ms_p99=[5.0, None, 9.0])
    other = series([1900, 2950, 3900], bytes_in=[10.0, 20.0, None], produce_ms_p99=[7.0, 1.0, None])
    found = summed_series({1: one, 2: other})
    assert found["times"] == [1000, 2000, 3000]
    assert found["columns"] == {"bytes_in": [11.0, 22.0, 3.0], "produce_ms.p99": [7.0, 1.0, 9.0]}
    assert len(found["marks"]) == 2


def test_a_broker_whose_point_is_late_has_the_one_before_and_a_gap_stays_one() -> None:
    one = series([1000, 2000, 3000, 9000], bytes_in=[1.0, 1.0, 1.0, 1.0])
    late = series([1990, 3010, 9000], bytes_in=[10.0, 10.0, 10.0])
    found = summed_series({1: one, 2: late})
    assert found["times"] == [1000, 2000, 3000, 4000, 9000]
    assert found["columns"]["bytes_in"] == [11.0, 11.0, 11.0, 11.0, 11.0]
