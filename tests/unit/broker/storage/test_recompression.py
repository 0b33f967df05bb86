"""What compression.type makes of a client's batch: the same records and numbers, in the topic's codec."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.unit.broker.storage.support import NOW_MS, append, batch, encoded, open_log, outcome, state
from tidelog.broker.storage.batch_inspection import Effort, TooMuchError
from tidelog.broker.storage.log_config import LogConfig
from tidelog.broker.storage.partition_log import PartitionLog, Read
from tidelog.broker.storage.recompression import Recompressed, inspect_to_store
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import (
    TimestampType,
    batch_crc_is_valid,
    decode_batch,
    iter_batches,
    read_batch_header,
    with_max_timestamp,
)

CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_RANDOM = Random(1)
_WORDS = [_RANDOM.randbytes(_RANDOM.randint(2, 5)).hex().encode() for _ in range(1000)]
TEXT = b" ".join(_RANDOM.choices(_WORDS, k=3000))


def config(name: str, **more: Any) -> LogConfig:
    return LogConfig(compression_type=name, **more)


def kept_batches(log: PartitionLog) -> list[bytes]:
    data = b"".join(log.read(Read(0, 1 << 20, log.end_offset)).records)
    return [data[start : start + header.size_bytes] for start, header in iter_batches(data)]


def sent(codec: Compression, **numbers: int) -> bytes:
    return batch(7, 2, count=5, value=TEXT, compression=codec, **numbers)


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("name", CODECS)
def test_the_stored_batch_has_the_topics_codec_and_all_else_that_was_sent(
    tmp_path: Path, name: str, codec: Compression
) -> None:
    log = open_log(tmp_path, config=config(name))
    batches = [sent(codec, sequence=sequence) for sequence in (0, 5)]
    assert [append(log, each).base_offset for each in batches] == [0, 5]
    for number, (given, kept) in enumerate(zip(batches, kept_batches(log), strict=True)):
        before, after = read_batch_header(given), read_batch_header(kept)
        assert after.compression is CODECS[name]
        assert batch_crc_is_valid(kept, after)
        expected = before._replace(
            base_offset=5 * number,
            partition_leader_epoch=0,
            batch_length=after.batch_length,
            crc=after.crc,
            attributes=CODECS[name],
        )
        assert after == expected
        assert [(each.timestamp, each.key, each.value, each.headers) for each in decode_batch(kept)] == [
            (each.timestamp, each.key, each.value, each.headers) for each in decode_batch(given)
        ]


@pytest.mark.parametrize(("name", "codec"), CODECS.items())
def test_a_batch_that_has_the_codec_is_stored_byte_for_byte(
    tmp_path: Path, name: str, codec: Compression
) -> None:
    given = sent(codec)
    log = open_log(tmp_path, config=config(name, compression_gzip_level=1, compression_zstd_level=19))
    append(log, given)
    (kept,) = kept_batches(log)
    assert kept[16:] == given[16:]


def test_a_retry_of_a_batch_that_was_compressed_again_is_its_duplicate(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=config("zstd"))
    first = append(log, sent(Compression.GZIP))
    again = append(log, sent(Compression.GZIP))
    assert (again.base_offset, again.duplicate) == (first.base_offset, True)
    assert not append(log, sent(Compression.GZIP, sequence=5)).duplicate
    assert len(kept_batches(log)) == 2


def test_a_batch_that_becomes_too_large_is_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    given = sent(Compression.ZSTD)
    for limits, code in (
        ({"max_message_bytes": len(TEXT)}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"segment_bytes": len(TEXT)}, ErrorCode.RECORD_LIST_TOO_LARGE),
    ):
        log = open_log(tmp_path / code.name, config=config("uncompressed", **limits))
        before = state(log)
        assert outcome(append, log, given) is code
        assert (state(log), log.end_offset) == (before, 0)


def test_a_batch_that_is_too_large_as_sent_is_refused_even_if_it_would_become_smaller(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=config("zstd", max_message_bytes=len(TEXT)))
    assert outcome(append, log, sent(Compression.NONE)) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", Compression)
def test_a_batch_is_judged_as_it_was_sent(tmp_path: Path, codec: Compression) -> None:
    log = open_log(tmp_path, config=config("lz4"))
    damaged = bytearray(sent(codec))
    damaged[-1] ^= 1
    assert outcome(append, log, bytes(damaged)) is ErrorCode.CORRUPT_MESSAGE
    assert outcome(append, log, encoded(b"no records", 1, codec)) is ErrorCode.INVALID_RECORD
    if codec is not Compression.NONE:
        nothing = encoded(b"no such data", 1, codec, is_compressed=True)
        assert outcome(append, log, nothing) is ErrorCode.INVALID_RECORD
    assert log.end_offset == 0


def test_the_timestamps_of_a_batch_that_is_compressed_again_are_the_topics(tmp_path: Path) -> None:
    wrong = with_max_timestamp(sent(Compression.NONE), NOW_MS + 99)
    log = open_log(tmp_path / "own", config=config("snappy"))
    append(log, wrong)
    (kept,) = kept_batches(log)
    assert read_batch_header(kept).max_timestamp == NOW_MS + 4
    log = open_log(tmp_path / "append", config=config("snappy", message_timestamp_type="LogAppendTime"))
    append(log, wrong, now_ms=NOW_MS + 1000)
    (kept,) = kept_batches(log)
    header = read_batch_header(kept)
    assert (header.max_timestamp, header.timestamp_type) == (NOW_MS + 1000, TimestampType.LOG_APPEND_TIME)
    assert batch_crc_is_valid(kept, header)


@pytest.mark.parametrize(
    ("name", "setting", "low", "high"),
    [("gzip", "gzip", 1, 9), ("lz4", "lz4", 9, 12), ("zstd", "zstd", -100, 19)],
)
def test_the_level_is_the_topics(name: str, setting: str, low: int, high: int) -> None:
    given = sent(Compression.NONE)
    sizes = []
    for level in (low, high):
        levels = {f"compression_{setting}_level": level}
        result = inspect_to_store(given, read_batch_header(given), config(name, **levels))
        assert isinstance(result, Recompressed)
        assert decode_batch(result.batch)[0].value == TEXT
        sizes.append(len(result.batch))
    assert sizes[0] > sizes[1]


@pytest.mark.parametrize(
    ("name", "levels"),
    [
        ("zstd", {}),
        ("gzip", {}),
        ("gzip", {"compression_gzip_level": 9}),
        ("zstd", {"compression_zstd_level": 22}),
    ],
)
def test_what_takes_long_to_compress_is_left_to_a_thread(name: str, levels: dict[str, int]) -> None:
    """The more a codec costs, the less of it a step of the loop does."""
    long, short = batch(value=bytes(300_000)), batch(value=b"v" * 100)
    with pytest.raises(TooMuchError):
        inspect_to_store(long, read_batch_header(long), config(name, **levels), Effort())
    assert isinstance(inspect_to_store(long, read_batch_header(long), config(name, **levels)), Recompressed)
    assert isinstance(
        inspect_to_store(short, read_batch_header(short), config(name, **levels), Effort()), Recompressed
    )


def test_what_is_stored_as_sent_is_only_inspected() -> None:
    given = batch()
    for name in ("producer", "uncompressed"):
        assert inspect_to_store(given, read_batch_header(given), config(name))[:2] == (NOW_MS, NOW_MS)
