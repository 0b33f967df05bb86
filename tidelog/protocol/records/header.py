"""The 61-byte header of a record batch: it reads the header, checks its CRC, and patches it.

Owns: the header's layout. The CRC does not cover base offset, length, leader epoch (bytes 0 to 15) and magic.
It covers everything from the attributes (byte 21) to the end of the batch. Invariants: no record is decoded.
No function copies record bytes, except `with_log_append_time` and `with_max_timestamp`, whose callers have a
read-only view. `read_batch_header` proves only that a header exists and that its length is possible; the
batch may be longer than the buffer (compare `size_bytes`).
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.sequences import increment_sequence
from tidelog.protocol.types import NO_SEQUENCE, NO_TIMESTAMP, Buffer

BATCH_HEADER_SIZE = 61
# Base offset and batch length: the batch length counts the bytes after them.
LOG_OVERHEAD = 12
CURRENT_MAGIC = 2

_HEADER = Struct(">qiibIhiqqqhii")
_PREFIX = Struct(">qii")
_PRODUCER = Struct(">qhi")
_INT64 = Struct(">q")
_UINT32 = Struct(">I")
_INT16 = Struct(">h")

_MAGIC_AT = 16
_CRC_AT = 17
ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_PRODUCER_AT = 43

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

unpack_header = _HEADER.unpack_from
"""The fields of a BatchHeader from a buffer of 61 bytes or more, none of them checked."""
pack_prefix = _PREFIX.pack
"""The first 16 bytes of a batch: base offset, batch length, leader epoch. Write its rest after them."""

_CODECS = {codec.value: codec for codec in Compression}


class TimestampType(IntEnum):
    """Which clock the timestamps of a batch came from: the producer's or the broker's."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """A batch's header, field by field in wire order. Timestamps are milliseconds since the epoch."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch, header included."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapped; NO_SEQUENCE (-1) if the batch has none."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> Compression:
        """The codec of the records. Raises ProtocolError for an unknown number."""
        codec = _CODECS.get(self.attributes & COMPRESSION_MASK)
        if codec is None:
            raise ProtocolError(
                f"batch at offset {self.base_offset}: expected compression codec 0 to 4, got"
                f" {self.attributes & COMPRESSION_MASK}"
            )
        return codec

    @property
    def largest_timestamp(self) -> int:
        """See `largest_timestamp`."""
        return largest_timestamp(self.attributes, self.base_timestamp, self.max_timestamp)

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """From when on a cleaner may remove the tombstones of the batch; None while no cleaner has set it.

        It takes the place of the base timestamp, from which the records' timestamps count (KIP-534).
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & LOG_APPEND_TIME_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME


def largest_timestamp(attributes: int, base_timestamp: int, max_timestamp: int) -> int:
    """The largest timestamp of a batch, as far as its header is plausible; NO_TIMESTAMP (-1) for none.

    BaseTimestamp is the first record's, so a MaxTimestamp below it is wrong. librdkafka writes 0 if no record
    has a timestamp. A cleaner that puts the delete horizon there writes the right MaxTimestamp.
    """
    if 0 <= base_timestamp <= max_timestamp or attributes & (LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT):
        return max_timestamp
    if base_timestamp < 0:
        return max_timestamp if max_timestamp > 0 else NO_TIMESTAMP
    return base_timestamp


def read_magic(buffer: Buffer, position: int = 0) -> int:
    """The format version of the batch or message set at `position`: 2, or 0 and 1 for the old formats, which
    have shorter headers with another layout. Raises ProtocolError if fewer than 17 bytes are left."""
    if position < 0 or len(buffer) - position <= _MAGIC_AT:
        raise ProtocolError(f"no batch at byte {position}: the {len(buffer)} bytes end before its magic byte")
    return buffer[position + _MAGIC_AT]


def read_batch_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. The records after it need not be in the buffer.

    Magic, counts and codec are not checked; the caller must do that. Raises ProtocolError if fewer than 61
    bytes are left or the batch length is too small for a header.
    """
    if position < 0 or len(buffer) - position < BATCH_HEADER_SIZE:
        raise ProtocolError(
            f"truncated batch at byte {position}: a header takes {BATCH_HEADER_SIZE} bytes,"
            f" {max(len(buffer) - position, 0)} are left"
        )
    header = tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))
    if header.batch_length < BATCH_HEADER_SIZE - LOG_OVERHEAD:
        raise ProtocolError(
            f"batch at byte {position}: length {header.batch_length} is less than the"
            f" {BATCH_HEADER_SIZE - LOG_OVERHEAD} bytes that every batch has"
        )
    return header


def batch_crc_is_valid(buffer: Buffer, header: BatchHeader, position: int = 0) -> bool:
    """Whether `buffer` holds the whole batch and its bytes match the CRC in `header`."""
    end = position + LOG_OVERHEAD + header.batch_length
    if end > len(buffer):
        return False
    return bool(crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : end]) == header.crc)


def iter_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Each whole batch, as (position, header). Stops silently at a truncated batch.

    CRCs are not checked. Raises ProtocolError for a length that is too small or a magic other than 2.
    """
    position, size = 0, len(buffer)
    while size - position >= BATCH_HEADER_SIZE:
        header = read_batch_header(buffer, position)
        if header.magic != CURRENT_MAGIC:
            raise ProtocolError(
                f"batch at byte {position}: expected magic {CURRENT_MAGIC}, got {header.magic}"
            )
        end = position + LOG_OVERHEAD + header.batch_length
        if end > size:
            return
        yield position, header
        position = end


def with_log_append_time(batch: Buffer, timestamp_ms: int) -> bytes:
    """A copy of the one batch in `batch` in which all records have the broker's time, with a new CRC."""
    header = read_batch_header(batch)
    copy = bytearray(batch)
    _INT16.pack_into(copy, ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_BIT)
    return _with_max_timestamp(copy, timestamp_ms)


def with_max_timestamp(batch: Buffer, timestamp_ms: int) -> bytes:
    """A copy of the one batch in `batch` with another MaxTimestamp and a new CRC."""
    return _with_max_timestamp(bytearray(batch), timestamp_ms)


def _with_max_timestamp(batch: bytearray, timestamp_ms: int) -> bytes:
    _INT64.pack_into(batch, _MAX_TIMESTAMP_AT, timestamp_ms)
    write_crc(batch)
    return bytes(batch)


def set_producer(batch: bytearray, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Change producer id, epoch, base sequence and CRC of the one batch in `batch` in place.

    Records are not read, so a compressed batch costs the same.
    """
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    write_crc(batch)


def write_crc(batch: bytearray) -> None:
    """Recompute the CRC of `batch`, which holds exactly one batch."""
    with memoryview(batch) as view:
        _UINT32.pack_into(batch, _CRC_AT, crc32c(view[ATTRIBUTES_AT:]))


def write_header(batch: bytearray, header: BatchHeader) -> None:
    """Write `header` over the first 61 bytes of `batch`, which holds exactly one batch, with the right
    CRC."""
    _HEADER.pack_into(batch, 0, *header)
    write_crc(batch)
