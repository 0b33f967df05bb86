"""A batch whose records are all of one size decodes as one by one, whatever was done to its bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import (
    BATCH_HEADER_SIZE,
    RecordBatchBuilder,
    decode_batch,
    decode_batch_columns,
    read_batch_header,
)
from tidelog.protocol.records.columns import decode_columns
from tidelog.protocol.records.header import write_crc
from tidelog.protocol.records.reader import decode_plain_batches
from tidelog.protocol.records.uniform import decode_uniform

NOW = 1_700_000_000_000
counts = st.sampled_from([2, 3, 16, 63, 64, 65, 66, 130, 600])
sizes = st.sampled_from([0, 1, 20, 63, 64, 100, 1000])
deltas = st.sampled_from([0, 1, 63, 64, 10_000])


def built(count: int, key_size: int | None, value_size: int | None, step_ms: int, seed: int = 3) -> bytearray:
    builder = RecordBatchBuilder()
    fill = bytes([seed])
    for index in range(count):
        key = None if key_size is None else fill * key_size
        value = None if value_size is None else fill * value_size
        builder.append(NOW + seed + (step_ms if index % 3 else 0), key, value)
    return builder.build(base_offset=seed * 1000)


def plainly(batch: bytearray) -> Any:
    """What the loop makes of the records, or says of them."""
    header = read_batch_header(batch)
    data = bytes(batch[BATCH_HEADER_SIZE:])
    try:
        columns, end = decode_columns(data, header.record_count, header)
    except ProtocolError:
        return None
    return tuple(map(list, columns[1:6])) if end == len(data) else None


def uniformly(batch: bytearray) -> Any:
    columns = decode_uniform(bytes(batch), BATCH_HEADER_SIZE, read_batch_header(batch))
    return None if columns is None else tuple(map(list, columns[1:6]))


@given(counts, st.none() | sizes, st.none() | sizes, deltas, st.data())
def test_what_is_found_in_any_bytes_is_right(
    count: int, key_size: int | None, value_size: int | None, step_ms: int, data: st.DataObject
) -> None:
    batch = built(count, key_size, value_size, step_ms)
    for _ in range(data.draw(st.integers(0, 2))):
        near_the_start = st.integers(BATCH_HEADER_SIZE, min(len(batch) - 1, BATCH_HEADER_SIZE + 12))
        place = data.draw(near_the_start | st.integers(BATCH_HEADER_SIZE, len(batch) - 1))
        batch[place] = data.draw(st.integers(0, 255))
    write_crc(batch)
    found, expected = uniformly(batch), plainly(batch)
    assert found is None or found == expected
    if expected is not None:
        records = decode_batch(bytes(batch))
        assert records == decode_batch(memoryview(batch))
        assert [(record.offset, record.timestamp, record.key, record.value) for record in records] == list(
            zip(*expected[:4], strict=True)
        )


@given(counts, st.none() | sizes, st.binary(min_size=4, max_size=4))
def test_a_header_that_contradicts_its_records_is_left_to_the_plain_decoder(
    count: int, value_size: int | None, last_offset_delta: bytes
) -> None:
    batch = built(count, 4, value_size, 0)
    batch[23:27] = last_offset_delta
    found = uniformly(batch)
    assert found is None or found == plainly(batch)


@pytest.mark.parametrize(("key_size", "value_size"), [(None, 100), (8, 100), (8, None), (0, 0), (64, 1000)])
@pytest.mark.parametrize("count", [2, 64, 65, 148, 3000])
def test_records_of_one_size_are_decoded_together(
    count: int, key_size: int | None, value_size: int | None
) -> None:
    batch = built(count, key_size, value_size, 5)
    found = uniformly(batch)
    assert found is not None
    assert found == plainly(batch)
    assert found[0] == list(range(3000, 3000 + count))


def test_large_records_too() -> None:
    batch = built(3, 70, 20_000, 0)
    found = uniformly(batch)
    assert found is not None
    assert found == plainly(batch)


def test_others_are_left_alone() -> None:
    uneven = RecordBatchBuilder()
    for size in (10, 12, 8, 10):
        uneven.append(NOW, None, b"v" * size, [("h", b"")] if size == 8 else [])
    for batch in (built(5, None, None, 0), built(5, None, 10, 64), uneven.build()):
        assert uniformly(batch) is None
        assert plainly(batch) is not None


shapes = st.tuples(st.sampled_from([1, 2, 70]), st.sampled_from([None, 1]), st.sampled_from([None, 2, 900]))
faults = st.sampled_from(["", "", "", "gap", "crc"])


@given(st.lists(st.tuples(shapes, faults), max_size=6), st.sampled_from([1, 2000, 1 << 20]))
def test_batches_that_are_decoded_together_hold_what_each_holds(
    drawn: list[tuple[tuple[int, int | None, int | None], str]], max_bytes: int
) -> None:
    batches: list[tuple[bytes, Any]] = []
    offset = 7
    for seed, ((count, key_size, value_size), fault) in enumerate(drawn):
        batch = built(count, key_size, value_size, 0, seed)
        batch[:8] = (offset + (fault == "gap")).to_bytes(8, "big")
        batch[17] ^= fault == "crc"
        offset += count + (fault == "gap")
        batches.append((bytes(batch), read_batch_header(batch)))
    columns, taken = decode_plain_batches(batches, max_bytes, check_crc=True)
    if columns is None:
        assert not taken
        return
    assert sum(len(batch) for batch, _ in batches[: taken - 1]) < max_bytes
    alone = [decode_batch_columns(batch) for batch, _ in batches[:taken]]
    for together, each in zip(columns[1:6], zip(*(one[1:6] for one in alone), strict=True), strict=True):
        assert list(together) == [field for part in each for field in part]
