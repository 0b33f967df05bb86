"""The layout of record batch version 2: what a header says, what a builder writes, what a reader refuses."""

import struct

import crc32c
import pytest

from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import (
    BATCH_HEADER_SIZE,
    BatchHeader,
    RecordBatchBuilder,
    TimestampType,
    batch_crc_is_valid,
    decode_batch,
    iter_batches,
    pack_prefix,
    read_batch_header,
    read_magic,
)
from tidelog.protocol.records.header import write_crc, write_header
from tidelog.protocol.types import MAX_SEQUENCE

NOW = 1_700_000_000_000


def one_record_batch(**fields: int) -> bytearray:
    builder = RecordBatchBuilder()
    builder.append(NOW, b"k", b"v")
    return builder.build(**fields)  # type: ignore[arg-type]


def batch_of(records: bytes, count: int = 1, codec: int = 0) -> bytearray:
    """A batch around hand-made record bytes, right in everything else."""
    header = read_batch_header(one_record_batch())
    batch = bytearray(BATCH_HEADER_SIZE) + records
    write_header(
        batch,
        header._replace(
            batch_length=len(batch) - 12, record_count=count, last_offset_delta=9, attributes=codec
        ),
    )
    return batch


@pytest.fixture
def batch() -> bytearray:
    return one_record_batch()


def test_a_batch_is_laid_out_byte_for_byte_as_kafka_documents_it() -> None:
    builder = RecordBatchBuilder()
    builder.append(NOW, b"key", b"value", [("h", b"x"), ("n", None)])
    builder.append(NOW - 1, None, None)
    batch = builder.build(
        producer_id=0x1122334455667788,
        producer_epoch=0x0102,
        base_sequence=7,
        base_offset=5,
        leader_epoch=3,
        is_transactional=True,
    )
    records = (
        b"\x2a\x00\x00\x00\x06key\x0avalue\x04\x02h\x02x\x02n\x01"  # 21 bytes, deltas 0, two headers
        b"\x0c\x00\x01\x02\x01\x01\x00"  # 6 bytes, timestamp delta -1, offset delta 1, nulls
    )
    tail = struct.pack(">hiqqqhii", 0x10, 1, NOW, NOW, 0x1122334455667788, 0x0102, 7, 2) + records
    head = struct.pack(">qiibI", 5, len(tail) + 9, 3, 2, crc32c.crc32c(tail))
    assert bytes(batch) == head + tail


def test_the_header_answers_what_a_broker_asks() -> None:
    builder = RecordBatchBuilder()
    for index in range(20):
        builder.append(NOW + index % 3, None, b"v")
    header = read_batch_header(builder.build(Compression.ZSTD, 9, 1, MAX_SEQUENCE - 9, base_offset=100))
    assert header.last_offset == 119
    assert header.last_sequence == 9
    assert header.compression is Compression.ZSTD
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert not header.is_transactional
    assert not header.is_control
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 2)


def test_an_unknown_codec_is_a_protocol_error() -> None:
    batch = batch_of(b"\x0c\x00\x00\x00\x01\x01\x00", codec=5)
    with pytest.raises(ProtocolError, match="codec 0 to 4, got 5"):
        decode_batch(batch)


@pytest.mark.parametrize("size", [0, 1, 60])
def test_a_header_needs_61_bytes(size: int) -> None:
    with pytest.raises(ProtocolError, match="truncated batch at byte 0"):
        read_batch_header(bytes(one_record_batch()[:size]))


def test_a_header_is_read_at_a_position(batch: bytearray) -> None:
    assert read_batch_header(b"junk" + batch, 4) == read_batch_header(batch)
    assert read_magic(b"junk" + batch, 4) == 2
    with pytest.raises(ProtocolError):
        read_batch_header(batch, 1 + len(batch) - BATCH_HEADER_SIZE)
    with pytest.raises(ProtocolError):
        read_batch_header(batch, -1)
    with pytest.raises(ProtocolError):
        read_magic(batch[:16])


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_an_impossible_batch_length_is_refused(length: int, batch: bytearray) -> None:
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(ProtocolError, match=f"length {length}"):
        read_batch_header(batch)


def test_the_crc_covers_everything_from_the_attributes_on(batch: bytearray) -> None:
    header = read_batch_header(batch)
    assert batch_crc_is_valid(batch, header)
    assert batch_crc_is_valid(b"junk" + batch, header, 4)
    for position in range(21, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 1
        assert not batch_crc_is_valid(damaged, header), position
    assert not batch_crc_is_valid(batch[:-1], header)


def test_the_prefix_sets_offset_and_epoch_without_touching_the_crc(batch: bytearray) -> None:
    batch[:16] = pack_prefix(2**40, read_batch_header(batch).batch_length, 12)
    header = read_batch_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 12)
    assert batch_crc_is_valid(batch, header)
    assert decode_batch(batch)[0].offset == 2**40


def test_a_full_batch_takes_no_more_and_stays_as_it_was() -> None:
    builder = RecordBatchBuilder(max_size_bytes=200)
    taken = 0
    while builder.append(NOW, b"key", b"v" * 20):
        taken += 1
    size = builder.size_bytes
    assert size <= 200
    assert builder.append(NOW, None, b"v" * 200, [("h", b"x")]) == 0
    assert (builder.size_bytes, builder.record_count) == (size, taken)
    assert len(decode_batch(builder.build())) == taken


def test_a_record_larger_than_the_bound_finds_a_batch_of_its_own() -> None:
    builder = RecordBatchBuilder(max_size_bytes=100)
    assert builder.append(NOW, None, b"v" * 1000) == 1
    assert builder.append(NOW, None, b"v") == 0


def test_a_built_batch_is_closed() -> None:
    builder = RecordBatchBuilder()
    builder.append(NOW, None, b"v")
    batch = builder.build()
    with pytest.raises(RuntimeError, match="takes no more"):
        builder.append(NOW, None, b"v")
    with pytest.raises(RuntimeError, match="takes no more"):
        builder.append(NOW, None, None)
    with pytest.raises(RuntimeError, match="already"):
        builder.build()
    assert len(decode_batch(batch)) == 1


def test_an_empty_batch_is_not_built() -> None:
    builder = RecordBatchBuilder()
    assert (builder.record_count, builder.size_bytes) == (0, BATCH_HEADER_SIZE)
    assert (builder.base_timestamp, builder.max_timestamp) == (0, -1)
    with pytest.raises(ValueError, match="at least one record"):
        builder.build()


@pytest.mark.parametrize("timestamp_ms", [-2, -NOW, 2**63 - 1, 2**64])
def test_a_timestamp_that_is_none_is_refused(timestamp_ms: int) -> None:
    builder = RecordBatchBuilder()
    builder.append(NOW, None, b"v")
    with pytest.raises(ValueError, match=f"timestamp_ms: .* got {timestamp_ms}"):
        builder.append(timestamp_ms, None, b"v")
    assert builder.record_count == 1


def test_a_key_that_is_no_bytes_is_a_type_error_and_leaves_the_batch_whole() -> None:
    builder = RecordBatchBuilder()
    builder.append(NOW, None, b"v")
    with pytest.raises(TypeError):
        builder.append(NOW, "key", b"v")  # type: ignore[arg-type]
    assert len(decode_batch(builder.build())) == 1


GOOD = b"\x10\x00\x00\x00\x02k\x02v\x00"


@pytest.mark.parametrize(
    ("records", "count", "reason"),
    [
        pytest.param(b"", 1, "1 records cannot lie in 0 bytes", id="more records than bytes"),
        pytest.param(GOOD, -1, "-1 records", id="negative count"),
        pytest.param(GOOD, 2, "2 records cannot lie in 9 bytes", id="count above the bytes"),
        pytest.param(GOOD * 4, 5, "varint at byte 36 is cut off", id="count above the records"),
        pytest.param(GOOD * 2, 1, "9 bytes follow its 1 records", id="count below the records"),
        pytest.param(GOOD + b"\x00", 1, "1 bytes follow", id="trailing byte"),
        pytest.param(GOOD[:-1], 1, "record at byte 0: length 8, 7 bytes are left", id="cut record"),
        pytest.param(b"\x0f" + GOOD[1:], 1, "record at byte 0: length -8", id="negative length"),
        pytest.param(b"\x0e" + GOOD[1:], 1, "record at byte 0", id="length too short"),
        pytest.param(b"\x12" + GOOD[1:] + b"\x00", 1, "its fields end at byte 9", id="length too long"),
        pytest.param(b"\x10\x00\x00\x00\x03k\x02v\x00", 1, "key of -2 bytes", id="negative key"),
        pytest.param(b"\x10\x00\x00\x00\x02k\x05v\x00", 1, "value of -3 bytes", id="negative value"),
        pytest.param(b"\x10\x00\x00\x00\x7ek\x02v\x00", 1, "key of 63 bytes, 4 are left", id="key overrun"),
        pytest.param(b"\x10\x00\x00\x00\x02k\x06v\x00", 1, "value of 3 bytes", id="value overrun"),
        pytest.param(b"\x10\x00\x00\x00\x02k\x02v\x01", 1, "-1 headers", id="negative headers"),
        pytest.param(b"\x10\x00\x00\x00\x02k\x02v\x7e", 1, "63 headers", id="more headers than bytes"),
        pytest.param(b"\x14\x00\x00\x00\x02k\x02v\x02\x01\x01", 1, "without a name", id="null header name"),
        pytest.param(b"\x16\x00\x00\x00\x02k\x02v\x02\x02\xff\x01", 1, "UTF-8", id="header name not text"),
        pytest.param(b"\x10\x00\x00\x13\x02k\x02v\x00", 1, "offset delta -10", id="negative offset"),
        pytest.param(b"\x10\x00\x00\x14\x02k\x02v\x00", 1, "offset delta 10", id="offset beyond the last"),
        pytest.param(b"\xff" * 12, 1, "varint at byte 0 takes more than 5", id="endless varint"),
        pytest.param(
            b"\xff\xff\xff\xff\x7f" + GOOD, 1, "varint at byte 0 does not fit", id="varint past 32 bits"
        ),
        pytest.param(
            b"\x24\x00" + b"\x80" * 11 + b"\x00\x01\x01\x00" * 3, 1, "varint at byte 2", id="delta too long"
        ),
    ],
)
def test_malformed_records_are_refused_by_name(records: bytes, count: int, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason) as refusal:
        decode_batch(batch_of(records, count))
    assert "batch at offset 0" in str(refusal.value)


@pytest.mark.parametrize(
    ("at", "damage", "reason"), [(-1, b"w", "CRC"), (16, b"\x01", "magic 2, got 1"), (-1, b"", "truncated")]
)
def test_a_damaged_batch_is_refused(batch: bytearray, at: int, damage: bytes, reason: str) -> None:
    batch[at : at + 1 or None] = damage
    with pytest.raises(ProtocolError, match=reason):
        decode_batch(batch)


def test_the_crc_is_left_alone_when_asked(batch: bytearray) -> None:
    batch[17] ^= 1
    assert decode_batch(batch, check_crc=False)[0].value == b"v"


def test_decompressed_records_are_bounded() -> None:
    builder = RecordBatchBuilder()
    builder.append(NOW, None, bytes(1_000_000))
    batch = builder.build(Compression.ZSTD)
    assert len(batch) < 1000
    with pytest.raises(ProtocolError, match="more than the 1000 bytes allowed"):
        decode_batch(batch, max_decompressed_bytes=1000)


def test_the_iteration_over_batches_refuses_old_formats_and_broken_lengths(batch: bytearray) -> None:
    broken = bytearray(batch)
    broken[16] = 0
    with pytest.raises(ProtocolError, match="magic 2, got 0"):
        list(iter_batches(batch + broken))
    struct.pack_into(">i", broken, 8, 5)
    with pytest.raises(ProtocolError, match="length 5"):
        list(iter_batches(batch + broken))


def test_a_batch_is_read_from_any_kind_of_buffer(batch: bytearray) -> None:
    for buffer in (bytes(batch), batch, memoryview(batch), memoryview(bytes(batch)).toreadonly()):
        assert isinstance(read_batch_header(buffer), BatchHeader)
        assert decode_batch(buffer)[0].value == b"v"


def test_writing_the_crc_leaves_the_buffer_free_to_grow(batch: bytearray) -> None:
    write_crc(batch)
    batch += b"next"
    assert len(batch) > BATCH_HEADER_SIZE
