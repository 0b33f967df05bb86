"""The vectorised decoder is the twin of the plain one: same rows, same refusals."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction import cleaned
from tests.unit.pipeline.batches import Row, expected_rows, make_batch, plain_rows
from tidelog.pipeline.arrow.columnar import decode_record_batches
from tidelog.pipeline.arrow.vectors import read_varints
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import BATCH_HEADER_SIZE, decode_batch, with_log_append_time
from tidelog.protocol.records.header import write_crc
from tidelog.protocol.records.varints import encode_varint

SMALL = st.binary(max_size=20)
# Lengths around which a length prefix takes another byte.
EDGE_SIZES = st.sampled_from([0, 1, 50, 63, 64, 100, 127, 128, 8191, 8192, 20_000])
CONTENT = st.none() | SMALL | EDGE_SIZES.map(bytes)
HEADERS = st.lists(st.tuples(st.text(max_size=8), st.none() | SMALL), max_size=4).map(tuple)
TIMESTAMPS = st.just(-1) | st.integers(0, 2**43) | st.integers(1_700_000_000_000, 1_700_000_000_100)
ROWS = st.lists(st.tuples(TIMESTAMPS, CONTENT, CONTENT, st.just(()) | HEADERS), min_size=1, max_size=30)
PRODUCERS = st.just((-1, -1, -1)) | st.tuples(
    st.integers(0, 2**62), st.integers(0, 32767), st.integers(0, 2**31 - 1)
)
COMPRESSIONS = st.sampled_from(Compression)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Some batches of every kind, with gaps between them and in them, as retention and compaction leave."""
    data = bytearray()
    next_offset = draw(st.integers(0, 2**40))
    for rows in draw(st.lists(ROWS, min_size=1, max_size=5)):
        batch = make_batch(
            rows,
            base_offset=next_offset,
            compression=draw(COMPRESSIONS),
            producer=draw(PRODUCERS),
            is_control=draw(st.integers(0, 9)) == 0,
        )
        if draw(st.integers(0, 3)) == 0:
            batch = bytearray(cleaned(batch, draw(st.sets(st.integers(0, len(rows) - 1)))))
        data += with_log_append_time(batch, 1_800_000_000_000) if draw(st.booleans()) else batch
        next_offset += len(rows) + draw(st.integers(0, 3))
    return bytes(data)


@given(logs(), st.integers(1, 40))
def test_the_columns_equal_the_plain_decoder(data: bytes, target_rows: int) -> None:
    batches = list(decode_record_batches(data, topic="t", partition=3, target_rows=target_rows))
    assert plain_rows(batches) == expected_rows(data, "t", 3)
    for batch in batches:
        batch.validate(full=True)
    assert len(batches) <= max(1, round(sum(batch.num_rows for batch in batches) / target_rows))


@given(logs(), st.data())
def test_offset_bounds_cut_exactly(data: bytes, draw: st.DataObject) -> None:
    whole = expected_rows(data, "t", 0)
    offsets = [row["offset"] for row in whole] or [0]
    bound = st.sampled_from(offsets) | st.integers(0, offsets[-1] + 2)
    start, end = sorted((draw.draw(bound), draw.draw(bound)))
    batches = decode_record_batches(data, topic="t", partition=0, start_offset=start, end_offset=end)
    assert plain_rows(batches) == [row for row in whole if start <= row["offset"] < end]


@given(logs(), st.data())
def test_a_cut_tail_is_ignored(data: bytes, draw: st.DataObject) -> None:
    cut = data[: draw.draw(st.integers(0, len(data)))]
    assert plain_rows(decode_record_batches(cut, topic="t", partition=0)) == expected_rows(cut, "t", 0)


@given(ROWS, st.data())
def test_damage_under_a_right_crc_is_refused_by_both_or_by_none(rows: list[Row], draw: st.DataObject) -> None:
    batch = make_batch(rows)
    for _ in range(draw.draw(st.integers(1, 3))):
        place = draw.draw(st.integers(BATCH_HEADER_SIZE - 4, len(batch) - 1))
        batch[place] = draw.draw(st.sampled_from([0, 1, 2, 127, 128, 129, 255]) | st.integers(0, 255))
    write_crc(batch)
    data = bytes(batch)
    try:
        decode_batch(data)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            list(decode_record_batches(data, topic="t", partition=0))
        return
    decoded = plain_rows(decode_record_batches(data, topic="t", partition=0))
    expected = expected_rows(data, "t", 0)
    for row in (*decoded, *expected):
        if abs(row["timestamp"]) >= 2**62:
            row["timestamp"] = None
    assert decoded == expected


@given(ROWS, st.booleans(), st.data())
def test_a_flipped_bit_under_the_crc_is_refused(
    rows: list[Row], is_control: bool, draw: st.DataObject
) -> None:
    batch = make_batch(rows, is_control=is_control)
    place = draw.draw(
        st.integers(BATCH_HEADER_SIZE - 44, BATCH_HEADER_SIZE) | st.integers(17, len(batch) - 1)
    )
    batch[place] ^= 1 << draw.draw(st.integers(0, 7))
    with pytest.raises(ProtocolError, match="does not match its CRC"):
        list(decode_record_batches(bytes(batch), topic="t", partition=0, start_offset=1000))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_varints_of_every_length_are_read(numbers: list[int]) -> None:
    encoded = [encode_varint(number) for number in numbers]
    starts = np.cumsum([0] + [len(each) for each in encoded])
    data = np.frombuffer(b"".join(encoded), np.uint8)
    values, after = read_varints(data, starts[:-1], 10)
    assert values.tolist() == numbers
    assert after.tolist() == [end for _, end in pairwise(starts.tolist())]
