"""Records that are taken apart by layouts are what the plain decoder makes of them, or are left to it."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import BATCH_HEADER_SIZE, BatchHeader, RecordBatchBuilder, read_batch_header
from tidelog.protocol.records import struct_layouts as known
from tidelog.protocol.records.columns import Lists, decode_record
from tidelog.protocol.records.struct_layouts import decode_by_layouts

NOW = 1_700_000_000_000
sizes = st.sampled_from([0, 1, 5, 50, 51, 52, 55, 56, 57, 62, 63, 64, 65, 100, 400, 8192])
contents = st.none() | sizes.map(bytes) | st.binary(max_size=70)
deltas = st.sampled_from([0, 0, 0, 1, 63, 64])
entries = st.lists(st.tuples(deltas, contents, contents), min_size=1, max_size=6)


def built(entries: Sequence[tuple[int, bytes | None, bytes | None]]) -> bytearray:
    builder = RecordBatchBuilder()
    for delta, key, value in entries:
        builder.append(NOW + delta, key, value)
    return builder.build(base_offset=70)


def plainly(data: bytes, header: BatchHeader) -> tuple[list[Any], ...] | None:
    """The columns, one record after the other; None where they are malformed."""
    lists, position = Lists(header), 0
    try:
        for _ in range(header.record_count):
            position = decode_record(data, position, header, lists)
    except ProtocolError:
        return None
    if position != len(data):
        return None
    return lists.offsets, lists.timestamps, lists.keys, lists.values, lists.headers


def by_layouts(data: bytes, header: BatchHeader) -> tuple[list[Any], ...] | None:
    columns = decode_by_layouts(data, 0, header)
    return None if columns is None else tuple(map(list, columns[1:6]))


@given(entries, st.sampled_from([1, 1, 1, 30]), st.data())
def test_what_layouts_make_of_any_bytes_is_right(entries: Any, times: int, data: st.DataObject) -> None:
    batch = built(entries * times)
    header = read_batch_header(batch)
    records = batch[BATCH_HEADER_SIZE:]
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(records) - 1) | st.integers(0, min(12, len(records) - 1)))
        more = data.draw(st.binary(max_size=2) | st.sampled_from([b"\x00", b"\x01", b"\x7e", b"\x80\x01"]))
        records[place : place + data.draw(st.integers(0, 2))] = more
    found = by_layouts(bytes(records), header)
    assert found is None or found == plainly(bytes(records), header)


@given(st.lists(st.tuples(st.integers(0, 63), st.none() | sizes.map(bytes), sizes), max_size=200, min_size=1))
def test_ordinary_records_are_taken_apart_by_layouts(entries: Any) -> None:
    rows = [(delta, key and key[:63], bytes(min(size, 400))) for delta, key, size in entries]
    rows[0] = (0, *rows[0][1:])
    batch = built(rows)
    header = read_batch_header(batch)
    data = bytes(batch[BATCH_HEADER_SIZE:])
    found = by_layouts(data, header)
    assert found is not None
    assert found == plainly(data, header)
    assert [type(value) for value in found[3]] == [bytes] * len(rows)


@pytest.mark.parametrize("surplus", [1, 2])
def test_a_record_that_is_longer_than_its_fields_is_left_to_the_plain_decoder(surplus: int) -> None:
    """A value of 63 bytes has a size of one byte, one of 64 a size of two: none fills what is between."""
    batch = built([(0, None, bytes(63))] * 2)
    records = batch[BATCH_HEADER_SIZE:]
    half = len(records) // 2
    length = (half - 2 + surplus) * 2
    longer = bytes([length & 127 | 128, length >> 7]) + records[2:half] + bytes(surplus)
    data = bytes(longer + records[half:])
    assert by_layouts(data, read_batch_header(batch)) is None
    assert plainly(data, read_batch_header(batch)) is None


def test_layouts_are_forgotten_before_they_take_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "_MOST_LAYOUTS", 20)
    monkeypatch.setattr(known, "_short", known._ByLength(1))
    for size in range(200):
        batch = built([(0, None, bytes(size)), (0, b"key", bytes(size))])
        decode_by_layouts(bytes(batch[BATCH_HEADER_SIZE:]), 0, read_batch_header(batch))
        assert len(known._short) + sum(map(len, known._short.values())) <= 21
