"""Rows as Spark hands them over become records with a place each, in their order."""

import numpy as np
import pyarrow as pa
import pytest

from tidelog.pipeline.offsets import OptionError, Place
from tidelog.pipeline.sink.rows import choose_partitions, chunks, groups, read_rows
from tidelog.protocol.murmur2 import murmur2_partition


def table(**columns: object) -> pa.Table:
    return pa.table(columns)


def test_batches_are_put_together_and_large_ones_are_cut() -> None:
    small = [pa.record_batch({"value": pa.array([b"x"] * 10)})] * 5
    assert [each.num_rows for each in chunks(small)] == [50]
    large = pa.record_batch({"value": pa.array([b"x" * 10**6] * 100)})
    sizes = [each.num_rows for each in chunks([large])]
    assert sum(sizes) == 100
    assert len(sizes) > 1
    assert list(chunks([])) == []


def test_types_are_brought_to_those_of_a_record() -> None:
    rows = read_rows(
        table(
            key=pa.array(["k", None]),
            value=pa.array([b"v", None], pa.large_binary()),
            topic=["a", "b"],
            partition=pa.array([3, None], pa.int16()),
            timestamp=pa.array([1_700_000_000_123_999, None], pa.timestamp("us", tz="UTC")),
        ),
        None,
    )
    assert rows.columns.keys.to_pylist() == [b"k", None]
    assert rows.columns.values.to_pylist() == [b"v", None]
    assert rows.topics == ("a", "b")
    assert rows.partitions.tolist() == [3, -1]
    assert rows.columns.timestamps_ms[0] == 1_700_000_000_123
    assert rows.columns.timestamps_ms[1] > 1_700_000_000_123, "now"
    assert read_rows(table(value=["v"], topic=["a"]), "b").topics == ("b",)


def test_rows_that_cannot_be_placed_are_refused() -> None:
    with pytest.raises(OptionError, match="topic is null in 1 rows"):
        read_rows(table(value=["v"], topic=pa.array([None], pa.string())), None)
    with pytest.raises(OptionError, match=r"partition: .* got -1"):
        read_rows(table(value=["v"], partition=[-1]), "t")


def test_partitions_are_those_named_else_by_key_else_by_turns() -> None:
    rows = read_rows(
        table(
            key=["a", "b", None, None, "c"],
            value=["x" * 100] * 5,
            partition=pa.array([2, None, None, None, None], pa.int32()),
        ),
        "t",
    )
    chosen = choose_partitions(rows, {"t": 3}, 200, 7)
    assert chosen[[0, 1, 4]].tolist() == [2, murmur2_partition(b"b", 3), murmur2_partition(b"c", 3)]
    many = read_rows(table(value=["x" * 100] * 300), "t")
    spread = choose_partitions(many, {"t": 3}, 2_000, 0)
    assert set(np.bincount(spread, minlength=3) // 80) == {1}


def test_groups_keep_the_order_of_their_rows() -> None:
    rows = read_rows(table(value=["v"] * 6, topic=["a", "b", "a", "b", "a", "a"]), None)
    found = {
        group.place: None if group.rows is None else group.rows.tolist()
        for group in groups(rows, np.array([1, 0, 0, 0, 1, 0]))
    }
    assert found == {Place("a", 0): [2, 5], Place("a", 1): [0, 4], Place("b", 0): [1, 3]}
    one = read_rows(table(value=["v"] * 2), "a")
    assert [tuple(each) for each in groups(one, np.array([4, 4]))] == [(Place("a", 4), None)]
