"""The checks of a batch that do not depend on its producer's state.

Owns the checks that need neither the log nor the producer state, in Kafka's order. Pure.

Invariants: only the header is read, `batch_inspection` checks the records; a batch that passes both can be
stored as it is, or as `recompression` rebuilds it, and only its base offset, leader epoch and MaxTimestamp
(with LogAppendTime its attributes too) may be written into it.

Source: Kafka's ProduceRequest, UnifiedLog and LogValidator; KIP-937.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import Final, TypeAlias

from crc32c import crc32c

from tidelog.broker.storage.log_config import LogConfig
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ApiError, ErrorCode, ProtocolError
from tidelog.protocol.records import (
    BATCH_HEADER_SIZE,
    CURRENT_MAGIC,
    LOG_OVERHEAD,
    MOST_KEYLESS,
    BatchHeader,
    read_magic,
    unpack_header,
)
from tidelog.protocol.records.header import ATTRIBUTES_AT
from tidelog.protocol.types import Buffer

_NO_KEY = "Compacted topic cannot accept message without key."
_CODEC_MASK = 0x07
_CONTROL = 0x20
_LAST_CODEC = max(Compression).value


class AppendOrigin(Enum):
    """Whose batch is appended, and so what it is checked for."""

    CLIENT = "client"
    """All that a batch may be wrong in, its records and its producer's epoch and sequence too."""
    COORDINATOR = "coordinator"
    """This broker itself: records without a producer, or, checked for the epochs of a producer and of its
    coordinator, records of that producer's transaction or the control batch that ends it."""
    LEADER = "leader"
    """The partition's leader, which checked it: its offsets and leader epoch have to follow those here."""


Permit: TypeAlias = Callable[[BatchHeader], None]
"""Raises ApiError unless its coordinator knows of the transaction that this batch begins."""
# An enum's member takes longer to look up than to compare.
CLIENT: Final = AppendOrigin.CLIENT


def may_not_begin(batch: BatchHeader) -> None:
    """The Permit of a producer that names no transactional id. Raises ApiError."""
    raise ApiError(
        ErrorCode.INVALID_TXN_STATE,
        f"producer {batch.producer_id} sent a transactional batch, but no transaction is open here",
    )


def checked_header(batch: Buffer, config: LogConfig, origin: AppendOrigin = CLIENT) -> BatchHeader:
    """The header of the one batch in `batch`. Raises ApiError with Kafka's code for what is wrong with it."""
    size = len(batch)
    if size < BATCH_HEADER_SIZE:
        raise _no_header(batch)
    header = tuple.__new__(BatchHeader, unpack_header(batch))
    base_offset, batch_length, _, magic, crc, _, _, _, _, _, _, _, _ = header
    if magic != CURRENT_MAGIC:
        raise _other_format(magic)
    if batch_length + LOG_OVERHEAD != size:
        raise _invalid(
            f"exactly one batch per partition is accepted; this one takes {header.size_bytes} of {size} bytes"
        )
    if base_offset != 0 and origin is not AppendOrigin.LEADER:
        raise _invalid(f"base offset {base_offset}; a producer's batch must have 0")
    if size > min(config.max_message_bytes, config.segment_bytes) and origin is not AppendOrigin.LEADER:
        check_size(size, config)
    if crc32c(memoryview(batch)[ATTRIBUTES_AT:]) != crc:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the CRC of the batch is not {crc:08x}, as it says")
    _check_counts(header, origin)
    return header


def check_size(size: int, config: LogConfig) -> None:
    """Raise ApiError if a batch of this size is too large for the topic."""
    if size > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes is larger than max.message.bytes={config.max_message_bytes}",
        )
    if size > config.segment_bytes:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"a batch of {size} bytes is larger than segment.bytes={config.segment_bytes}",
        )


def _check_counts(header: BatchHeader, origin: AppendOrigin) -> None:
    # One unpacking costs less than the look-ups that it replaces.
    _, _, _, _, _, attributes, last_offset_delta, _, _, producer_id, epoch, sequence, count = header
    # Compaction takes records, and leaves the offsets of their batch as they are.
    if (count <= 0 or last_offset_delta != count - 1) and not (
        last_offset_delta >= count >= 0 and origin is AppendOrigin.LEADER
    ):
        raise _invalid(
            f"{count} records with last offset delta {last_offset_delta};"
            " the count must be one more than the delta, and positive"
        )
    if attributes & _CODEC_MASK > _LAST_CODEC:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"compression codec {attributes & _CODEC_MASK} does not exist",
        )
    if origin is not CLIENT:
        if origin is AppendOrigin.COORDINATOR:
            _check_own(header)
        return
    if attributes & _CONTROL:
        raise _invalid("a client may not write control batches")
    if producer_id >= 0 and (sequence < 0 or epoch < 0):
        raise _invalid(
            f"producer {producer_id} sent epoch {epoch} and sequence {sequence}; neither may be negative"
        )


def _check_own(header: BatchHeader) -> None:
    """What this broker writes names a producer if it belongs to a transaction of that producer, else none."""
    is_of_producer = header.is_control or header.is_transactional
    if is_of_producer != (header.producer_id >= 0):
        kind = "a control batch" if header.is_control else "a coordinator's batch of records"
        raise _invalid(f"{kind} names producer {header.producer_id}")
    if header.base_sequence >= 0:
        raise _invalid(f"a coordinator's batch has sequence {header.base_sequence}; it must have none")


def keyless_refused(keyless: Sequence[int]) -> ApiError:
    """Why a compacted topic does not take a batch in which these records have no key, with an error for each
    of them."""
    error = _invalid(
        f"One or more records have been rejected due to {len(keyless)} record errors in total:"
        f" {_NO_KEY} The first one is record {keyless[0]} of the batch; give each record a key."
    )
    error.record_errors = [(position, _NO_KEY) for position in keyless[:MOST_KEYLESS]]
    return error


def _no_header(batch: Buffer) -> ApiError:
    """Why there is no header: those of the old formats are shorter."""
    with suppress(ProtocolError):
        if (magic := read_magic(batch)) != CURRENT_MAGIC:
            return _other_format(magic)
    return _invalid(f"a batch has a header of {BATCH_HEADER_SIZE} bytes, {len(batch)} came")


def _other_format(magic: int) -> ApiError:
    return _invalid(f"magic {magic}; only record batches of version {CURRENT_MAGIC} are accepted")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, message)
