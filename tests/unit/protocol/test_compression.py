"""The framings that Kafka's clients expect, and what decompression refuses."""

import gzip
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import snappy
import zstandard

from tidelog.protocol.compression import Compression, compress, decompress
from tidelog.protocol.errors import ProtocolError

TEXT = b"the quick brown fox jumps over the lazy dog. " * 4000
PACKING = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]


def test_other_libraries_read_what_is_written() -> None:
    assert gzip.decompress(compress(Compression.GZIP, TEXT)) == TEXT
    assert lz4.frame.decompress(compress(Compression.LZ4, TEXT)) == TEXT
    assert zstandard.ZstdDecompressor().stream_reader(compress(Compression.ZSTD, TEXT)).read() == TEXT


def test_what_other_libraries_write_is_read() -> None:
    streaming_zstd = zstandard.ZstdCompressor().compressobj()
    for codec, packed in [
        (Compression.GZIP, gzip.compress(TEXT)),
        (Compression.SNAPPY, bytes(snappy.compress(TEXT))),
        (Compression.LZ4, lz4.frame.compress(TEXT, block_linked=True, content_checksum=True)),
        (Compression.LZ4, lz4.frame.compress(TEXT, store_size=False, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
        (Compression.ZSTD, zstandard.compress(TEXT)),
        (Compression.ZSTD, streaming_zstd.compress(TEXT) + streaming_zstd.flush()),
    ]:
        assert decompress(codec, packed, len(TEXT)) == TEXT


def test_lz4_blocks_are_independent_because_java_refuses_linked_ones() -> None:
    packed = compress(Compression.LZ4, TEXT)
    flags = packed[4]
    assert flags >> 6 == 1, "frame version"
    assert flags & 0x20, "block independence"
    assert not flags & 0x1F, "no checksums, no content size, no dictionary"


def test_lz4_stores_blocks_that_do_not_shrink() -> None:
    noise = zlib.compress(TEXT) * 300
    packed = compress(Compression.LZ4, noise[:70_000])
    assert lz4.frame.decompress(packed) == noise[:70_000]
    assert len(packed) <= 70_000 + 64


def test_snappy_is_written_in_xerial_blocks_as_java_writes_it() -> None:
    packed = compress(Compression.SNAPPY, TEXT)
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    first = int.from_bytes(packed[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == TEXT[:32768]


def test_snappy_is_read_raw_and_in_concatenated_xerial_streams() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), len(TEXT)) == TEXT
    twice = compress(Compression.SNAPPY, TEXT) * 2
    assert decompress(Compression.SNAPPY, twice, 2 * len(TEXT)) == TEXT * 2


@pytest.mark.parametrize("codec", list(Compression))
def test_one_byte_over_the_limit_is_refused(codec: Compression) -> None:
    packed = compress(codec, TEXT)
    with pytest.raises(ProtocolError, match="more than the"):
        decompress(codec, packed, len(TEXT) - 1)
    with pytest.raises(ProtocolError, match="more than the"):
        decompress(codec, packed, 0)


@pytest.mark.parametrize("codec", PACKING)
def test_a_bomb_costs_no_more_than_the_limit(codec: Compression) -> None:
    bomb = compress(codec, bytes(64 * 1024 * 1024))
    limit = 33 * 1024 * 1024
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="more than the"):
            decompress(codec, bomb, limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.3 * limit


@pytest.mark.parametrize("codec", PACKING)
@pytest.mark.parametrize("keep", [0, 1, 10, 30])
def test_truncated_data_is_refused(codec: Compression, keep: int) -> None:
    packed = compress(codec, TEXT)[:keep]
    with pytest.raises(ProtocolError, match="damaged"):
        assert decompress(codec, packed, 10 * len(TEXT)) != b"", "a truncated stream gave nothing, silently"


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_bytes_behind_the_stream_are_refused(codec: Compression) -> None:
    with pytest.raises(ProtocolError, match="damaged"):
        decompress(codec, compress(codec, TEXT) + b"junk", 10 * len(TEXT))


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(b"\xff\xff\xff\xff\x0f", id="four gigabytes from five bytes"),
        pytest.param(b"\x80\x80\x40" + b"\x00" * 20, id="a mebibyte from twenty-three bytes"),
        pytest.param(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\xff\xff\xff\xff", id="negative block"),
        pytest.param(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x09abc", id="cut block"),
        pytest.param(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00", id="cut block length"),
        pytest.param(b"\x82SNAPPY\x00\x00\x00", id="cut header"),
    ],
)
def test_snappy_sizes_are_accepted_only_as_far_as_the_bytes_confirm_them(packed: bytes) -> None:
    with pytest.raises(ProtocolError):
        decompress(Compression.SNAPPY, packed, 2**31)


def test_levels_are_the_codec_s_own() -> None:
    for codec, levels in ((Compression.GZIP, (1, 9)), (Compression.ZSTD, (1, 19))):
        small, smaller = (compress(codec, TEXT, level) for level in levels)
        assert decompress(codec, small, len(TEXT)) == decompress(codec, smaller, len(TEXT)) == TEXT
