"""What `arrow.encoding` makes of Arrow columns are the bytes that the plain builder makes of the rows."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipeline.arrow.columnar import HEADERS_TYPE
from tidelog.pipeline.arrow.encoding import (
    RecordColumns,
    encode,
    murmur2_partitions,
    record_size_bounds,
    varints,
)
from tidelog.protocol.murmur2 import murmur2_partition
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.records.varints import encode_varint

CONTENT = st.none() | st.binary(max_size=12) | st.binary(min_size=120, max_size=150)
HEADER = st.tuples(st.text(max_size=6), CONTENT)
ROW = st.tuples(st.integers(-1, 2**62), CONTENT, CONTENT, st.none() | st.lists(HEADER, max_size=3))
ROWS = st.lists(ROW, min_size=1, max_size=30)


def columns_of(rows: list, source: bool, skipped: int = 0) -> RecordColumns:
    """The rows as columns, which are slices of longer arrays as Arrow's batches often are."""
    padded = [(0, b"before", b"before", [("before", b"before")])] * skipped + rows
    headers = [
        None if each[3] is None else [{"key": name, "value": value} for name, value in each[3]]
        for each in padded
    ]
    positions = [f"orders-0@{number}".encode() for number in range(len(padded))]
    return RecordColumns(
        np.array([each[0] for each in rows], np.int64),
        pa.array([each[1] for each in padded], pa.binary())[skipped:],
        pa.array([each[2] for each in padded], pa.binary())[skipped:],
        pa.array(headers, HEADERS_TYPE)[skipped:],
        ("source", pa.array(positions, pa.binary())[skipped:]) if source else None,
    )


@given(ROWS, st.booleans(), st.integers(0, 2), st.integers(61, 900))
def test_encoded_batches_equal_the_builders(rows: list, source: bool, skipped: int, size: int) -> None:
    columns = columns_of(rows, source, skipped)
    done = 0
    for batch in encode(columns, size):
        plain = RecordBatchBuilder()
        for number in range(done, done + batch.record_count):
            timestamp, key, value, headers = rows[number]
            last = [("source", f"orders-0@{number + skipped}".encode())] if source else []
            plain.append(timestamp, key, value, [*(headers or ()), *last])
        assert batch.builder().size_bytes <= size or batch.record_count == 1
        assert (batch.base_timestamp, batch.max_timestamp) == (plain.base_timestamp, plain.max_timestamp)
        assert batch.builder().build() == plain.build()
        done += batch.record_count
    assert done == len(rows)


@given(ROWS, st.booleans())
def test_no_record_is_larger_than_its_bound(rows: list, source: bool) -> None:
    columns = columns_of(rows, source)
    bounds = record_size_bounds(columns)
    for row, batch in enumerate(encode(columns, 61)):
        assert len(batch.payload) <= bounds[row]


@given(ROWS, st.data())
def test_rows_can_be_taken_in_any_order(rows: list, data: st.DataObject) -> None:
    order = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1))
    taken = columns_of(rows, False).take(np.array(order, np.int64))
    plain = columns_of([rows[number] for number in order], False)
    assert [bytes(each.payload) for each in encode(taken, 400)] == [
        bytes(each.payload) for each in encode(plain, 400)
    ]


@given(st.lists(st.none() | st.binary(max_size=20) | st.binary(min_size=40, max_size=60)), st.integers(1, 9))
def test_keys_go_where_the_client_sends_them(keys: list, partitions: int) -> None:
    found = murmur2_partitions(pa.array(keys, pa.binary())[1:], partitions)
    assert found.tolist() == [-1 if key is None else murmur2_partition(key, partitions) for key in keys[1:]]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_varints_equal_the_plain_ones(numbers: list[int]) -> None:
    made = varints(np.array(numbers, np.int64))
    for row, number in enumerate(numbers):
        assert made.octets[row, : made.widths[row]].tobytes() == encode_varint(number)


def test_a_timestamp_before_1970_is_refused() -> None:
    columns = RecordColumns(np.array([5, -2], np.int64))
    with pytest.raises(ValueError, match="-2 ms lies before 1970"):
        list(encode(columns, 1000))


def test_a_header_without_a_name_is_refused() -> None:
    headers = pa.array([[{"key": None, "value": b""}]], HEADERS_TYPE)
    with pytest.raises(ValueError, match="a header without a name"):
        list(encode(RecordColumns(np.array([5], np.int64), headers=headers), 1000))
