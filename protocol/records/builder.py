"""Encoding of record batches, one record at a time, at the price that plain Python can be brought to.

Owns: the layout of a record and the bytes of a batch until `build` hands them out.
Invariants: no object is kept per record, only bytes in one buffer that already has room for the header, so an
uncompressed batch is never copied. Deltas are taken from the first record's timestamp; the largest timestamp
is tracked. After `build` the builder takes no more records, and the bytes belong to the caller.
Callers: the client's accumulator, the broker's coordinators, tests and tools.
"""

from collections.abc import Sequence

from protocol.compression import Compression, compress
from protocol.records.header import (
    BATCH_HEADER_SIZE,
    CONTROL_BIT,
    CURRENT_MAGIC,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
    BatchHeader,
    write_header,
)
from protocol.records.varints import VARINTS, encode_varint
from protocol.types import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Buffer,
)

# Length, attributes, timestamp delta, offset delta, key length, value length and header count at their
# longest.
_MAX_RECORD_OVERHEAD = 5 + 1 + 10 + 5 + 5 + 5 + 5
_MAX_HEADER_OVERHEAD = 5 + 5
_NO_LIMIT = 2**31 - 1
# One less than int64 holds, so that the delta between any two of them is an int64 too.
_MAX_TIMESTAMP_MS = 2**63 - 2
# Later than any timestamp, so that the delta of a first record, or of one too many, is negative, which sends
# it the slow way.
_NO_BASE_TIMESTAMP = 2**63 - 1
_HEADER_ROOM = bytes(BATCH_HEADER_SIZE)


class RecordBatchBuilder:
    """One batch under construction.

    `max_size_bytes` bounds the batch before compression, header included: a record that would take it further
    is refused by `append`, unless it is the first, so that a record larger than the bound still finds a
    batch.
    """

    __slots__ = (
        "_base_timestamp",
        "_buffer",
        "_fast_base",
        "_is_built",
        "_max_size",
        "_max_timestamp",
        "record_count",
    )

    def __init__(self, max_size_bytes: int = _NO_LIMIT) -> None:
        self.record_count = 0
        self._buffer = bytearray(_HEADER_ROOM)
        self._base_timestamp = self._fast_base = _NO_BASE_TIMESTAMP
        self._max_timestamp: int = NO_TIMESTAMP
        self._max_size = max_size_bytes
        self._is_built = False

    @classmethod
    def from_encoded(
        cls, records: Buffer, record_count: int, base_timestamp: int, max_timestamp: int
    ) -> "RecordBatchBuilder":
        """A full batch of records that were encoded elsewhere, which are copied and not looked at.

        Their deltas must start at 0 with the first record, whose timestamp is `base_timestamp`.
        """
        builder = cls(-1)
        builder._buffer += records
        builder.record_count = record_count
        builder._base_timestamp, builder._max_timestamp = base_timestamp, max_timestamp
        return builder

    @property
    def size_bytes(self) -> int:
        """Bytes of the batch, header included: before compression until `build`, as built from then on."""
        return len(self._buffer)

    @property
    def base_timestamp(self) -> int:
        """Timestamp of the first record, milliseconds; 0 while there is none."""
        return self._base_timestamp if self.record_count else 0

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp so far, milliseconds; NO_TIMESTAMP (-1) while there is none."""
        return self._max_timestamp

    @staticmethod
    def record_size_bound(
        key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] = ()
    ) -> int:
        """No fewer bytes than the record will take, without encoding it."""
        size = _MAX_RECORD_OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
        for name, content in headers:
            # A character takes at most four bytes in UTF-8.
            size += _MAX_HEADER_OVERHEAD + 4 * len(name) + (len(content) if content else 0)
        return size

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> int:
        """Add a record; how many there are now, or 0 when it does not fit and was not added.

        `timestamp_ms` is -1 (none) or not negative, else ValueError. Raises RuntimeError after `build`.
        """
        delta = timestamp_ms - self._fast_base
        # Anything unusual takes the slow path: what remains is one table look-up a field and one join.
        if value is None or delta < 0 or headers:
            return self._append_slowly(timestamp_ms, key, value, headers)
        count = self.record_count
        try:
            parts: tuple[bytes, ...]
            if key is None:
                parts = (b"\0", VARINTS[delta], VARINTS[count], b"\1", VARINTS[len(value)], value, b"\0")
            else:
                key_length = VARINTS[len(key)]
                value_length = VARINTS[len(value)]
                parts = (b"\0", VARINTS[delta], VARINTS[count], key_length, key, value_length, value, b"\0")
            body = b"".join(parts)
            length = VARINTS[len(body)]
        except IndexError:
            return self._append_slowly(timestamp_ms, key, value, headers)
        buffer = self._buffer
        buffer += length
        buffer += body
        # Nearly every record fits, so that this is cheaper to find out afterwards.
        if len(buffer) > self._max_size:
            del buffer[-len(length) - len(body) :]
            return 0
        if timestamp_ms > self._max_timestamp:
            self._max_timestamp = timestamp_ms
        self.record_count = count = count + 1
        return count

    def extend(self, max_size_bytes: int) -> None:
        """Take records up to this size from now on. Raises RuntimeError after `build`."""
        if self._is_built:
            self._refuse()
        self._max_size = max_size_bytes

    def _append_slowly(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> int:
        if not NO_TIMESTAMP <= timestamp_ms <= _MAX_TIMESTAMP_MS:
            raise ValueError(f"timestamp_ms is {timestamp_ms}, expected -1 (none) or milliseconds since 1970")
        count = self.record_count
        base_timestamp = self._base_timestamp if count else timestamp_ms
        parts: list[bytes] = [b"\0", encode_varint(timestamp_ms - base_timestamp), encode_varint(count)]
        parts += _sized(key)
        parts += _sized(value)
        parts.append(encode_varint(len(headers)))
        for name, content in headers:
            parts += _sized(name.encode())
            parts += _sized(content)
        body = b"".join(parts)
        length = encode_varint(len(body))
        size = len(length) + len(body)
        if self._is_built or (count and len(self._buffer) + size > self._max_size):
            return self._refuse()
        self._buffer += length
        self._buffer += body
        if count == 0:
            self._base_timestamp = self._fast_base = self._max_timestamp = timestamp_ms
        elif timestamp_ms > self._max_timestamp:
            self._max_timestamp = timestamp_ms
        self.record_count = count + 1
        return count + 1

    def _refuse(self) -> int:
        if self._is_built:
            raise RuntimeError("this batch has been built and takes no more records")
        return 0

    def build(
        self,
        compression: Compression = Compression.NONE,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        *,
        base_offset: int = 0,
        leader_epoch: int = NO_LEADER_EPOCH,
        is_transactional: bool = False,
        is_control: bool = False,
        level: int | None = None,
    ) -> bytearray:
        """The finished batch, which is the caller's to keep and to patch. The builder is spent.

        Raises ValueError when it holds no record, RuntimeError when called twice.
        """
        if self._is_built:
            raise RuntimeError("this batch has been built already")
        if not self.record_count:
            raise ValueError("a batch needs at least one record")
        self._is_built = True
        # So that `append` need not ask on its fast path whether the batch is closed.
        self._fast_base = _NO_BASE_TIMESTAMP
        batch = self._buffer
        if compression is not Compression.NONE:
            with memoryview(batch) as view:
                packed = compress(compression, view[BATCH_HEADER_SIZE:], level)
            self._buffer = batch = bytearray(_HEADER_ROOM + packed)
        attributes = int(compression)
        if is_transactional:
            attributes |= TRANSACTIONAL_BIT
        if is_control:
            attributes |= CONTROL_BIT
        header = BatchHeader(
            base_offset=base_offset,
            batch_length=len(batch) - LOG_OVERHEAD,
            partition_leader_epoch=leader_epoch,
            magic=CURRENT_MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=self.record_count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=self.record_count,
        )
        write_header(batch, header)
        return batch


def _sized(content: bytes | None) -> tuple[bytes, bytes]:
    """A field with its length before it; None is length -1 and no bytes."""
    if content is None:
        return b"\x01", b""
    return encode_varint(len(content)), content
