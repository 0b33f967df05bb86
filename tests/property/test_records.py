"""Whatever goes into a batch comes out of it, and whatever is done to its bytes ends in a ProtocolError."""

import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.compression import Compression, compress, decompress
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import (
    BATCH_HEADER_SIZE,
    BatchHeader,
    Record,
    RecordBatchBuilder,
    TimestampType,
    decode_batch,
    iter_batches,
    read_batch_header,
    set_producer,
    with_log_append_time,
)
from tidelog.protocol.records.columns import Columns, Lists, decode_columns, decode_record
from tidelog.protocol.records.header import write_crc

codecs = st.sampled_from(list(Compression))
contents = st.none() | st.binary(max_size=70) | st.sampled_from([b"v" * 8191, b"v" * 8192, b"v" * 20000])
timestamps = st.integers(1_700_000_000_000, 1_700_000_010_000) | st.integers(-1, 2**63 - 2)
headers = st.lists(st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=70)), max_size=3)
entries = st.lists(st.tuples(timestamps, contents, contents, st.just([]) | headers), min_size=1, max_size=8)


def built(entries: Any, compression: Compression = Compression.NONE, **fields: Any) -> bytearray:
    builder = RecordBatchBuilder()
    for number, entry in enumerate(entries, start=1):
        before = builder.size_bytes
        bound = RecordBatchBuilder.record_size_bound(*entry[1:])
        assert builder.append(*entry) == number
        assert before < builder.size_bytes <= before + bound
    return builder.build(compression, **fields)


def expected(entries: Any, base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + index, timestamp, TimestampType.CREATE_TIME, key, value, tuple(record_headers))
        for index, (timestamp, key, value, record_headers) in enumerate(entries)
    ]


@given(entries, codecs, st.integers(0, 2**40))
def test_records_come_out_as_they_went_in(entries: Any, codec: Compression, base_offset: int) -> None:
    batch = built(entries, codec, base_offset=base_offset)
    header = read_batch_header(batch)
    assert header.size_bytes == len(batch)
    assert header.record_count == len(entries)
    assert header.last_offset == base_offset + len(entries) - 1
    assert header.base_timestamp == entries[0][0]
    assert header.max_timestamp == max(entry[0] for entry in entries)
    assert header.compression is codec
    records = decode_batch(batch)
    assert records == expected(entries, base_offset)
    assert all(type(record.value) in (bytes, type(None)) for record in records)


@given(entries, codecs, st.integers(0, 2**63 - 1), st.integers(0, 32767), st.integers(0, 2**31 - 1))
def test_a_new_producer_changes_the_header_alone(
    entries: Any, codec: Compression, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    batch = built(entries, codec, producer_id=1, producer_epoch=2, base_sequence=3)
    untouched = bytes(batch[BATCH_HEADER_SIZE:])
    set_producer(batch, producer_id, producer_epoch, base_sequence)
    header = read_batch_header(batch)
    assert header[9:12] == (producer_id, producer_epoch, base_sequence)
    assert batch[BATCH_HEADER_SIZE:] == untouched
    assert decode_batch(batch) == expected(entries, 0)


@given(entries, codecs, st.integers(0, 2**62))
def test_log_append_time_is_the_time_of_every_record(entries: Any, codec: Compression, now_ms: int) -> None:
    batch = built(entries, codec)
    stamped = with_log_append_time(batch, now_ms)
    assert (batch, read_batch_header(stamped).max_timestamp) == (built(entries, codec), now_ms)
    records = decode_batch(stamped)
    assert {(record.timestamp, record.timestamp_type) for record in records} == {
        (now_ms, TimestampType.LOG_APPEND_TIME)
    }
    assert [record[3:] for record in records] == [record[3:] for record in expected(entries)]


@given(st.lists(entries, max_size=3), st.integers(0, 200))
def test_batches_are_walked_until_the_truncated_tail(batches: Any, cut: int) -> None:
    encoded = [bytes(built(entries)) for entries in batches]
    whole = b"".join(encoded)
    data = whole[: max(len(whole) - cut, 0)]
    starts = [sum(map(len, encoded[:index])) for index in range(len(encoded))]
    expected_starts = [
        start for start, batch in zip(starts, encoded, strict=True) if start + len(batch) <= len(data)
    ]
    assert [position for position, _ in iter_batches(data)] == expected_starts


@given(entries, st.data())
def test_damaged_records_are_refused_or_decode_within_their_batch(entries: Any, data: st.DataObject) -> None:
    batch = built(entries)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(BATCH_HEADER_SIZE, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    write_crc(batch)
    with contextlib.suppress(ProtocolError):
        records = decode_batch(batch)
        assert len(records) == len(entries)
        assert all(0 <= record.offset < len(entries) for record in records)


def one_by_one(data: bytes, header: BatchHeader) -> tuple[Columns, int]:
    """The records by the plain twin alone."""
    lists, position = Lists(header), 0
    for _ in range(header.record_count):
        position = decode_record(data, position, header, lists)
    rows = lists.offsets, lists.timestamps, lists.keys, lists.values, lists.headers
    return Columns(header.timestamp_type, *rows), position


def assert_twins_agree(data: bytes, header: BatchHeader) -> None:
    outcomes: list[object] = []
    for decode in (decode_columns, lambda raw, _, header: one_by_one(raw, header)):
        try:
            outcomes.append(decode(data, header.record_count, header))
        except ProtocolError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


# Stretches of records that are encoded alike, long enough to be decoded as runs, and broken off anywhere.
stretches = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 5, 60, 70, 130]),
        st.sampled_from([0, 1, 30, 63, 64, 100, 10_000, 10**9]),
        st.sampled_from([None, b"", b"k", b"k" * 20, b"k" * 70]),
        st.sampled_from([None, b"", b"v" * 3, b"v" * 63, b"v" * 64, b"v" * 100, b"v" * 8192]),
        st.just([]) | headers,
    ),
    min_size=1,
    max_size=4,
)


@given(stretches, st.data())
def test_runs_of_records_that_are_encoded_alike_are_decoded_as_their_plain_twin_does(
    stretches: Any, data: st.DataObject
) -> None:
    entries = [
        (1_700_000_000_000 + (index * step if index % 3 else 0), key, value, some)
        for length, step, key, value, some in stretches
        for index in range(length)
    ]
    batch = built(entries)
    header = read_batch_header(batch)
    assert decode_batch(batch) == expected(entries)
    records = bytearray(batch[BATCH_HEADER_SIZE:])
    for _ in range(data.draw(st.integers(0, 2))):
        records[data.draw(st.integers(0, len(records) - 1))] = data.draw(st.integers(0, 255))
    assert_twins_agree(bytes(records), header)


@given(entries, st.data())
def test_the_fast_loop_and_its_plain_twin_agree_on_any_bytes(entries: Any, data: st.DataObject) -> None:
    batch = built(entries)
    header = read_batch_header(batch)
    records = bytearray(batch[BATCH_HEADER_SIZE:])
    for _ in range(data.draw(st.integers(0, 3))):
        position = data.draw(st.integers(0, len(records) - 1) | st.integers(0, min(12, len(records) - 1)))
        records[position : position + data.draw(st.integers(0, 1))] = data.draw(
            st.binary(min_size=1, max_size=2)
        )
    assert_twins_agree(bytes(records), header)


@given(entries, st.binary(max_size=80), codecs)
def test_any_record_bytes_at_all_give_records_or_a_protocol_error(
    entries: Any, junk: bytes, codec: Compression
) -> None:
    header = read_batch_header(built(entries, codec))
    batch = bytearray(built(entries, codec)[:BATCH_HEADER_SIZE] + junk)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    write_crc(batch)
    with contextlib.suppress(ProtocolError):
        assert len(decode_batch(batch)) == header.record_count


@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_a_header_or_a_protocol_error(junk: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode_batch(junk)
    with contextlib.suppress(ProtocolError):
        list(iter_batches(junk))


@given(codecs, st.binary(max_size=3000) | st.binary(min_size=1, max_size=4).map(lambda part: part * 50_000))
def test_every_codec_gives_back_what_it_took(codec: Compression, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(packed), len(data) + 1000) == data


@given(codecs, st.binary(max_size=300), st.binary(max_size=300))
def test_damaged_compressed_data_is_refused_or_stays_within_the_limit(
    codec: Compression, data: bytes, junk: bytes
) -> None:
    packed = bytearray(compress(codec, data))
    packed[len(packed) // 2 :] = junk
    for damaged in (bytes(packed), junk):
        with contextlib.suppress(ProtocolError):
            assert len(decompress(codec, damaged, 1000)) <= 1000
