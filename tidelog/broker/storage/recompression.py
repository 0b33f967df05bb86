"""A client's batch as its topic stores it: with its records as one block of the codec in `compression.type`.

Owns the decision whether a batch is compressed again, and the new batch. A caller that must not take long
gives an `Effort`. If that is not enough, make the same call in a thread without one.

Invariants: the records stay byte for byte, and so do all fields of the header but length, codec and CRC; a
batch is inspected before it is compressed. Pure; safe in any thread.

Source: Kafka's LogValidator.validateMessagesAndAssignOffsetsCompressed.
"""

from typing import NamedTuple, TypeAlias

from tidelog.broker.storage.batch_inspection import (
    Effort,
    ThreadEffort,
    TooMuchError,
    decompressed,
    inspect_batch,
    refusal,
)
from tidelog.broker.storage.batch_rules import check_size, keyless_refused
from tidelog.broker.storage.log_config import LogConfig
from tidelog.protocol.compression import LZ4_FAST_LEVEL, Compression, compress
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError, again
from tidelog.protocol.records import (
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    LOG_OVERHEAD,
    BatchHeader,
    Inspection,
    read_batch_header,
    write_header,
)
from tidelog.protocol.records.header import LOG_APPEND_TIME_BIT
from tidelog.protocol.types import NO_TIMESTAMP, Buffer

AS_SENT = "producer"
"""The compression.type of topics whose batches are stored as they were sent."""
_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


class Recompressed(NamedTuple):
    """What an inspection found, and the batch to store instead of the one that was sent."""

    found: Inspection
    batch: bytes


Inspected: TypeAlias = Inspection | Recompressed


def inspect_to_store(
    batch: Buffer, header: BatchHeader, config: LogConfig, effort: Effort | None = None
) -> Inspected:
    """`inspect_batch`, and the batch to store if it is not the one in `batch`. Raises as `inspect_batch`."""
    is_compressed = header.attributes & COMPRESSION_MASK
    most_record_bytes = config.max_decompressed_message_bytes if is_compressed else None
    if config.compression_type == AS_SENT:
        return inspect_batch(batch, header, effort, most_record_bytes)
    codec = _CODECS[config.compression_type]
    if is_compressed == codec:
        return inspect_batch(batch, header, effort, most_record_bytes)
    plain = _uncompressed(batch, header, effort)
    level = _level(codec, config)
    if effort is not None and not isinstance(effort, ThreadEffort):
        effort.output_bytes -= (len(plain) - BATCH_HEADER_SIZE) * _cost(codec, level)
        if effort.output_bytes < 0:
            raise TooMuchError
    found = inspect_batch(plain, read_batch_header(plain), effort, most_record_bytes)
    if codec is Compression.NONE:
        check_size(len(plain), config)
        return Recompressed(found, bytes(plain))
    block = compress(codec, memoryview(plain)[BATCH_HEADER_SIZE:], level)
    return Recompressed(found, bytes(_rebuilt(header, codec, block)))


def admitted(
    batch: Buffer,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    inspected: Inspected | ApiError | Effort | None,
) -> tuple[int, Buffer]:
    """The latest timestamp of a client's batch, and the batch to store.

    Raises ApiError, and with an effort TooMuchError.
    """
    if isinstance(inspected, ApiError):
        raise again(inspected)
    if inspected is None or isinstance(inspected, Effort):
        inspected = inspect_to_store(batch, header, config, inspected)
    if isinstance(inspected, Recompressed):
        inspected, batch = inspected
    if header.attributes & LOG_APPEND_TIME_BIT:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type LogAppendTime")
    oldest, latest, keyless = inspected
    if config.message_timestamp_type == "CreateTime" and (
        latest - now_ms > config.message_timestamp_after_max_ms
        or (oldest != NO_TIMESTAMP and now_ms - oldest > config.message_timestamp_before_max_ms)
    ):
        raise _bad_timestamp(oldest, latest, config, now_ms)
    if keyless and "compact" in config.cleanup_policy:
        raise keyless_refused(keyless)
    return latest, batch


def _bad_timestamp(oldest: int, latest: int, config: LogConfig, now_ms: int) -> ApiError:
    timestamp, difference_ms, setting = latest, f"{latest - now_ms} ms ahead of", "after"
    limit_ms = config.message_timestamp_after_max_ms
    if latest - now_ms <= limit_ms:
        timestamp, difference_ms, setting = oldest, f"{now_ms - oldest} ms behind", "before"
        limit_ms = config.message_timestamp_before_max_ms
    return ApiError(
        ErrorCode.INVALID_TIMESTAMP,
        f"timestamp {timestamp} is {difference_ms} the broker's clock,"
        f" message.timestamp.{setting}.max.ms={limit_ms}",
    )


def header_to_store(batch: Buffer, config: LogConfig) -> BatchHeader:
    """The header of a batch that was compressed again. Raises ApiError if it became too large."""
    check_size(len(batch), config)
    return read_batch_header(batch)


def _uncompressed(batch: Buffer, header: BatchHeader, effort: Effort | None) -> Buffer:
    """The batch with its records uncompressed. Raises ApiError, TooMuchError."""
    if not header.attributes & COMPRESSION_MASK:
        return batch
    try:
        records = decompressed(header.compression, memoryview(batch)[BATCH_HEADER_SIZE:], effort)
    except ProtocolError as error:
        raise refusal(error) from None
    return _rebuilt(header, Compression.NONE, records)


def _rebuilt(header: BatchHeader, codec: Compression, records: bytes) -> bytearray:
    batch = bytearray(BATCH_HEADER_SIZE)
    batch += records
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    write_header(batch, header._replace(batch_length=len(batch) - LOG_OVERHEAD, attributes=attributes))
    return batch


def _level(codec: Compression, config: LogConfig) -> int | None:
    """The level of the topic, None for the codec's default."""
    if codec is Compression.GZIP:
        return None if config.compression_gzip_level < 0 else config.compression_gzip_level
    levels = {Compression.LZ4: config.compression_lz4_level, Compression.ZSTD: config.compression_zstd_level}
    return levels.get(codec)


def _cost(codec: Compression, level: int | None) -> int:
    """How many bytes are decompressed, about, in the time in which one is compressed."""
    if codec is Compression.NONE:
        return 1
    if codec is Compression.GZIP:
        return 64 if level is not None and level > 6 else 16
    if codec is Compression.LZ4 and level != LZ4_FAST_LEVEL:
        return 64
    if codec is Compression.ZSTD and level is not None and level > 3:
        return 16 if level < 10 else 256
    return 4
