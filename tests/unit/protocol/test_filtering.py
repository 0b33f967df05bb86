"""What a cleaner leaves of a batch decodes as the same records, and as the same producer state."""

import pytest

from tidelog.protocol.compression import Compression
from tidelog.protocol.records import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Record,
    RecordBatchBuilder,
    decode_batch,
    emptied,
    read_batch_header,
    record_bytes,
    with_log_append_time,
    with_records,
)

NOW_MS = 1_700_000_000_000
COUNT = 80
KEPT = [number % 3 == 1 for number in range(COUNT)]


def batch(codec: Compression, value_sizes: int = 200) -> bytes:
    """Records of many sizes, some with headers, the timestamps up and down."""
    builder = RecordBatchBuilder()
    for number in range(COUNT):
        value = None if number % 7 == 0 else b"v" * (number * value_sizes % 20_000)
        headers = (("name", b"content"),) if number % 5 == 0 else ()
        builder.append(NOW_MS + (-1) ** number * number * 1_000, b"key-%d" % number, value, headers)
    return bytes(builder.build(codec, 7, 3, 11, base_offset=1_000, leader_epoch=5))


def filtered(data: bytes, kept: list[bool], horizon_ms: int | None = None) -> bytes:
    header = read_batch_header(data)
    records, start = record_bytes(data, 0, header, DEFAULT_MAX_DECOMPRESSED_BYTES, check_crc=True)
    timestamps = [record.timestamp for record in decode_batch(data)]
    return with_records(header, records, start, kept, timestamps, horizon_ms)


def expected(data: bytes) -> list[Record]:
    return [record for record, flag in zip(decode_batch(data), KEPT, strict=True) if flag]


@pytest.mark.parametrize("codec", Compression)
def test_records_that_are_left_out_change_no_other_record(codec: Compression) -> None:
    data = batch(codec)
    left = filtered(data, KEPT)
    assert decode_batch(left) == expected(data)
    before, after = read_batch_header(data), read_batch_header(left)
    assert after.max_timestamp == max(record.timestamp for record in expected(data))
    assert after == before._replace(
        batch_length=after.batch_length,
        crc=after.crc,
        max_timestamp=after.max_timestamp,
        record_count=len(expected(data)),
    )


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_delete_horizon_changes_no_timestamp_that_a_reader_finds(codec: Compression) -> None:
    data = batch(codec)
    horizon_ms = NOW_MS + 86_400_000
    left = filtered(data, KEPT, horizon_ms)
    assert decode_batch(left) == expected(data)
    header = read_batch_header(left)
    assert header.delete_horizon_ms == header.base_timestamp == horizon_ms
    assert header.largest_timestamp == max(record.timestamp for record in expected(data))
    # A horizon is set once: a later clean keeps it.
    again = filtered(left, [True] * header.record_count, horizon_ms + 5)
    assert read_batch_header(again).delete_horizon_ms == horizon_ms
    assert decode_batch(again) == expected(data)


def test_records_without_timestamps_have_none_behind_a_delete_horizon() -> None:
    builder = RecordBatchBuilder()
    builder.append(-1, b"key", None)
    left = filtered(bytes(builder.build()), [True], NOW_MS)
    assert [record.timestamp for record in decode_batch(left)] == [-1]
    assert read_batch_header(left).largest_timestamp == -1


def test_the_brokers_time_stays_that_of_all_records() -> None:
    data = with_log_append_time(batch(Compression.NONE), NOW_MS + 9)
    left = filtered(data, KEPT, NOW_MS + 10)
    assert decode_batch(left) == expected(data)
    assert read_batch_header(left).max_timestamp == NOW_MS + 9


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_a_batch_without_records_names_its_offsets_and_its_producer_still(codec: Compression) -> None:
    data = batch(codec)
    before, after = read_batch_header(data), read_batch_header(emptied(read_batch_header(data)))
    assert decode_batch(emptied(before)) == []
    assert after[9:12] == before[9:12]
    assert (after.base_offset, after.last_offset, after.last_sequence) == (
        before.base_offset,
        before.last_offset,
        before.last_sequence,
    )
    assert (after.largest_timestamp, after.partition_leader_epoch) == (before.max_timestamp, 5)
    assert after.size_bytes == 61
