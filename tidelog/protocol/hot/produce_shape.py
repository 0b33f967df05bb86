"""A Produce request that repeats an earlier one with another batch is read by comparing, not by decoding.

Owns what such requests have in common: all bytes but the correlation id, the partition and the records. The
answers to them have as much in common. Invariants: a request that matches decodes to the same values, and an
answer has the same bytes, as with `framing` and `hot.produce` (a property test checks it); no other request
matches; records are a slice of the frame.
"""

import struct
from collections.abc import Sequence
from struct import Struct
from typing import Final, Self

from tidelog.protocol.framing import encode_response_frame
from tidelog.protocol.hot.produce import (
    ProducePartitionResult,
    ProduceRequest,
    encode_produce_response,
    one_topic_prefix,
)
from tidelog.protocol.primitives import compact_length, int32_length
from tidelog.protocol.schema import APIS, ApiKey
from tidelog.protocol.types import NO_OFFSET

_FIRST_VERSION: Final = 7
"""Older answers lack the log start offset, and older requests may not hold zstd."""
_FIRST_FLEXIBLE: Final = APIS[ApiKey.PRODUCE].first_flexible_version
_FIXED_BYTES: Final = 8
"""API key, version, correlation id."""
_EMPTY_TAGS: Final = memoryview(b"\0\0\0")
_RESULT_BYTES: Final = Struct(">ihqqq").size
_MOST_RECORDS_BYTES: Final = (1 << 21) - 2


class ProduceShape:
    """What the requests of one producer to one topic have in common; `of` makes it from one of them."""

    __slots__ = (
        "_answer", "_answer_head", "_answer_size", "_answer_tail", "_fields", "_is_flexible", "_middle",
        "_records_at", "_start", "acks", "timeout_ms", "topic",
    )  # fmt: skip

    def __init__(self, version: int, frame: memoryview, records_at: int, request: ProduceRequest) -> None:
        """`records_at`: where the length of the records begins."""
        ((self.topic, _),) = request.topics
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self._is_flexible = version >= _FIRST_FLEXIBLE
        # The index of the partition and, in the classic form, the length of the records.
        middle = records_at - 4 - _FIXED_BYTES
        self._fields = Struct(f">4si{middle}si{'B' if self._is_flexible else 'i'}").unpack_from
        self._start = bytes(frame[:4])
        self._middle = bytes(frame[_FIXED_BYTES : _FIXED_BYTES + middle])
        self._records_at = records_at + (1 if self._is_flexible else 4)
        result = ProducePartitionResult(0, 0, NO_OFFSET)
        body = encode_produce_response(version, [(self.topic, [result])])
        (answer,) = encode_response_frame(ApiKey.PRODUCE, version, 0, body)
        answer = bytes(answer)
        head = self._is_flexible + len(one_topic_prefix(version, self.topic))
        self._answer_size = answer[:4]
        self._answer_head = answer[8 : 8 + head]
        self._answer_tail = answer[8 + head + _RESULT_BYTES :]
        self._answer = Struct(f">4si{head}sihqqq{len(self._answer_tail)}s").pack

    @classmethod
    def of(cls, version: int, frame: memoryview, request: ProduceRequest) -> Self | None:
        """The shape of `frame`, which was decoded to `request`; None if it is of another kind: with a
        transactional id, with more or less than one batch, or of an old version."""
        transactional_id, _, _, topics = request
        if version < _FIRST_VERSION or transactional_id is not None or len(topics) != 1:
            return None
        _, partitions = topics[0]
        if len(partitions) != 1:
            return None
        index, records = partitions[0]
        if not records or len(records) > _MOST_RECORDS_BYTES:
            return None
        after = 0
        length = int32_length(len(records))
        if version >= _FIRST_FLEXIBLE:
            after, length = len(_EMPTY_TAGS), compact_length(len(records))
        records_at = len(frame) - after - len(records) - len(length)
        if records_at < _FIXED_BYTES + 4:
            return None
        shape = cls(version, frame, records_at, request)
        # A client may write lengths in more bytes than needed, or tagged fields: then nothing matches.
        found = shape.match(frame)
        return shape if found is not None and found[1:] == (index, records) else None

    def match(self, frame: memoryview) -> tuple[int, int, memoryview] | None:
        """Correlation id, partition and records of a request of this shape; None for any other request."""
        try:
            start, correlation_id, middle, index, size = self._fields(frame)
        except struct.error:
            return None
        if middle != self._middle or start != self._start:
            return None
        position, end = self._records_at, len(frame)
        if self._is_flexible:
            end -= 3
            if size > 127:
                if end <= position + 1:
                    return None
                more = frame[position]
                size += (more << 7) - 128
                position += 1
                if more > 127:
                    more = frame[position]
                    size += (more << 14) - 16384
                    position += 1
                    if more > 127:
                        return None
            size -= 1
            if frame[end:] != _EMPTY_TAGS:
                return None
        if size <= 0 or position + size != end:
            return None
        return correlation_id, index, frame[position:end]

    def answers(
        self,
        correlation_ids: Sequence[int],
        index: int,
        base_offset: int,
        append_time_ms: int,
        log_start_offset: int,
    ) -> bytes:
        """The frames of `answer` for batches of one record each that were stored in this order."""
        size, head, pack, tail = self._answer_size, self._answer_head, self._answer, self._answer_tail
        return b"".join(
            [
                pack(size, each, head, index, 0, offset, append_time_ms, log_start_offset, tail)
                for offset, each in enumerate(correlation_ids, base_offset)
            ]
        )

    def answer(
        self,
        correlation_id: int,
        index: int,
        code: int,
        base_offset: int,
        append_time_ms: int,
        log_start_offset: int,
    ) -> bytes:
        """The frame of the answer to a request of this shape, without a message."""
        return self._answer(
            self._answer_size,
            correlation_id,
            self._answer_head,
            index,
            code,
            base_offset,
            append_time_ms,
            log_start_offset,
            self._answer_tail,
        )
