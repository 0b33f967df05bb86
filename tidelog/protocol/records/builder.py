"""Encodes record batches, one record at a time, as fast as plain Python can.

Owns: the layout of a record, and the bytes of a batch until `build` returns them. Invariants: records of one
kind wait by reference until the run of them ends or the batch is built. Then they are encoded together
(`runs`). Sizes are exact at any time. Only `bytes` wait; mutable values are encoded at once. Deltas are
relative to the first record's timestamp; the largest timestamp is tracked. After `build` the builder takes no
more records, and the bytes belong to the caller.
"""

from collections.abc import Sequence

from tidelog.protocol.compression import Compression, compress
from tidelog.protocol.records.header import (
    BATCH_HEADER_SIZE,
    CONTROL_BIT,
    CURRENT_MAGIC,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
    BatchHeader,
    write_header,
)
from tidelog.protocol.records.runs import FIELD_SIZES, encode_run, field_size, fixed_size, run_end
from tidelog.protocol.records.varints import TABLE_SIZE, VARINTS, encode_varint
from tidelog.protocol.types import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Buffer,
)

# The longest length, attributes, timestamp delta, offset delta, key length, value length and header count.
_MAX_RECORD_OVERHEAD = 5 + 1 + 10 + 5 + 5 + 5 + 5
_MAX_HEADER_OVERHEAD = 5 + 5
_NO_LIMIT = 2**31 - 1
_TOO_LARGE = 2**31
# One less than the largest int64, so the delta between any two timestamps is an int64 too.
_MAX_TIMESTAMP_MS = 2**63 - 2
# If values are longer on average, they are joined only when the batch is built, which saves a copy.
_LONG_VALUE_BYTES = 512
_HEADER_ROOM = bytes(BATCH_HEADER_SIZE)


class RecordBatchBuilder:
    """One batch under construction.

    `max_size_bytes` limits the batch before compression, header included. `append` refuses a record that
    would exceed it, except the first one, so a larger record still gets a batch. Public attributes other than
    sizes and counts are for the producer's fast path, which repeats the first step of `append` for a record
    of now.
    """

    __slots__ = (
        "_base_timestamp", "_encoded_bytes", "_is_built", "_max_timestamp", "_pieces", "_run_start",
        "_stamps", "_tail", "last_timestamp", "max_size_bytes", "record_count", "run_end", "run_fixed_size",
        "run_from_s", "run_keys", "run_until_s", "run_values", "size_bytes",
    )  # fmt: skip

    def __init__(self, max_size_bytes: int = _NO_LIMIT) -> None:
        self.record_count = 0
        self.size_bytes = BATCH_HEADER_SIZE
        """Bytes of the batch, header included: before compression until `build`, then as built."""
        # The encoded bytes: `_pieces`, then `_tail`.
        self._pieces: list[Buffer] = []
        self._tail = bytearray(_HEADER_ROOM)
        self.last_timestamp = int(NO_TIMESTAMP)
        """Timestamp of the last added record, milliseconds; NO_TIMESTAMP (-1) for none."""
        self._base_timestamp = self._max_timestamp = int(NO_TIMESTAMP)
        self.max_size_bytes = max_size_bytes
        self._is_built = False
        # The run after that: its values, and its keys or None; the number of the record before which it
        # must end (0 without a run); the `fixed_size` of its records; the seconds since 1970 between which
        # its last timestamp is now; the encoded timestamp deltas with the first record of each.
        self.run_values: list[bytes] = []
        self.run_keys: list[bytes] | None = None
        self.run_end = self.run_fixed_size = self._run_start = self._encoded_bytes = 0
        self.run_from_s = self.run_until_s = 0.0
        self._stamps: list[tuple[int, bytes]] = []

    @classmethod
    def from_encoded(
        cls, records: Buffer, record_count: int, base_timestamp: int, max_timestamp: int
    ) -> "RecordBatchBuilder":
        """A full batch of records that were encoded elsewhere. They are copied and not checked.

        Their deltas must start at 0 with the first record, whose timestamp is `base_timestamp`.
        """
        builder = cls(-1)
        builder._tail += records
        builder.size_bytes = len(builder._tail)
        builder.record_count = record_count
        builder._base_timestamp, builder._max_timestamp = base_timestamp, max_timestamp
        return builder

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
        """An upper bound of the record's encoded size, without encoding it."""
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
        """Add a record and return the number of records, or 0 if it does not fit and was not added.

        `timestamp_ms` is -1 (none) or not negative, else ValueError. Raises RuntimeError after `build`.
        """
        # Nearly every record joins the run. That costs only look-ups and a list's append.
        keys = self.run_keys
        if (key is None if keys is None else type(key) is bytes) and type(value) is bytes and not headers:
            try:
                body = self.run_fixed_size + FIELD_SIZES[len(value)]
                if key is not None:
                    body += FIELD_SIZES[len(key)]
                size = self.size_bytes + FIELD_SIZES[body]
            except IndexError:
                size = _TOO_LARGE
            count = self.record_count
            if size <= self.max_size_bytes and count < self.run_end and self.restamp(timestamp_ms):
                if keys is not None and key is not None:
                    keys.append(key)
                self.run_values.append(value)
                self.size_bytes = size
                self.record_count = count = count + 1
                return count
        return self._append_singly(timestamp_ms, key, value, headers)

    def restamp(self, timestamp_ms: int) -> bool:
        """Whether the next record can join the run, which is not at its end, with this timestamp. If so, it
        must be added next."""
        if timestamp_ms == self.last_timestamp:
            return True
        delta = timestamp_ms - self._base_timestamp
        if not 0 <= delta < TABLE_SIZE or len(VARINTS[delta]) != len(self._stamps[0][1]):
            return False
        self._stamps.append((self.record_count, VARINTS[delta]))
        self._set_timestamp(timestamp_ms)
        return True

    def _set_timestamp(self, timestamp_ms: int) -> None:
        self.last_timestamp = timestamp_ms
        if timestamp_ms > self._max_timestamp:
            self._max_timestamp = timestamp_ms
        self.run_from_s, self.run_until_s = timestamp_ms / 1000, (timestamp_ms + 1) / 1000

    def extend(self, max_size_bytes: int) -> None:
        """Set a larger `max_size_bytes`. Raises RuntimeError after `build`."""
        if self._is_built:
            self._refuse()
        self.max_size_bytes = max_size_bytes

    def _append_singly(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> int:
        """Encode the first record of the batch and any that can join no run at once."""
        if not NO_TIMESTAMP <= timestamp_ms <= _MAX_TIMESTAMP_MS:
            raise ValueError(f"timestamp_ms: expected -1 or milliseconds since 1970, got {timestamp_ms}")
        if self._is_built:
            return self._refuse()
        count = self.record_count
        if count and type(value) is bytes and not headers and (key is None or type(key) is bytes):
            return self._append_to_run(timestamp_ms, key, value)
        delta = timestamp_ms - self._base_timestamp if count else 0
        record = _encode_record(delta, count, key, value, headers)
        size = self.size_bytes + len(record)
        if count and size > self.max_size_bytes:
            return 0
        self._end_run()
        self._tail += record
        self.size_bytes = size
        if count == 0:
            self._base_timestamp = timestamp_ms
        return self._added(timestamp_ms)

    def _append_to_run(self, timestamp_ms: int, key: bytes | None, value: bytes) -> int:
        """Add a record to the run, or begin another one with it."""
        count = self.record_count
        keys = self.run_keys
        delta = encode_varint(timestamp_ms - self._base_timestamp)
        fixed = fixed_size(delta, count, has_key=key is not None)
        body = fixed + field_size(len(value)) + (0 if key is None else field_size(len(key)))
        size = self.size_bytes + field_size(body)
        if size > self.max_size_bytes:
            return 0
        is_alike = (key is None) is (keys is None) and fixed == self.run_fixed_size
        if count >= self.run_end or not is_alike:
            self._end_run()
            self._encoded_bytes = self.size_bytes
            self._run_start, self.run_end = count, run_end(count)
            self.run_fixed_size = fixed
            keys = self.run_keys = None if key is None else []
        if timestamp_ms != self.last_timestamp or not self._stamps:
            self._stamps.append((count, delta))
        if keys is not None and key is not None:
            keys.append(key)
        self.run_values.append(value)
        self.size_bytes = size
        return self._added(timestamp_ms)

    def _added(self, timestamp_ms: int) -> int:
        self._set_timestamp(timestamp_ms)
        self.record_count += 1
        return self.record_count

    def _end_run(self) -> None:
        """Encode the run, if there is one."""
        values = self.run_values
        if not values:
            return
        keys, stamps = self.run_keys, self._stamps
        self.run_end = 0
        self.run_keys, self.run_values, self._stamps = None, [], []
        if len(values) == 1:
            delta = self.last_timestamp - self._base_timestamp
            self._tail += _encode_record(delta, self._run_start, keys[0] if keys else None, values[0], ())
            return
        pieces = encode_run(stamps, self._run_start, keys, values)
        if self.size_bytes - self._encoded_bytes < _LONG_VALUE_BYTES * len(values):
            self._tail += b"".join(pieces)
        else:
            self._pieces.append(self._tail)
            self._pieces += pieces
            self._tail = bytearray()

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
    ) -> bytearray:
        """The finished batch. It belongs to the caller, who may patch it.

        Raises ValueError if there is no record, RuntimeError on a second call.
        """
        if self._is_built:
            raise RuntimeError("this batch has been built already")
        if not self.record_count:
            raise ValueError("a batch needs at least one record")
        self._is_built = True
        # With this the fast path of `append` ends too, and its slow path raises that the batch is built.
        self._end_run()
        batch = bytearray().join((*self._pieces, self._tail)) if self._pieces else self._tail
        self._pieces = []
        if compression is not Compression.NONE:
            with memoryview(batch) as view:
                packed = compress(compression, view[BATCH_HEADER_SIZE:])
            batch = bytearray(_HEADER_ROOM + packed)
        self._tail = batch
        self.size_bytes = len(batch)
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


def _encode_record(
    delta: int,
    count: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> bytes:
    """Encode the record that is `count` records and `delta` milliseconds after the first."""
    # Short deltas and no headers: only look-ups and joins.
    if value is not None and not headers and 0 <= delta < TABLE_SIZE and count < TABLE_SIZE:
        if key is None:
            parts = (b"\0", VARINTS[delta], VARINTS[count], b"\1", encode_varint(len(value)), value, b"\0")
            body = b"".join(parts)
        else:
            start = (b"\0", VARINTS[delta], VARINTS[count])
            body = b"".join((*start, encode_varint(len(key)), key, encode_varint(len(value)), value, b"\0"))
    else:
        fields = [b"\0", encode_varint(delta), encode_varint(count), *_sized(key), *_sized(value)]
        fields.append(encode_varint(len(headers)))
        for name, content in headers:
            fields += _sized(name.encode())
            fields += _sized(content)
        body = b"".join(fields)
    return encode_varint(len(body)) + body


def _sized(content: bytes | None) -> tuple[bytes, bytes]:
    """A field's length and its bytes. None has length -1 and no bytes."""
    if content is None:
        return b"\x01", b""
    return encode_varint(len(content)), content
