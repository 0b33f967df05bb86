"""Records as a table: what a cell has, and that no cell is a formula."""

import csv
import io
import json
from typing import Any

import pytest

from tidelog.broker.console.records.csv_rows import CSV_HEAD, csv_rows


def cells(**fields: Any) -> dict[str, str]:
    record = {"topic": "t", "partition": 1, "offset": 2, "timestamp": -1, "key": None, "value": "v"}
    lines = json.dumps(record | {"headers": []} | fields).encode() + b"\n"
    table = (CSV_HEAD + csv_rows(lines)).decode("utf-8", "surrogatepass")
    (row,) = csv.DictReader(io.StringIO(table, newline=""))
    return row


def test_a_cell_has_the_value() -> None:
    assert cells(value='a,"b"\r\nc', headers=[["n", "w"]]) == {
        "topic": "t",
        "partition": "1",
        "offset": "2",
        "timestamp": "-1",
        "key": "",
        "value": 'a,"b"\r\nc',
        "headers": '[["n", "w"]]',
    }
    assert cells(key={"base64": "/w=="})["key"] == '{"base64": "/w=="}'
    assert cells(key="\ud800")["key"] == "\ud800"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1"])
def test_a_cell_that_would_be_a_formula_begins_with_an_apostrophe(text: str) -> None:
    assert cells(key=text, value=text)["value"] == f"'{text}"
    assert cells(key=text)["key"] == f"'{text}"
