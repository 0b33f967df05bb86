"""Facts of a ProduceRequest as a whole, before any of its batches is appended.

Owns what may be said without a partition: sizes, copies, partitions that are named twice, refusals of all.
Invariant: loops over partitions count them with a `Pace`, except for those that only copy or add up.
"""

from __future__ import annotations

from typing import Final

from tidelog.broker.handlers.produce_answers import ProduceResponse, refused
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.hot import ProduceRequest
from tidelog.protocol.records import BATCH_HEADER_SIZE
from tidelog.protocol.steps import GLANCES_A_STEP, Pace, Steps, each
from tidelog.protocol.types import Buffer

FIRST_VERSION_WITH_ZSTD: Final = 7
_ATTRIBUTES_LOW_BYTE: Final = 22
_CODEC_MASK: Final = 0x07
_TRANSACTIONAL_BIT: Final = 0x10


def size_bytes(request: ProduceRequest) -> int:
    """Of all batches."""
    return sum(len(batch) for _, partitions in request.topics for _, batch in partitions if batch is not None)


def copied(request: ProduceRequest) -> ProduceRequest:
    """A copy whose batches stay valid after the frame."""
    topics = [
        (topic, [(index, None if batch is None else bytes(batch)) for index, batch in partitions])
        for topic, partitions in request.topics
    ]
    return request._replace(topics=topics)


def check_records(records: Buffer | None, version: int) -> Buffer:
    """Check the records of a partition against the request's version. Raises ApiError."""
    if records is None:
        raise ApiError(ErrorCode.INVALID_RECORD, "a Produce request must carry one record batch a partition")
    if len(records) >= BATCH_HEADER_SIZE and records[_ATTRIBUTES_LOW_BYTE] & _CODEC_MASK == Compression.ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce version {FIRST_VERSION_WITH_ZSTD}, the request is version {version}",
        )
    return records


def is_transactional(records: Buffer | None) -> bool:
    """Whether the one batch of a partition says that it belongs to a transaction."""
    return (
        records is not None
        and len(records) > _ATTRIBUTES_LOW_BYTE
        and bool(records[_ATTRIBUTES_LOW_BYTE] & _TRANSACTIONAL_BIT)
    )


def named_twice(request: ProduceRequest) -> Steps[set[tuple[str, int]]]:
    """The partitions that the request names more than once."""
    pace = Pace(GLANCES_A_STEP)
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for topic, partitions in request.topics:
        for index, _ in partitions:
            key = (topic, index)
            (repeated if key in seen else seen).add(key)
            if pace.spent():
                yield
        if pace.spent():
            yield
    return repeated


def all_refused(request: ProduceRequest, code: ErrorCode) -> Steps[ProduceResponse]:
    """The answer that refuses each partition with `code`."""
    pace = Pace(GLANCES_A_STEP)
    response: ProduceResponse = []
    for topic, partitions in request.topics:
        results = yield from each(lambda part: refused(part[0], code, code.message), partitions, pace)
        response.append((topic, results))
        if pace.spent():
            yield
    return response
