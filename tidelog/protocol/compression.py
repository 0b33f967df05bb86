"""Compression codecs of record batches behind two functions, with a limit on the decompressed size.

Owns: the codec numbers (the low three bits of a batch's attributes) and the framings that Kafka's clients
expect: one gzip member; xerial blocks for snappy; lz4 frames with independent blocks, because Java refuses
linked ones; zstd frames. Invariants: no size field of the input is trusted. Output memory grows with the
bytes that the input really yields, to at most four times as much, and hardly past the caller's limit. So a
decompression bomb costs little more than `max_bytes`. Pure: no I/O, no state.
"""

import struct
import zlib
from enum import IntEnum

import cramjam

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.types import Buffer

__all__ = ["LZ4_FAST_LEVEL", "Compression", "TooLargeError", "compress", "decompress"]


class Compression(IntEnum):
    """Codec numbers as in the attributes of a record batch (Kafka's CompressionType)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TooLargeError(ProtocolError):
    """The data yields more bytes than the caller allows."""


LZ4_FAST_LEVEL = 9
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
# As snappy-java writes it: version 1, for readers of version 1 and later.
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
# A snappy copy element of three bytes yields at most 64 bytes, so valid data never expands more than this.
_SNAPPY_MAX_EXPANSION = 24

# Frame version 1, independent blocks, no checksums (the batch has its own CRC), blocks of at most 64 KiB; the
# third byte is the second byte of xxHash32 over the first two, which never change.
_LZ4_FRAME_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 0x80000000
_LZ4_END_MARK = b"\x00\x00\x00\x00"

_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_GZIP_PIECE_BYTES = 4 << 20
_FIRST_GUESS_BYTES = 4096
_GROWTH = 4
# The decompressors' error if the output buffer is full. Every other error concerns the input.
_OUTPUT_FULL = "failed to write whole buffer"

_INT32 = struct.Struct(">i")
_UINT32_LE = struct.Struct("<I")


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed by `codec`. `level` is gzip's (1..9), zstd's (to 22) or lz4's (1..17); None is the
    default.

    Snappy has no levels. As in Kafka, LZ4_FAST_LEVEL is not between 8 and 10, but lz4's fast way.
    """
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.GZIP:
        return bytes(cramjam.gzip.compress(data, level=6 if level is None else level))
    if codec is Compression.SNAPPY:
        return _snappy_compress(data)
    if codec is Compression.LZ4:
        return _lz4_compress(data, None if level == LZ4_FAST_LEVEL else level)
    return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))


def decompress(codec: Compression, data: Buffer, max_bytes: int) -> bytes:
    """The decompressed bytes of `data`, at most `max_bytes`.

    Raises ProtocolError if the input is damaged, and TooLargeError if it yields more than `max_bytes`.
    """
    if codec is Compression.NONE:
        if len(data) > max_bytes:
            raise _too_large(codec, max_bytes)
        return bytes(data)
    if codec is Compression.GZIP:
        return _gzip_decompress(data, max_bytes)
    if codec is Compression.SNAPPY:
        return _snappy_decompress(data, max_bytes)
    return _growing_decompress(codec, data, max_bytes)


def _too_large(codec: Compression, max_bytes: int) -> TooLargeError:
    return TooLargeError(f"{codec.name.lower()} data yields more than the {max_bytes} bytes allowed")


def _damaged(codec: Compression, reason: object) -> ProtocolError:
    return ProtocolError(f"damaged {codec.name.lower()} data: {reason}")


def _gzip_decompress(data: Buffer, max_bytes: int) -> bytes:
    """Decompress one gzip member. Producers never write more than one."""
    member = zlib.decompressobj(_GZIP_WINDOW)
    try:
        # One byte past the limit shows that the output is too large; 0 would mean "no limit".
        output: bytes | bytearray = member.decompress(data, min(max_bytes + 1, _GZIP_PIECE_BYTES))
        if len(output) == _GZIP_PIECE_BYTES and not member.eof:
            # In pieces: zlib would hold a large output twice, in blocks and joined.
            output = bytearray(output)
            while len(output) <= max_bytes and (
                piece := member.decompress(
                    member.unconsumed_tail, min(max_bytes + 1 - len(output), _GZIP_PIECE_BYTES)
                )
            ):
                output += piece
    except zlib.error as error:
        raise _damaged(Compression.GZIP, error) from None
    if len(output) > max_bytes:
        raise _too_large(Compression.GZIP, max_bytes)
    if not member.eof:
        raise _damaged(Compression.GZIP, "the stream ends early")
    if member.unused_data:
        raise _damaged(Compression.GZIP, f"{len(member.unused_data)} bytes follow the stream")
    return bytes(output)


def _growing_decompress(codec: Compression, data: Buffer, max_bytes: int) -> bytes:
    """Decompress lz4 and zstd frames. The output buffer grows only if the input filled the last one."""
    into = cramjam.lz4.decompress_into if codec is Compression.LZ4 else cramjam.zstd.decompress_into
    size = min(max(_GROWTH * len(data), _FIRST_GUESS_BYTES), max_bytes)
    while True:
        output = bytearray(size)
        try:
            written = into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise _damaged(codec, error) from None
            if size >= max_bytes:
                raise _too_large(codec, max_bytes) from None
            size = min(size * _GROWTH, max_bytes)
            del output  # Before the next one, not after it.
            continue
        return bytes(memoryview(output)[:written])


def _snappy_compress(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _snappy_decompress(data: Buffer, max_bytes: int) -> bytes:
    """Decompress xerial blocks (written by Java) or one raw block (librdkafka may write it)."""
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(view, max_bytes, max_bytes)
    if len(view) < len(_XERIAL_HEADER):
        raise _damaged(Compression.SNAPPY, "the xerial header ends early")
    chunks: list[bytes] = []
    remaining_bytes = max_bytes
    position = len(_XERIAL_HEADER)
    while position < len(view):
        # snappy-java lets streams be concatenated, each with its own header.
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            continue
        if len(view) - position < 4:
            raise _damaged(Compression.SNAPPY, "a block length ends early")
        (length,) = _INT32.unpack_from(view, position)
        position += 4
        if not 0 <= length <= len(view) - position:
            raise _damaged(Compression.SNAPPY, f"block of {length} bytes, {len(view) - position} are left")
        chunk = _snappy_block(view[position : position + length], remaining_bytes, max_bytes)
        chunks.append(chunk)
        remaining_bytes -= len(chunk)
        position += length
    return b"".join(chunks)


def _snappy_block(block: memoryview, remaining_bytes: int, max_bytes: int) -> bytes:
    """Decompress one raw snappy block. Its length field is refused if the input is too short for it."""
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > _SNAPPY_MAX_EXPANSION * len(block):
            raise _damaged(Compression.SNAPPY, f"{len(block)} bytes cannot yield the announced {size} bytes")
        if size > remaining_bytes:
            raise _too_large(Compression.SNAPPY, max_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _damaged(Compression.SNAPPY, error) from None


def _lz4_compress(data: Buffer, level: int | None) -> bytes:
    view = memoryview(data)
    parts = [_LZ4_FRAME_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        raw = view[start : start + _LZ4_BLOCK_BYTES]
        parts.append(_lz4_block(raw) if level is None else _lz4_block_of_level(raw, level))
    parts.append(_LZ4_END_MARK)
    return b"".join(parts)


def _lz4_block(raw: memoryview) -> bytes:
    block = cramjam.lz4.compress_block(raw, store_size=False)
    if len(block) < len(raw):
        return _UINT32_LE.pack(len(block)) + bytes(block)
    return _UINT32_LE.pack(len(raw) | _LZ4_STORED) + bytes(raw)


def _lz4_block_of_level(raw: memoryview, level: int) -> bytes:
    """The only block of a frame, because cramjam ignores the level of a single block."""
    frame = memoryview(cramjam.lz4.compress(raw, level=level))[len(_LZ4_FRAME_HEADER) :]
    (size,) = _UINT32_LE.unpack_from(frame)
    return bytes(frame[: _UINT32_LE.size + (size & ~_LZ4_STORED)])
