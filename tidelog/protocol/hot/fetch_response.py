"""The hand-written codec of FetchResponse: every record leaves the broker through it.

Owns: the values of the response, and its bytes. Invariants: equal, byte for byte and value for value, to the
codec of protocol.schema. Records are never copied:
the broker puts the log's buffers into the list for the socket, and the client takes slices of the frame.
Malformed bytes raise only ProtocolError. The tagged field snapshot_id is skipped when read and never written;
`with_node_endpoints` adds the endpoints of leaders to the few answers that have some.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.hot.wire import (
    FETCH_FORMS,
    FLEXIBLE,
    MALFORMED,
    NO_LEADER,
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
from tidelog.protocol.schema import APIS, MAX_RESPONSE_ELEMENTS, ApiKey
from tidelog.protocol.steps import Pace, Steps
from tidelog.protocol.types import NO_OFFSET, Buffer

_FIRST_WITH_LOG_START_OFFSET = 5
_FIRST_WITH_SESSION = 7
_FIRST_WITH_PREFERRED_REPLICA = 11
_FIRST_FLEXIBLE = APIS[ApiKey.FETCH].first_flexible_version
_FIRST_WITH_NODE_ENDPOINTS = 16

NO_EPOCH_END_OFFSET = (-1, -1)
_DIVERGING_EPOCH_TAG = 0
_CURRENT_LEADER_TAG = 1

_INT32 = struct.Struct(">i")
_INT64_PAIR = struct.Struct(">qq")
# throttle time; then error code and session id
_RESPONSE_WITH_SESSION = struct.Struct(">ihi")
# partition, error code, high watermark, last stable offset, (log start offset)
_RESULT = struct.Struct(">ihqq")
_RESULT_WITH_LOG_START_OFFSET = struct.Struct(">ihqqq")
_DIVERGING_EPOCH = struct.Struct(">iqB")


class FetchPartitionResult(NamedTuple):
    """`records` is one buffer, or several consecutive ones, or None. `aborted_transactions` holds (producer
    id, first offset). `current_leader` is (leader id, leader epoch), `diverging_epoch` is (epoch, end
    offset); (-1, -1) means none."""

    partition_index: int
    error_code: int
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    records: Sequence[Buffer] | Buffer | None = b""
    current_leader: tuple[int, int] = NO_LEADER
    diverging_epoch: tuple[int, int] = NO_EPOCH_END_OFFSET


class FetchResponse(NamedTuple):
    """`topics` holds (topic, [FetchPartitionResult]). After decoding, records are one slice of the body or
    None."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    topics: Sequence[tuple[TopicKey, Sequence[FetchPartitionResult]]]
    node_endpoints: Sequence[NodeEndpoint] = ()


def encode_fetch_response_steps(
    version: int,
    error_code: int,
    session_id: int,
    topics: Sequence[tuple[TopicKey, Sequence[FetchPartitionResult]]],
    throttle_time_ms: int = 0,
) -> Steps[list[Buffer]]:
    """Steps to the response as buffers to write in order. Its record buffers are the caller's, not copies.

    Raises ProtocolError as `encode_produce_response` does.
    """
    form = FETCH_FORMS[version]
    pace = Pace()
    try:
        buffers: list[Buffer] = []
        if version >= _FIRST_WITH_SESSION:
            parts = [_RESPONSE_WITH_SESSION.pack(throttle_time_ms, error_code, session_id)]
        elif session_id:
            raise ProtocolError(f"session_id {session_id} needs version 7 or later")
        else:
            parts = [_INT32.pack(throttle_time_ms)]
        parts.append(form.write_count(len(topics)))
        for topic, results in topics:
            parts += (form.write_topic(topic), form.write_count(len(results)))
            for result in results:
                _append_result_head(version, form, result, parts)
                parts = _append_records(form, result.records, parts, buffers)
                parts.append(_result_tags(version, form, result))
                if pace.spent():
                    yield
            parts.append(form.no_tags)
            if pace.spent():
                yield
        parts.append(form.no_tags)
        tail = b"".join(parts)
        if tail:
            buffers.append(tail)
        return buffers
    except MALFORMED as error:
        raise ProtocolError(f"FetchResponse version {version}: {error}") from None


def decode_fetch_response(version: int, body: Buffer) -> FetchResponse:
    """Decode the whole `body`. Records are slices of `body`, so they are valid as long as `body` is.

    Raises ProtocolError as `decode_produce_response` does.
    """
    form = FETCH_FORMS[version]
    view = memoryview(body)
    try:
        if version >= _FIRST_WITH_SESSION:
            throttle_time_ms, error_code, session_id = _RESPONSE_WITH_SESSION.unpack_from(view)
            position = _RESPONSE_WITH_SESSION.size
        else:
            (throttle_time_ms,) = _INT32.unpack_from(view)
            error_code = session_id = 0
            position = 4
        topics = []
        count, position = read_size(form, view, position, 3, MAX_RESPONSE_ELEMENTS)
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
        endpoints: Sequence[NodeEndpoint] = ()
        if version >= _FIRST_WITH_NODE_ENDPOINTS:
            endpoints, position = read_node_endpoints(view, position)
        else:
            position = form.skip_tags(view, position)
        require_end(view, position)
    except MALFORMED as error:
        raise ProtocolError(f"FetchResponse version {version}: {error}") from None
    return FetchResponse(throttle_time_ms, error_code, session_id, topics, endpoints)


def _append_result_head(version: int, form: Form, result: FetchPartitionResult, parts: list[bytes]) -> None:
    """Append the fields before the records."""
    if version >= _FIRST_WITH_LOG_START_OFFSET:
        parts.append(_RESULT_WITH_LOG_START_OFFSET.pack(*result[:5]))
    else:
        parts.append(_RESULT.pack(*result[:4]))
    aborted = result.aborted_transactions
    if aborted is None:
        parts.append(form.write_count(-1))
    else:
        parts.append(form.write_count(len(aborted)))
        for transaction in aborted:
            parts += (_INT64_PAIR.pack(*transaction), form.no_tags)
    if version >= _FIRST_WITH_PREFERRED_REPLICA:
        parts.append(_INT32.pack(result.preferred_read_replica))
    elif result.preferred_read_replica != -1:
        raise ProtocolError(
            f"preferred_read_replica {result.preferred_read_replica} needs version 11 or later"
        )


def _append_records(
    form: Form, records: Sequence[Buffer] | Buffer | None, parts: list[bytes], buffers: list[Buffer]
) -> list[bytes]:
    """Append the records' length to `parts`, then move them and the records to `buffers`.

    Returns the list for the next fields.
    """
    # In both forms an array's count is written like a length of bytes, also -1 for null.
    if records is None:
        parts.append(form.write_count(-1))
        return parts
    if isinstance(records, bytes | bytearray | memoryview):
        records = (records,)
    size = 0
    for buffer in records:
        size += len(buffer)
    parts.append(form.write_count(size))
    if not size:
        return parts
    buffers.append(b"".join(parts))
    buffers += records
    return []


def _result_tags(version: int, form: Form, result: FetchPartitionResult) -> bytes:
    if result.current_leader == NO_LEADER and result.diverging_epoch == NO_EPOCH_END_OFFSET:
        return form.no_tags
    if version < _FIRST_FLEXIBLE:
        raise ProtocolError("current_leader and diverging_epoch need version 12 or later")
    fields = []
    if result.diverging_epoch != NO_EPOCH_END_OFFSET:
        fields.append((_DIVERGING_EPOCH_TAG, _DIVERGING_EPOCH.pack(*result.diverging_epoch, 0)))
    if result.current_leader != NO_LEADER:
        fields.append((_CURRENT_LEADER_TAG, write_leader(result.current_leader)))
    return write_tags(fields)


def _decode_result(
    version: int, form: Form, body: memoryview, position: int
) -> tuple[FetchPartitionResult, int]:
    log_start_offset: int = NO_OFFSET
    if version >= _FIRST_WITH_LOG_START_OFFSET:
        layout = _RESULT_WITH_LOG_START_OFFSET
        index, error_code, high_watermark, stable_offset, log_start_offset = layout.unpack_from(
            body, position
        )
    else:
        layout = _RESULT
        index, error_code, high_watermark, stable_offset = layout.unpack_from(body, position)
    count, position = form.read_count(body, position + layout.size, _INT64_PAIR.size)
    aborted: list[tuple[int, int]] = []
    for _ in range(count):
        producer_id, first_offset = _INT64_PAIR.unpack_from(body, position)
        aborted.append((producer_id, first_offset))
        position = form.skip_tags(body, position + _INT64_PAIR.size)
    preferred_read_replica = -1
    if version >= _FIRST_WITH_PREFERRED_REPLICA:
        (preferred_read_replica,) = _INT32.unpack_from(body, position)
        position += 4
    records, position = form.read_bytes(body, position)
    leader, diverging_epoch = NO_LEADER, NO_EPOCH_END_OFFSET
    if version >= _FIRST_FLEXIBLE:
        tags, position = read_tags(body, position)
        leader = read_leader(tags.get(_CURRENT_LEADER_TAG))
        diverging_epoch = _read_diverging_epoch(tags.get(_DIVERGING_EPOCH_TAG))
    result = FetchPartitionResult(
        index,
        error_code,
        high_watermark,
        stable_offset,
        log_start_offset,
        None if count < 0 else aborted,
        preferred_read_replica,
        records,
        leader,
        diverging_epoch,
    )
    return result, position


def _read_diverging_epoch(data: memoryview | None) -> tuple[int, int]:
    if data is None:
        return NO_EPOCH_END_OFFSET
    epoch, end_offset, _ = _DIVERGING_EPOCH.unpack_from(data)
    require_end(data, FLEXIBLE.skip_tags(data, _DIVERGING_EPOCH.size - 1))
    return epoch, end_offset
