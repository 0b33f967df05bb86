"""The hand-written codec of Produce: every record enters the broker through it.

Owns: the values of a ProduceRequest and a ProduceResponse, and their bytes. Invariants: equal, byte for byte
and value for value, to the codec of protocol.schema (a property test checks it). Records are never copied:
decoding returns slices of the body, encoding returns the caller's own buffers. Malformed bytes raise only
ProtocolError. `with_node_endpoints` adds the endpoints of leaders to the few answers that have some.

A request of one topic with one partition (a single batch) has a fast path. For anything else the fast path
returns None, and the general path is used.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.hot.wire import (
    BY_ID,
    CACHED_NAMES,
    CLASSIC,
    FIRST_BY_ID,
    FLEXIBLE,
    LONGEST_CACHED_NAME,
    MALFORMED,
    NO_LEADER,
    PRODUCE_FORMS,
    TAG_BYTES_PER_ELEMENT,
    Form,
    NodeEndpoint,
    TopicKey,
    read_leader,
    read_node_endpoints,
    read_size,
    read_tags,
    require_end,
    write_leader,
    write_tags,
)
from tidelog.protocol.schema import APIS, MAX_REQUEST_ELEMENTS, MAX_RESPONSE_ELEMENTS, ApiKey
from tidelog.protocol.steps import Pace, Steps, finish
from tidelog.protocol.types import NO_OFFSET, NO_TIMESTAMP, Buffer

_FIRST_WITH_LOG_START_OFFSET = 5
_FIRST_WITH_RECORD_ERRORS = 8
_FIRST_FLEXIBLE = APIS[ApiKey.PRODUCE].first_flexible_version
_FIRST_WITH_CURRENT_LEADER = 10

_INT32 = struct.Struct(">i")
_ACKS_TIMEOUT = struct.Struct(">hi")
_RESULT = struct.Struct(">ihqq")
_INT64 = struct.Struct(">q")

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
# No record errors, a null message, no tagged fields of the partition nor of the topic.
_ALL_EMPTY = [1, 0, 0, 0]
_CURRENT_LEADER_TAG = 0
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
    form = PRODUCE_FORMS[version]
    return _decode_one(form, body) or _decode_request(version, form, body)


def encode_produce_request(version: int, request: ProduceRequest) -> list[Buffer]:
    """The request as buffers to write in order. Its record buffers are the caller's, not copies.

    Raises ProtocolError for values that cannot be encoded and for a version without a codec.
    """
    form = PRODUCE_FORMS[version]
    try:
        return _encode_one_request(version, form, request) or _encode_request(form, request)
    except MALFORMED as error:
        raise ProtocolError(f"ProduceRequest version {version}: {error}") from None


def encode_produce_response(
    version: int,
    topics: Sequence[tuple[TopicKey, Sequence[ProducePartitionResult]]],
    throttle_time_ms: int = 0,
) -> bytes:
    """The response to a produce request. Raises ProtocolError as `encode_produce_request` does."""
    return finish(encode_produce_response_steps(version, topics, throttle_time_ms))


def encode_produce_response_steps(
    version: int,
    topics: Sequence[tuple[TopicKey, Sequence[ProducePartitionResult]]],
    throttle_time_ms: int = 0,
) -> bytes | Steps[bytes]:
    """The result of `encode_produce_response` or steps to it."""
    form = PRODUCE_FORMS[version]
    try:
        return _encode_one(version, topics, throttle_time_ms) or _encode_response(
            version, form, topics, throttle_time_ms
        )
    except MALFORMED as error:
        raise ProtocolError(f"ProduceResponse version {version}: {error}") from None


def decode_produce_response(version: int, body: Buffer) -> ProduceResponse:
    """Decode the whole `body`. Raises ProtocolError as `decode_produce_request` does."""
    form = PRODUCE_FORMS[version]
    view = memoryview(body)
    response = _decode_one_response(view) if form is FLEXIBLE else None
    if response is not None:
        return response
    try:
        topics: list[tuple[TopicKey, list[ProducePartitionResult]]] = []
        count, position = read_size(form, view, 0, 3, MAX_RESPONSE_ELEMENTS)
        remaining = MAX_RESPONSE_ELEMENTS - count
        for _ in range(count):
            topic, position = form.read_topic(view, position)
            results = []
            partitions, position = read_size(form, view, position, _RESULT.size, remaining)
            remaining -= partitions
            for _ in range(partitions):
                result, position = _decode_result(version, form, view, position)
                results.append(result)
            position = form.skip_tags(view, position)
            topics.append((topic, results))
        (throttle_time_ms,) = _INT32.unpack_from(view, position)
        position += 4
        endpoints: Sequence[NodeEndpoint] = ()
        if version >= _FIRST_WITH_CURRENT_LEADER:
            endpoints, position = read_node_endpoints(view, position)
        else:
            position = form.skip_tags(view, position)
        require_end(view, position)
    except MALFORMED as error:
        raise ProtocolError(f"ProduceResponse version {version}: {error}") from None
    return ProduceResponse(topics, throttle_time_ms, endpoints)


def _decode_one(form: Form, body: memoryview) -> ProduceRequest | None:
    """A request without a transaction, with one topic by name and one partition with records; None if it may
    be another one."""
    if form is BY_ID:
        return None
    try:
        if form is CLASSIC:
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
    except MALFORMED:
        return None
    return tuple.__new__(ProduceRequest, (None, acks, timeout_ms, [(name, [(index, records)])]))


def _decode_request(version: int, form: Form, body: memoryview) -> Steps[ProduceRequest]:
    pace = Pace()
    try:
        transactional_id, position = form.read_string(body, 0)
        acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, position)
        count, position = read_size(form, body, position + _ACKS_TIMEOUT.size, 3, MAX_REQUEST_ELEMENTS)
        remaining = MAX_REQUEST_ELEMENTS - count
        topics: list[tuple[TopicKey, Sequence[tuple[int, Buffer | None]]]] = []
        for _ in range(count):
            topic, position = form.read_topic(body, position)
            partitions: list[tuple[int, Buffer | None]] = []
            partition_count, position = read_size(form, body, position, 5, remaining)
            remaining -= partition_count
            for _ in range(partition_count):
                (index,) = _INT32.unpack_from(body, position)
                records, end = form.read_bytes(body, position + 4)
                position = form.skip_tags(body, end)
                partitions.append((index, records))
                if pace.spent(1 + (position - end) // TAG_BYTES_PER_ELEMENT):
                    yield
            end, position = position, form.skip_tags(body, position)
            topics.append((topic, partitions))
            if pace.spent(1 + (position - end) // TAG_BYTES_PER_ELEMENT):
                yield
        form.skip_tags(body, position)
    except MALFORMED as error:
        raise ProtocolError(f"ProduceRequest version {version}: {error}") from None
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


@lru_cache(CACHED_NAMES)
def _one_request_prefix(version: int, acks: int, timeout_ms: int, name: str, index: int) -> bytes:
    """The fields before the length of the records in a request without a transaction."""
    form = PRODUCE_FORMS[version]
    start = form.write_string(None) + _ACKS_TIMEOUT.pack(acks, timeout_ms) + form.write_count(1)
    return start + form.write_name(name) + form.write_count(1) + _INT32.pack(index)


def _encode_one_request(version: int, form: Form, request: ProduceRequest) -> list[Buffer] | None:
    """A request as `_decode_one` reads it; None for any other."""
    transactional_id, acks, timeout_ms, topics = request
    if transactional_id is not None or len(topics) != 1:
        return None
    topic, partitions = topics[0]
    if len(partitions) != 1 or not isinstance(topic, str) or len(topic) > LONGEST_CACHED_NAME:
        return None
    index, records = partitions[0]
    if not records:
        return None
    head = _one_request_prefix(version, acks, timeout_ms, topic, index) + form.write_count(len(records))
    return [head, records] if form is CLASSIC else [head, records, _THREE_EMPTY_TAGS]


def _encode_request(form: Form, request: ProduceRequest) -> list[Buffer]:
    buffers: list[Buffer] = []
    parts = [
        form.write_string(request.transactional_id),
        _ACKS_TIMEOUT.pack(request.acks, request.timeout_ms),
        form.write_count(len(request.topics)),
    ]
    for topic, partitions in request.topics:
        parts += (form.write_topic(topic), form.write_count(len(partitions)))
        for index, records in partitions:
            # In both forms an array's count is written like a length of bytes, also -1 for null.
            parts += (_INT32.pack(index), form.write_count(-1 if records is None else len(records)))
            if records:
                buffers += (b"".join(parts), records)
                parts = []
            parts.append(form.no_tags)
        parts.append(form.no_tags)
    parts.append(form.no_tags)
    tail = b"".join(parts)
    if tail:
        buffers.append(tail)
    return buffers


@lru_cache(CACHED_NAMES)
def _one_topic_prefix(name: str) -> bytes:
    return CLASSIC.write_count(1) + CLASSIC.write_string(name) + CLASSIC.write_count(1)


@lru_cache(CACHED_NAMES)
def _one_topic_prefix_flexible(name: str) -> bytes:
    return FLEXIBLE.write_count(1) + FLEXIBLE.write_string(name) + FLEXIBLE.write_count(1)


def _encode_one(
    version: int, topics: Sequence[tuple[TopicKey, Sequence[ProducePartitionResult]]], throttle_time_ms: int
) -> bytes | None:
    """A response with one topic by name and one partition, without error message, record errors or leader;
    None for any other."""
    if version >= FIRST_BY_ID or len(topics) != 1 or len(topics[0][1]) != 1:
        return None
    topic, (result,) = topics[0]
    name = str(topic)
    index, error_code, base_offset, append_time_ms, log_start_offset, message, record_errors, leader = result
    if message is not None or record_errors or leader != NO_LEADER or len(name) > LONGEST_CACHED_NAME:
        return None
    if version >= _FIRST_FLEXIBLE:
        return _one_topic_prefix_flexible(name) + _ONE_RESULT_FLEXIBLE.pack(
            index, error_code, base_offset, append_time_ms, log_start_offset, 1, 0, 0, 0, throttle_time_ms, 0
        )
    prefix = _one_topic_prefix(name)
    if version >= _FIRST_WITH_RECORD_ERRORS:
        return prefix + _ONE_RESULT_WITH_RECORD_ERRORS.pack(
            index, error_code, base_offset, append_time_ms, log_start_offset, 0, -1, throttle_time_ms
        )
    if version >= _FIRST_WITH_LOG_START_OFFSET:
        return prefix + _ONE_RESULT_WITH_LOG_START_OFFSET.pack(
            index, error_code, base_offset, append_time_ms, log_start_offset, throttle_time_ms
        )
    return prefix + _ONE_RESULT.pack(index, error_code, base_offset, append_time_ms, throttle_time_ms)


def _decode_one_response(body: memoryview) -> ProduceResponse | None:
    """A flexible response as `_encode_one` writes it; None if it may be another one."""
    try:
        name_size = body[1]
        start = name_size + 2
        if body[0] != 2 or not 0 < name_size < 128 or len(body) != start + _ONE_RESULT_FLEXIBLE.size:
            return None
        partitions = body[start - 1]
        result = _ONE_RESULT_FLEXIBLE.unpack_from(body, start)
        index, error_code, base_offset, append_time_ms, log_start_offset, *empty, throttle_time_ms, tags = (
            result
        )
        if partitions != 2 or empty != _ALL_EMPTY or tags:
            return None
        name = str(body[2 : start - 1], "utf-8")
    except MALFORMED:
        return None
    one = ProducePartitionResult(index, error_code, base_offset, append_time_ms, log_start_offset)
    return ProduceResponse([(name, [one])], throttle_time_ms)


def _encode_response(
    version: int,
    form: Form,
    topics: Sequence[tuple[TopicKey, Sequence[ProducePartitionResult]]],
    throttle_time_ms: int,
) -> Steps[bytes]:
    pace = Pace()
    try:
        parts = [form.write_count(len(topics))]
        for topic, results in topics:
            parts += (form.write_topic(topic), form.write_count(len(results)))
            for result in results:
                parts += _encode_result(version, form, result)
                if pace.spent():
                    yield
            parts.append(form.no_tags)
            if pace.spent():
                yield
        parts += (_INT32.pack(throttle_time_ms), form.no_tags)
    except MALFORMED as error:
        raise ProtocolError(f"ProduceResponse version {version}: {error}") from None
    return b"".join(parts)


def _encode_result(version: int, form: Form, result: ProducePartitionResult) -> list[bytes]:
    parts = [_RESULT.pack(result.index, result.error_code, result.base_offset, result.log_append_time_ms)]
    if version >= _FIRST_WITH_LOG_START_OFFSET:
        parts.append(_INT64.pack(result.log_start_offset))
    if version >= _FIRST_WITH_RECORD_ERRORS:
        parts.append(form.write_count(len(result.record_errors)))
        for batch_index, message in result.record_errors:
            parts += (_INT32.pack(batch_index), form.write_string(message), form.no_tags)
        parts.append(form.write_string(result.error_message))
    if result.current_leader == NO_LEADER:
        parts.append(form.no_tags)
    elif version >= _FIRST_WITH_CURRENT_LEADER:
        parts.append(write_tags([(_CURRENT_LEADER_TAG, write_leader(result.current_leader))]))
    else:
        raise ProtocolError(f"current_leader {result.current_leader} needs version 10 or later")
    return parts


def _decode_result(
    version: int, form: Form, body: memoryview, position: int
) -> tuple[ProducePartitionResult, int]:
    index, error_code, base_offset, log_append_time_ms = _RESULT.unpack_from(body, position)
    position += _RESULT.size
    log_start_offset: int = NO_OFFSET
    error_message = None
    record_errors: list[tuple[int, str | None]] = []
    leader = NO_LEADER
    if version >= _FIRST_WITH_LOG_START_OFFSET:
        (log_start_offset,) = _INT64.unpack_from(body, position)
        position += 8
    if version >= _FIRST_WITH_RECORD_ERRORS:
        count, position = read_size(form, body, position, 5, MAX_RESPONSE_ELEMENTS)
        for _ in range(count):
            (batch_index,) = _INT32.unpack_from(body, position)
            message, position = form.read_string(body, position + 4)
            position = form.skip_tags(body, position)
            record_errors.append((batch_index, message))
        error_message, position = form.read_string(body, position)
    if version >= _FIRST_WITH_CURRENT_LEADER and body[position]:
        tags, position = read_tags(body, position)
        leader = read_leader(tags.get(_CURRENT_LEADER_TAG))
    else:
        position = form.skip_tags(body, position)
    result = ProducePartitionResult(
        index,
        error_code,
        base_offset,
        log_append_time_ms,
        log_start_offset,
        error_message,
        tuple(record_errors),
        leader,
    )
    return result, position
