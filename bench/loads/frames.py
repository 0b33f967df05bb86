"""Produce requests with one batch per partition, made by patching one prepared frame.

Owns the layout of a Produce version 7 frame with one topic. Invariants: sequences increase by the records of
a batch, in all partitions alike; each batch's CRC is right; while a load runs, nothing is encoded, only
patched. A CRC is linear, so that of a batch with another sequence follows from four bytes.
"""

import time
from collections.abc import Sequence
from struct import Struct

from crc32c import crc32c

from tidelog.protocol.framing import encode_request_frame
from tidelog.protocol.hot import ProduceRequest, encode_produce_request
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey

PRODUCE_VERSION = 7
TIMEOUT_MS = 30_000
_ALL = -1
_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_PRODUCER = Struct(">qhi")
_CORRELATION_AT = 8
_CRC_IN_BATCH = 17
_ATTRIBUTES_IN_BATCH = 21
_PRODUCER_IN_BATCH = 43
_SEQUENCE_IN_BATCH = 53
_MAX_SEQUENCE = 2**31 - 1


class FrameMaker:
    """Frames of one producer id that wait for all acks."""

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int,
        topic: str,
        partitions: Sequence[int],
        value: bytes,
        records: int = 1,
        uneven_bytes: int = 0,
    ) -> None:
        """Of the records of a batch, each is one byte shorter than the one before, up to `uneven_bytes`."""
        self._producer = (producer_id, producer_epoch)
        self._sequence = 0
        builder = RecordBatchBuilder()
        now_ms = time.time_ns() // 1_000_000  # Retention would delete older records within the run.
        for number in range(records):
            builder.append(now_ms, None, value[: len(value) - number % (uneven_bytes + 1)])
        batch = builder.build()
        request = ProduceRequest(None, _ALL, TIMEOUT_MS, [(topic, [(index, batch) for index in partitions])])
        body = encode_produce_request(PRODUCE_VERSION, request)
        self._frame = bytearray(
            b"".join(encode_request_frame(ApiKey.PRODUCE, PRODUCE_VERSION, 0, "bench", body))
        )
        # The partitions are the last field of the request: an index and a size before each batch.
        stride = 2 * _INT32.size + len(batch)
        end = len(self._frame) - len(batch)
        self._batches_at = [end - stride * number for number in range(len(partitions))]
        for at in self._batches_at:
            _PRODUCER.pack_into(self._frame, at + _PRODUCER_IN_BATCH, *self._producer, 0)
        covered = memoryview(self._frame)[end + _ATTRIBUTES_IN_BATCH :]
        self._crc = crc32c(covered)
        self._changes = _crc_changes(len(covered), _SEQUENCE_IN_BATCH - _ATTRIBUTES_IN_BATCH)
        self._records = records
        self._next = 0

    def next_frame(self) -> bytes:
        """The frame with the next sequence; the correlation ids count 0, 1, 2, …"""
        return bytes(self.patched())

    def patched(self) -> bytearray:
        """As `next_frame`, without a copy: it changes with the next call."""
        number = self._next
        frame, sequence = self._frame, self._sequence
        _INT32.pack_into(frame, _CORRELATION_AT, number)
        self._sequence = (sequence + self._records) & _MAX_SEQUENCE
        # The batches differ in nothing, so they have one CRC.
        first, second, third, fourth = self._changes
        crc = self._crc ^ first[sequence >> 24] ^ second[sequence >> 16 & 255]
        crc ^= third[sequence >> 8 & 255] ^ fourth[sequence & 255]
        for at in self._batches_at:
            _INT32.pack_into(frame, at + _SEQUENCE_IN_BATCH, sequence)
            _UINT32.pack_into(frame, at + _CRC_IN_BATCH, crc)
        self._next = 0 if number == _MAX_SEQUENCE else number + 1
        return frame


def _crc_changes(size: int, position: int) -> list[list[int]]:
    """How each value of each of four bytes at a position changes the CRC of so many bytes, where it was 0."""
    zeros = bytearray(size)
    of_zeros = crc32c(zeros)
    changes: list[list[int]] = []
    for at in range(position, position + 4):
        row = [0] * 256
        for bit in range(8):
            zeros[at] = 1 << bit
            row[1 << bit] = crc32c(zeros) ^ of_zeros
        zeros[at] = 0
        for value in range(256):
            lowest = value & -value
            row[value] = row[lowest] ^ row[value ^ lowest] if value != lowest else row[value]
        changes.append(row)
    return changes
