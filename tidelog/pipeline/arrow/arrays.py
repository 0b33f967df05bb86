"""Conversion between numpy and Arrow arrays through their buffers.

pa.array(), pa.scalar() and to_numpy() do the same, but import pandas first: 0.3 s in each Python worker.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelog.pipeline.arrow.vectors import Flags, Integers

ArrowArray: TypeAlias = Any
ArrowScalar: TypeAlias = Any


def numbers(values: npt.NDArray[np.int64] | npt.NDArray[np.int32]) -> ArrowArray:
    """The same numbers as an Arrow array, not copied."""
    arrow_type = pa.int64() if values.dtype == np.int64 else pa.int32()
    return pa.Array.from_buffers(arrow_type, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def flags(values: Flags) -> ArrowArray:
    """The same booleans as an Arrow array."""
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])


def repeated(text: str, count: int) -> ArrowArray:
    """A string array of `count` times the same text."""
    encoded = text.encode()
    cuts = np.arange(count + 1, dtype=np.int32) * np.int32(len(encoded))
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(cuts), pa.py_buffer(encoded * count)]
    )


def octets(content: bytes) -> ArrowScalar:
    """A binary scalar."""
    cuts = pa.py_buffer(np.array([0, len(content)], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, cuts, pa.py_buffer(content)])[0]


def integers(array: ArrowArray, absent: int = 0) -> Integers:
    """The numbers of an int32 or int64 array as int64, with `absent` for nulls."""
    width = np.dtype(f"i{array.type.bit_width // 8}")
    if array.null_count:
        array = array.fill_null(numbers(np.array([absent], width))[0])
    if not len(array):
        return np.zeros(0, np.int64)
    data = array.buffers()[1]
    return np.frombuffer(data, width, len(array), array.offset * width.itemsize).astype(np.int64, copy=False)


def nulls(array: ArrowArray) -> Flags:
    """True for each null of an array."""
    if not array.null_count:
        return np.zeros(len(array), np.bool_)
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    there = np.unpackbits(bits, count=array.offset + len(array), bitorder="little")[array.offset :]
    return np.asarray(there == 0)
