"""Records that contradict their header, one rule a case: refused, whatever the codec, and nothing stored."""

import tracemalloc
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.broker.storage.support import NOW_MS, append, batch, encoded, flush, open_log, state, stored
from tidelog.broker.storage import batch_inspection
from tidelog.broker.storage.batch_inspection import Effort, ThreadEffort, TooMuchError, inspect_batch
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.protocol.compression import Compression, TooLargeError, compress
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import (
    RecordBatchBuilder,
    batch_crc_is_valid,
    decode_batch,
    read_batch_header,
    with_max_timestamp,
)
from tidelog.protocol.records.varints import encode_varint
from tidelog.protocol.types import Buffer

MIB = 1 << 20


def record(
    offset: bytes = encode_varint(1),
    *,
    length: int | None = None,
    attributes: bytes = b"\0",
    timestamp: bytes = b"\0",
    key: bytes = b"\1",
    value: bytes = encode_varint(3) + b"abc",
    headers: bytes = b"\0",
    more: bytes = b"",
) -> bytes:
    """The second of two records, field by field as encoded."""
    body = attributes + timestamp + offset + key + value + headers + more
    return encode_varint(len(body) if length is None else length) + body


def two_records(second: bytes) -> bytes:
    return record(encode_varint(0)) + second


def header(name: bytes, value: bytes = b"\1", *, count: int = 1) -> bytes:
    return encode_varint(count) + name + value


VALID = [
    record(),
    record(key=encode_varint(2) + b"kk", value=b"\1"),
    record(timestamp=encode_varint(-NOW_MS)),
    record(headers=header(encode_varint(2) + "é".encode(), encode_varint(1) + b"v")),
    record(headers=header(encode_varint(0))),
    record(value=b"\x86\x00abc"),
    record(attributes=b"\x7f"),
]
BROKEN: dict[str, bytes] = {
    "a record is missing": b"",
    "a byte follows": record() + b"\0",
    "a record follows": record() + record(encode_varint(2)),
    "a record breaks off": record()[:-1],
    "its length is negative": record(length=-1),
    "its length is too small for a record": encode_varint(5) + bytes(5),
    "its length goes beyond the batch": record(length=1000),
    "its length is longer than its fields": record(more=b"\0"),
    "its length is shorter than its fields": record(length=8),
    "its length takes six bytes": b"\xff\xff\xff\xff\xff\x01" + record()[1:],
    "its length does not fit into int32": b"\xff\xff\xff\xff\x7f" + record()[1:],
    "its attributes are a varint of two bytes to some": record(attributes=b"\x80"),
    "offset delta 0 comes twice": record(encode_varint(0)),
    "an offset delta is left out": record(encode_varint(2)),
    "an offset delta is negative": record(encode_varint(-1)),
    "a key of length -2": record(key=encode_varint(-2)),
    "a key longer than the record": record(key=encode_varint(100)),
    "a key longer than int32": record(key=encode_varint(2**40)),
    "a value of length -2": record(value=encode_varint(-2)),
    "a value longer than the record": record(value=encode_varint(100) + b"abc"),
    "a negative number of headers": record(headers=encode_varint(-1)),
    "more headers than bytes": record(headers=encode_varint(100)),
    "a header without a name": record(headers=header(b"\1")),
    "a header name longer than the record": record(headers=header(encode_varint(9) + b"n")),
    "a header name that is not UTF-8": record(headers=header(encode_varint(1) + b"\xff")),
    "a header value of length -2": record(headers=header(encode_varint(1) + b"n", encode_varint(-2))),
    "a header value longer than the record": record(headers=header(encode_varint(1) + b"n", b"\x7e")),
    "a timestamp beyond int64": record(timestamp=encode_varint(2**63 - 1)),
}


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_log(tmp_path / "topic-0")


def refused(log: PartitionLog, data: Buffer) -> ApiError:
    before = log.end_offset, log.size_bytes, state(log)
    with pytest.raises(ApiError) as caught:
        append(log, data)
    assert (log.end_offset, log.size_bytes, state(log)) == before
    return caught.value


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("records", VALID)
def test_unusual_records_are_stored_as_they_came(
    log: PartitionLog, codec: Compression, records: bytes
) -> None:
    sent = encoded(two_records(records), 2, codec, producer_id=1)
    assert append(log, sent).last_offset == 1
    (data,) = log.read(Read(0, MIB, 2)).records
    assert decode_batch(data) == decode_batch(sent)


@pytest.mark.parametrize("rule", BROKEN)
def test_records_that_contradict_their_header_are_refused(log: PartitionLog, rule: str) -> None:
    append(log, batch(1, 0, 0))
    for codec in Compression:
        error = refused(log, encoded(two_records(BROKEN[rule]), 2, codec, producer_id=1, base_sequence=1))
        assert error.code is ErrorCode.INVALID_RECORD, codec
        assert error.message.startswith("the records of the batch are not what its header says: ")
    assert append(log, batch(1, 0, 1)).base_offset == 1


def test_the_crc_is_judged_before_the_records(log: PartitionLog) -> None:
    wrong = bytearray(encoded(b"junk", 1, Compression.NONE))
    wrong[-1] ^= 1
    assert refused(log, wrong).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_a_bomb_is_refused_and_takes_bounded_memory(
    log: PartitionLog, codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is too large for consumers too, whose limit stands for the one set here."""
    bomb = encoded(compress(codec, bytes(32 * MIB)), 1, codec, is_compressed=True)
    monkeypatch.setattr(batch_inspection, "DEFAULT_MAX_DECOMPRESSED_BYTES", 2 * MIB)
    # snappy's raw form, in one block.
    log.reconfigure(LogConfig(max_message_bytes=len(bomb)))
    tracemalloc.start()
    error = refused(log, bomb)
    _, peak = tracemalloc.get_traced_memory()
    with pytest.raises(TooMuchError):
        inspect_batch(bomb, read_batch_header(bomb), Effort())
    tracemalloc.stop()
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "more than the 2097152 bytes allowed; send smaller batches" in error.message
    assert peak < 8 * MIB + 2 * len(bomb)


def varied(count: int, *, has_headers: bool = False, codec: Compression = Compression.NONE) -> bytes:
    builder = RecordBatchBuilder()
    for number in range(count):
        builder.append(NOW_MS, None, bytes(number % 5), (("n", b""),) if has_headers else ())
    return bytes(builder.build(codec, -1, -1, -1))


@pytest.mark.parametrize("values", [[b"x" * 50], [b"", b"x" * 50, b""], [b"x" * 50] * 30])
@pytest.mark.parametrize("to", ["producer", "gzip", "uncompressed"])
def test_a_record_of_a_compressed_batch_may_have_so_many_bytes(
    tmp_path: Path, values: list[bytes], to: str
) -> None:
    def built(codec: Compression) -> Buffer:
        builder = RecordBatchBuilder()
        for value in values:
            builder.append(NOW_MS, None, value, ())
        return builder.build(codec, -1, -1, -1)

    config = LogConfig(compression_type=to, max_decompressed_message_bytes=55)
    log = open_log(tmp_path, config=replace(config, max_decompressed_message_bytes=56))
    append(log, built(Compression.ZSTD))
    log.reconfigure(config)
    with pytest.raises(ApiError, match="at most 55 bytes, got one of 56") as caught:
        append(log, built(Compression.ZSTD))
    assert caught.value.code == ErrorCode.INVALID_RECORD
    append(log, built(Compression.NONE))


def test_records_of_one_size_take_no_effort() -> None:
    sent = batch(count=50_000, step_ms=0, value=b"")
    effort = Effort()
    assert inspect_batch(sent, read_batch_header(sent), effort)[:2] == (NOW_MS, NOW_MS)
    assert effort.records == Effort().records


@pytest.mark.parametrize(("has_headers", "most"), [(False, 16_384), (True, 5_461)])
def test_the_effort_bounds_what_is_gone_through(has_headers: bool, most: int) -> None:
    allowed, too_many = varied(most, has_headers=has_headers), varied(most + 3, has_headers=has_headers)
    assert inspect_batch(allowed, read_batch_header(allowed), Effort()).latest == NOW_MS
    with pytest.raises(TooMuchError):
        inspect_batch(too_many, read_batch_header(too_many), Effort())
    assert inspect_batch(too_many, read_batch_header(too_many)).latest == NOW_MS


def test_the_effort_is_for_all_batches_of_a_request() -> None:
    sent = varied(1000, codec=Compression.LZ4)
    effort = Effort()
    inspect_batch(sent, read_batch_header(sent), effort)
    first = effort.records, effort.output_bytes
    inspect_batch(sent, read_batch_header(sent), effort)
    full = Effort()
    assert (full.records - first[0], full.output_bytes - first[1]) == (500, 1000 * 10 - 64)
    assert (first[0] - effort.records, first[1] - effort.output_bytes) == (500, 1000 * 10 - 64)


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("said", [-1, 0, NOW_MS + 1, NOW_MS + 10_000_000])
def test_a_wrong_max_timestamp_is_corrected(log: PartitionLog, codec: Compression, said: int) -> None:
    """As Kafka does: retention and look-ups by time go by it. The limits go by the records too."""
    append(log, with_max_timestamp(batch(count=3, compression=codec), said))
    flush(log)
    (header,) = stored(log)
    assert header.max_timestamp == NOW_MS + 2
    (data,) = log.read(Read(0, MIB, 3)).records
    assert batch_crc_is_valid(data, header)
    assert log.max_timestamp_offset() == (2, NOW_MS + 2, 0)


@pytest.mark.parametrize("codec", list(Compression))
def test_each_record_must_be_within_the_limits(tmp_path: Path, codec: Compression) -> None:
    log = open_log(tmp_path, config=LogConfig(message_timestamp_before_max_ms=1000))
    old = batch(count=2, timestamp=NOW_MS, step_ms=-1001, compression=codec)
    with pytest.raises(ApiError, match=f"timestamp {NOW_MS - 1001} is 1001 ms behind") as caught:
        append(log, old)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    append(log, batch(count=2, timestamp=NOW_MS, step_ms=-1000, compression=codec))
    append(log, batch(count=2, timestamp=NOW_MS, step_ms=-NOW_MS - 1, compression=codec))


def test_gzip_of_two_members_is_refused_as_consumers_refuse_it(log: PartitionLog) -> None:
    packed = compress(Compression.GZIP, record(encode_varint(0)))
    other = zlib.compressobj(wbits=31)
    both = packed + other.compress(record()) + other.flush()
    data = encoded(both, 2, Compression.GZIP, is_compressed=True)
    assert refused(log, data).code is ErrorCode.INVALID_RECORD


def test_the_batches_of_a_request_share_what_a_thread_may_hold_and_what_one_yields_counts_twice() -> None:
    effort = ThreadEffort(1000)

    def decompress(size: int) -> None:
        effort.decompress(Compression.GZIP, memoryview(compress(Compression.GZIP, bytes(size))))

    decompress(600)
    assert effort.held_bytes() == 2 * 600
    effort.inspected(100)
    assert effort.held_bytes() == 100
    with pytest.raises(TooLargeError):
        decompress(901)
    decompress(900)
    effort.inspected(0)
    assert effort.held_bytes() == 100
