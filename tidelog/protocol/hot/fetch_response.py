"""FetchResponse as tuples: every record leaves the broker through it.

Owns: the values of the response. Its bytes are those of `protocol.schema`. Invariants: records are never
copied: the broker puts the log's buffers into the list for the socket, and the client takes slices of the
frame. Malformed bytes raise only ProtocolError. The tagged field snapshot_id is never written.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from tidelog.protocol.hot.wire import (
    NO_LEADER,
    NodeEndpoint,
    TopicKey,
    leader_of,
    leader_values,
    node_endpoints_of,
    topic_field,
)
from tidelog.protocol.schema import ApiKey, decode_response, encode_response_steps
from tidelog.protocol.steps import Pace, Steps
from tidelog.protocol.types import NO_OFFSET, Buffer

NO_EPOCH_END_OFFSET = (-1, -1)


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


def encode_fetch_response_steps(version: int, response: FetchResponse) -> Steps[list[Buffer]]:
    """Steps to the response as buffers to write in order. Its record buffers are the caller's, not copies.

    Raises ProtocolError as `encode_produce_response` does.
    """
    pace = Pace()
    key = topic_field(version, "topic")
    topics = []
    for topic, results in response.topics:
        partitions = []
        for result in results:
            partitions.append(_result_values(result))
            if pace.spent():
                yield
        topics.append({key: topic, "partitions": partitions})
        if pace.spent():
            yield
    values = {
        "throttle_time_ms": response.throttle_time_ms,
        "error_code": response.error_code,
        "session_id": response.session_id,
        "responses": topics,
        "node_endpoints": [endpoint._asdict() for endpoint in response.node_endpoints],
    }
    buffers: list[Buffer] = yield from encode_response_steps(ApiKey.FETCH, version, values)
    return buffers


def _result_values(result: FetchPartitionResult) -> dict[str, Any]:
    index, code, high_watermark, stable, start, aborted, preferred, records, leader, diverging = result
    values: dict[str, Any] = {
        "partition_index": index,
        "error_code": code,
        "high_watermark": high_watermark,
        "last_stable_offset": stable,
        "log_start_offset": start,
        "aborted_transactions": aborted,
        "preferred_read_replica": preferred,
        "records": records,
    }
    if aborted:
        names = "producer_id", "first_offset"
        values["aborted_transactions"] = [dict(zip(names, each, strict=True)) for each in aborted]
    if leader != NO_LEADER:
        values["current_leader"] = leader_values(leader)
    if diverging != NO_EPOCH_END_OFFSET:
        values["diverging_epoch"] = dict(zip(("epoch", "end_offset"), diverging, strict=True))
    return values


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
