"""What goes between numpy and Arrow by the buffers is what pyarrow would make of it, and pandas stays out."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from tidelog.pipeline.arrow.arrays import flags, integers, nulls, numbers, octets, repeated

SINK = """
import sys
import numpy as np, pyarrow as pa
from tidelog.pipeline.mirror import writer as mirror_writer
from tidelog.pipeline.arrow.arrays import numbers, repeated
from tidelog.pipeline.arrow.encoding import encode
from tidelog.pipeline.sink.rows import choose_partitions, chunks, groups, read_rows

texts = repeated("text", 9)
names = ["key", "value", "partition", "source_topic", "source_partition", "source_offset"]
columns = [texts, texts, numbers(np.zeros(9, np.int32)), texts, *2 * [numbers(np.arange(9))]]
validity = pa.py_buffer(b"\\xf0\\xff")
columns[0] = texts.take(pa.Array.from_buffers(pa.int64(), 9, [validity, columns[5].buffers()[1]]))
for chunk in chunks([pa.RecordBatch.from_arrays(columns, names)]):
    rows = read_rows(chunk.drop_columns("partition"), "topic")
    for place, chosen in groups(rows, choose_partitions(rows, {"topic": 3}, 1000, 0)):
        list(encode(rows.columns.take(chosen), 1000))
print("pandas" in sys.modules)
"""


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_numbers_go_there_and_back(dtype: type[np.int32] | type[np.int64]) -> None:
    values = np.array([1, -2, 3, 4], dtype)
    array = numbers(values[::2])
    assert array.equals(pa.array(values[::2]))
    assert integers(numbers(values).slice(1, 2)).tolist() == [-2, 3]
    assert integers(pa.array([None, 5, None, 6], array.type).slice(1), -1).tolist() == [5, -1, 6]
    assert integers(array.slice(2)).dtype == np.int64


def test_the_others_are_what_pyarrow_makes() -> None:
    assert flags(np.array([True, False] * 5)).to_pylist() == [True, False] * 5
    assert repeated("né", 2).to_pylist() == ["né", "né"]
    assert octets(b"ab") == pa.scalar(b"ab", pa.binary())


def test_nulls_are_found_behind_an_offset() -> None:
    array = pa.array([b"a", None] * 9)
    assert nulls(array.slice(3, 10)).tolist() == [True, False] * 5
    assert nulls(array.drop_null()).tolist() == [False] * 9


def test_a_sinks_worker_encodes_its_rows_without_pandas() -> None:
    ran = subprocess.run([sys.executable, "-c", SINK], capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "False", ran.stderr
