"""Produce requests of one batch each, made by patching one prepared frame.

Owns the layout facts of a Produce version 7 frame with one topic and one partition. Invariants: sequences of
a frame maker go on by the records of a batch; each frame's CRC is right; nothing is encoded while a load
runs, only patched. Called by `request_load`, `fill_load` and `sides`.
"""

from struct import Struct

from crc32c import crc32c

from bench.wire import TOPIC
from protocol.framing import encode_request_frame
from protocol.hot import ProduceRequest, encode_produce_request
from protocol.records import RecordBatchBuilder
from protocol.schema import ApiKey
from protocol.types import NO_SEQUENCE

PRODUCE_VERSION = 7
TIMEOUT_MS = 30_000
_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_CORRELATION_AT = 8
_CRC_IN_BATCH = 17
_ATTRIBUTES_IN_BATCH = 21
_SEQUENCE_IN_BATCH = 53
_MAX_SEQUENCE = 2**31 - 1


class FrameMaker:
    """Frames of one producer id, or of none (-1), to partition 0 of the bench's topic."""

    def __init__(
        self, producer_id: int, producer_epoch: int, acks: int, value: bytes, records: int = 1
    ) -> None:
        builder = RecordBatchBuilder()
        for _ in range(records):
            builder.append(1_700_000_000_000, None, value)
        self._has_id = producer_id >= 0
        first = 0 if self._has_id else NO_SEQUENCE
        batch = builder.build(producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=first)
        request = ProduceRequest(None, acks, TIMEOUT_MS, [(TOPIC, [(0, batch)])])
        body = encode_produce_request(PRODUCE_VERSION, request)
        self._frame = bytearray(
            b"".join(encode_request_frame(ApiKey.PRODUCE, PRODUCE_VERSION, 0, TOPIC, body))
        )
        # The records are the last field of the request.
        self._batch_at = len(self._frame) - len(batch)
        self._covered = memoryview(self._frame)[self._batch_at + _ATTRIBUTES_IN_BATCH :]
        self._records = records
        self._next = 0

    @property
    def batch_bytes(self) -> int:
        """Size of one batch."""
        return len(self._frame) - self._batch_at

    def next_frame(self) -> bytes:
        """The frame with the next sequence; the correlation ids count 0, 1, 2, …"""
        number = self._next
        frame, batch_at = self._frame, self._batch_at
        _INT32.pack_into(frame, _CORRELATION_AT, number)
        sequence = number * self._records & _MAX_SEQUENCE if self._has_id else NO_SEQUENCE
        _INT32.pack_into(frame, batch_at + _SEQUENCE_IN_BATCH, sequence)
        _UINT32.pack_into(frame, batch_at + _CRC_IN_BATCH, crc32c(self._covered))
        self._next = 0 if number == _MAX_SEQUENCE else number + 1
        return bytes(frame)
