"""FetchResponse as tuples, and its hand-written encoder: every record leaves the broker through it.

Owns: the values of the response, and its bytes. Invariants: the bytes are those of `protocol.schema`, which
decodes them. Records are never copied: the broker puts the log's buffers into the list for the socket, and
the client takes slices of the frame. Malformed bytes raise only ProtocolError. The tagged field snapshot_id
is never written; `with_node_endpoints` adds the endpoints of leaders to the few answers that have some.
"""

import struct
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.hot.wire import (
    FETCH_FORMS,
    MALFORMED,
    NO_LEADER,
    Form,
    NodeEndpoint,
    TopicKey,
    leader_of,
    node_endpoints_of,
    topic_field,
    write_leader,
    write_tags,
)
from tidelog.protocol.schema import APIS, ApiKey, decode_response
from tidelog.protocol.steps import Pace, Steps
from tidelog.protocol.types import NO_OFFSET, Buffer

_FIRST_WITH_LOG_START_OFFSET = 5
_FIRST_WITH_SESSION = 7
_FIRST_WITH_PREFERRED_REPLICA = 11
_FIRST_FLEXIBLE = APIS[ApiKey.FETCH].first_flexible_version

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
    values = decode_response(ApiKey.FETCH, version, body)
    key = attrgetter(topic_field(version, "topic"))
    return FetchResponse(
        values.throttle_time_ms,
        values.error_code,
        values.session_id,
        [(key(topic), [_result(partition) for partition in topic.partitions]) for topic in values.responses],
        node_endpoints_of(values),
    )


def _result(partition: Any) -> FetchPartitionResult:
    aborted = partition.aborted_transactions
    return FetchPartitionResult(
        partition.partition_index,
        partition.error_code,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start_offset,
        None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted],
        partition.preferred_read_replica,
        partition.records,
        leader_of(partition),
        (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset),
    )


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
