"""Produce as tuples, and the hand-written codec of a single batch: every record enters the broker through it.

Owns: the values of a ProduceRequest and a ProduceResponse. Invariants: the bytes are those of
`protocol.schema`, value for value (a property test checks it). Records are never copied: decoding returns
slices of the body, encoding returns the caller's own buffers. Malformed bytes raise only ProtocolError.
`with_node_endpoints` adds the endpoints of leaders to the few answers that have some.

A request of one topic with one partition (a single batch) has a fast path. For anything else the fast path
returns None, and `protocol.schema` is used.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.hot.wire import (
    FIRST_BY_ID,
    NO_LEADER,
    NodeEndpoint,
    TopicKey,
    leader_of,
    leader_values,
    node_endpoints_of,
)
from tidelog.protocol.primitives import compact_length, int16_length, int32_length
from tidelog.protocol.schema import (
    APIS,
    ApiKey,
    decode_response,
    encode_response,
    request_codec,
    response_codec,
)
from tidelog.protocol.steps import Pace, Steps, each, finish, in_steps
from tidelog.protocol.types import NO_OFFSET, NO_TIMESTAMP, Buffer

_FIRST_WITH_LOG_START_OFFSET = 5
_FIRST_WITH_RECORD_ERRORS = 8
_FIRST = APIS[ApiKey.PRODUCE].min_version
_FIRST_FLEXIBLE = APIS[ApiKey.PRODUCE].first_flexible_version

_MALFORMED = (ProtocolError, struct.error, IndexError, UnicodeError)
"""The exceptions of the fast path for malformed bytes, or for values that cannot be encoded."""
# Topics repeat in each request. Kafka allows no longer names, so longer ones are not cached.
_CACHED_NAMES = 4096
_LONGEST_CACHED_NAME = 249

_INT32 = struct.Struct(">i")
_ACKS_TIMEOUT = struct.Struct(">hi")
_partition = attrgetter("index", "records")
_record_error = attrgetter("batch_index", "batch_index_error_message")

# transactional_id length, acks, timeout_ms, topic count, topic name length
_ONE_TOPIC = struct.Struct(">hhiih")
_ONE_TOPIC_FLEXIBLE = struct.Struct(">BhiBB")
# partition count, index, records length
_ONE_PARTITION = struct.Struct(">iii")
_ONE_PARTITION_FLEXIBLE = struct.Struct(">BiB")
# One partition's result up to the end of the response: index, error code, base offset, append time, then by
# version the log start offset, empty record errors and null message, the tagged fields of its three structs.
# The throttle time is before the last tagged fields.
_ONE_RESULT = struct.Struct(">ihqqi")
_ONE_RESULT_WITH_LOG_START_OFFSET = struct.Struct(">ihqqqi")
_ONE_RESULT_WITH_RECORD_ERRORS = struct.Struct(">ihqqqihi")
_ONE_RESULT_FLEXIBLE = struct.Struct(">ihqqqBBBBiB")
_THREE_EMPTY_TAGS = memoryview(b"\0\0\0")


class ProduceRequest(NamedTuple):
    """`topics` holds (TopicKey, [(partition index, records or None)]); `acks` is -1, 0 or 1."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    # Any, because a handler turns ids into names before anything else.
    topics: Sequence[tuple[Any, Sequence[tuple[int, Buffer | None]]]]


class ProducePartitionResult(NamedTuple):
    """`record_errors` holds (batch index, message). `current_leader` is (leader id, leader epoch), (-1, -1)
    for none. A field that the version lacks is dropped when written and has its default when read."""

    # Kafka's name. It hides the tuple's method `index`, which is not called on results.
    index: int  # type: ignore[assignment]
    error_code: int
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    log_start_offset: int = NO_OFFSET
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()
    current_leader: tuple[int, int] = NO_LEADER


class ProduceResponse(NamedTuple):
    """`topics` holds (topic, [ProducePartitionResult])."""

    topics: list[tuple[TopicKey, list[ProducePartitionResult]]]
    throttle_time_ms: int
    node_endpoints: Sequence[NodeEndpoint] = ()


def decode_produce_request(version: int, body: memoryview) -> ProduceRequest:
    """Decode the whole `body`. Records are slices of `body`, so they are valid as long as `body` is.

    Raises ProtocolError for malformed bytes and for a version that has no codec.
    """
    return finish(decode_produce_request_steps(version, body))


def decode_produce_request_steps(version: int, body: memoryview) -> ProduceRequest | Steps[ProduceRequest]:
    """The result of `decode_produce_request` or steps to it. `body` must not change until the last step."""
    return _decode_one(version, body) or _decode_request(version, body)


def encode_produce_request(version: int, request: ProduceRequest) -> list[Buffer]:
    """The request as buffers to write in order. Its record buffers are the caller's, not copies.

    Raises ProtocolError for values that cannot be encoded and for a version without a codec.
    """
    return _encode_one_request(version, request) or _encode_request(version, request)


def encode_produce_response(
    version: int,
    topics: Sequence[tuple[Any, Sequence[ProducePartitionResult]]],
    throttle_time_ms: int = 0,
) -> bytes:
    """The response to a produce request. Raises ProtocolError as `encode_produce_request` does."""
    return finish(encode_produce_response_steps(version, topics, throttle_time_ms))


def encode_produce_response_steps(
    version: int,
    topics: Sequence[tuple[Any, Sequence[ProducePartitionResult]]],
    throttle_time_ms: int = 0,
) -> bytes | Steps[bytes]:
    """The result of `encode_produce_response` or steps to it."""
    return _encode_one(version, topics, throttle_time_ms) or _encode_response(
        version, topics, throttle_time_ms
    )


def decode_produce_response(version: int, body: Buffer) -> ProduceResponse:
    """Decode the whole `body`. Raises ProtocolError as `decode_produce_request` does."""
    values = decode_response(ApiKey.PRODUCE, version, body)
    key = attrgetter(_topic_field(version))
    topics = [
        (key(topic), [_result(partition) for partition in topic.partition_responses])
        for topic in values.responses
    ]
    return ProduceResponse(topics, values.throttle_time_ms, node_endpoints_of(values))


def _result(partition: Any) -> ProducePartitionResult:
    return ProducePartitionResult(
        partition.index,
        partition.error_code,
        partition.base_offset,
        partition.log_append_time_ms,
        partition.log_start_offset,
        partition.error_message,
        tuple([_record_error(error) for error in partition.record_errors]),
        leader_of(partition),
    )


def _decode_one(version: int, body: memoryview) -> ProduceRequest | None:
    """A request without a transaction, with one topic by name and one partition with records; None if it may
    be another one."""
    if not _FIRST <= version < FIRST_BY_ID:
        return None
    try:
        if version < _FIRST_FLEXIBLE:
            transactional, acks, timeout_ms, topics, name_size = _ONE_TOPIC.unpack_from(body)
            start = 14 + name_size
            if transactional != -1 or topics != 1 or name_size < 0:
                return None
            name = str(body[14:start], "utf-8")
            partitions, index, size = _ONE_PARTITION.unpack_from(body, start)
            start += 12
            if partitions != 1 or size < 0 or start + size != len(body):
                return None
            records = body[start:]
        else:
            transactional, acks, timeout_ms, topics, name_size = _ONE_TOPIC_FLEXIBLE.unpack_from(body)
            start = 8 + name_size
            if transactional != 0 or topics != 2 or not 0 < name_size < 128:
                return None
            name = str(body[9:start], "utf-8")
            partitions, index, size = _ONE_PARTITION_FLEXIBLE.unpack_from(body, start)
            start += 6
            if size > 127:
                more = body[start]
                size += (more << 7) - 128
                start += 1
                if more > 127:
                    more = body[start]
                    size += (more << 14) - 16384
                    start += 1
                    if more > 127:
                        return None
            end = start + size - 1
            if partitions != 2 or size == 0 or body[end:] != _THREE_EMPTY_TAGS:
                return None
            records = body[start:end]
    except _MALFORMED:
        return None
    return tuple.__new__(ProduceRequest, (None, acks, timeout_ms, [(name, [(index, records)])]))


def _decode_request(version: int, body: memoryview) -> Steps[ProduceRequest]:
    values = yield from in_steps(request_codec(ApiKey.PRODUCE, version).decode_steps(body))
    pace = Pace()
    key = attrgetter(_topic_field(version))
    topics = []
    for topic in values.topic_data:
        topics.append((key(topic), (yield from each(_partition, topic.partition_data, pace))))
        if pace.spent():
            yield
    return ProduceRequest(values.transactional_id, values.acks, values.timeout_ms, topics)


@lru_cache(_CACHED_NAMES)
def _one_request_prefix(version: int, acks: int, timeout_ms: int, name: str, index: int) -> bytes:
    """The fields before the length of the records in a request without a transaction."""
    no_transaction = b"\xff\xff" if version < _FIRST_FLEXIBLE else b"\0"
    head = no_transaction + _ACKS_TIMEOUT.pack(acks, timeout_ms)
    return head + one_topic_prefix(version, name) + _INT32.pack(index)


def _encode_one_request(version: int, request: ProduceRequest) -> list[Buffer] | None:
    """A request as `_decode_one` reads it; None for any other."""
    transactional_id, acks, timeout_ms, topics = request
    if version >= FIRST_BY_ID or transactional_id is not None or len(topics) != 1:
        return None
    topic, partitions = topics[0]
    if len(partitions) != 1 or len(topic) > _LONGEST_CACHED_NAME:
        return None
    index, records = partitions[0]
    if not records:
        return None
    try:
        head = _one_request_prefix(version, acks, timeout_ms, topic, index)
        if version < _FIRST_FLEXIBLE:
            return [head + int32_length(len(records)), records]
        return [head + compact_length(len(records)), records, _THREE_EMPTY_TAGS]
    except _MALFORMED:
        return None


def _encode_request(version: int, request: ProduceRequest) -> list[Buffer]:
    key = _topic_field(version)
    topics = [
        {
            key: topic,
            "partition_data": [{"index": index, "records": records} for index, records in partitions],
        }
        for topic, partitions in request.topics
    ]
    values = {
        "transactional_id": request.transactional_id,
        "acks": request.acks,
        "timeout_ms": request.timeout_ms,
        "topic_data": topics,
    }
    return request_codec(ApiKey.PRODUCE, version).encode_buffers(values)


def one_topic_prefix(version: int, topic: Any) -> bytes:
    """One topic with one partition, up to the fields of the partition."""
    return _named_topic_prefix(version, topic) if version < FIRST_BY_ID else b"\2" + topic.bytes + b"\2"


@lru_cache(_CACHED_NAMES)
def _named_topic_prefix(version: int, topic: str) -> bytes:
    name = topic.encode()
    if version < _FIRST_FLEXIBLE:
        return int32_length(1) + int16_length(len(name)) + name + int32_length(1)
    return b"\2" + compact_length(len(name)) + name + b"\2"


def _encode_one(
    version: int, topics: Sequence[tuple[Any, Sequence[ProducePartitionResult]]], throttle_time_ms: int
) -> bytes | None:
    """A response with one topic and one partition, without error message, record errors or leader; None for
    any other."""
    if len(topics) != 1 or len(topics[0][1]) != 1:
        return None
    topic, (result,) = topics[0]
    *numbers, message, record_errors, leader = result
    if message is not None or record_errors or leader != NO_LEADER:
        return None
    if isinstance(topic, str) and len(topic) > _LONGEST_CACHED_NAME:
        return None
    try:
        prefix = one_topic_prefix(version, topic)
        if version >= _FIRST_FLEXIBLE:
            return prefix + _ONE_RESULT_FLEXIBLE.pack(*numbers, 1, 0, 0, 0, throttle_time_ms, 0)
        if version >= _FIRST_WITH_RECORD_ERRORS:
            return prefix + _ONE_RESULT_WITH_RECORD_ERRORS.pack(*numbers, 0, -1, throttle_time_ms)
        if version >= _FIRST_WITH_LOG_START_OFFSET:
            return prefix + _ONE_RESULT_WITH_LOG_START_OFFSET.pack(*numbers, throttle_time_ms)
        return prefix + _ONE_RESULT.pack(*numbers[:4], throttle_time_ms)
    except _MALFORMED:
        return None


def _encode_response(
    version: int, topics: Sequence[tuple[Any, Sequence[ProducePartitionResult]]], throttle_time_ms: int
) -> Steps[bytes]:
    pace = Pace()
    key = _topic_field(version)
    responses = []
    for topic, results in topics:
        values = yield from each(_result_values, results, pace)
        named = topic if version < FIRST_BY_ID else UUID(bytes=topic.bytes)
        responses.append({key: named, "partition_responses": values})
        if pace.spent():
            yield
    answer = {"responses": responses, "throttle_time_ms": throttle_time_ms}
    encoded: bytes = yield from response_codec(ApiKey.PRODUCE, version).encode_steps(answer)
    return encoded


def _result_values(result: ProducePartitionResult) -> dict[str, Any]:
    index, error_code, base_offset, append_time_ms, log_start_offset, message, record_errors, leader = result
    values: dict[str, Any] = {
        "index": index,
        "error_code": error_code,
        "base_offset": base_offset,
        "log_append_time_ms": append_time_ms,
        "log_start_offset": log_start_offset,
        "error_message": message,
    }
    if leader != NO_LEADER:
        values["current_leader"] = leader_values(leader)
    if record_errors:
        names = "batch_index", "batch_index_error_message"
        values["record_errors"] = [dict(zip(names, error, strict=True)) for error in record_errors]
    return values


def with_node_endpoints(version: int, body: bytes, endpoints: Sequence[NodeEndpoint]) -> list[Buffer]:
    """An encoded response, which ends with the throttle time and no tagged fields, with the endpoints of
    leaders in place of none. The last buffer begins with the throttle time."""
    values = {"responses": [], "node_endpoints": [endpoint._asdict() for endpoint in endpoints]}
    only_endpoints = encode_response(ApiKey.PRODUCE, version, values)
    at = len(body) - _INT32.size - 1
    return [body[:at], body[at:-1] + only_endpoints[1 + _INT32.size :]]


def _topic_field(version: int) -> str:
    return "name" if version < FIRST_BY_ID else "topic_id"
