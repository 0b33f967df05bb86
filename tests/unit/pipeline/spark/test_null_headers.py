"""Headers that were null on one side of Spark are null again on the other."""

import pyarrow as pa

from tidelog.pipeline.arrow.columnar import HEADERS_TYPE
from tidelog.pipeline.spark.null_headers import null_for_empty

SOME = [{"key": "k", "value": b"v"}, {"key": "", "value": None}]


def test_an_empty_array_becomes_null_and_no_other_does() -> None:
    headers = pa.array([[], SOME, None, [], SOME], HEADERS_TYPE)
    assert null_for_empty(headers).to_pylist() == [None, SOME, None, None, SOME]
    assert null_for_empty(headers.slice(1, 3)).to_pylist() == [SOME, None, None]
    assert null_for_empty(headers).type == HEADERS_TYPE


def test_no_rows_stay_none() -> None:
    assert null_for_empty(pa.array([], HEADERS_TYPE)).to_pylist() == []
