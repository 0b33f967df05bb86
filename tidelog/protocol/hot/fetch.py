"""Fetch as tuples: what a consumer or a follower asks for, and the answer with the records.

Owns: the values of the request and of the response. Their bytes are those of `protocol.schema`. Invariants: a
partition that is named twice is kept once, with its last values (as in Kafka, which decodes it to a map).
Records are never copied: the broker puts the log's buffers into the list for the socket, and the client takes
slices of the frame. Malformed bytes raise only ProtocolError. The tagged fields cluster_id,
replica_directory_id, high_watermark and snapshot_id are never written.
"""

from collections.abc import Sequence
from operator import attrgetter
from types import GeneratorType
from typing import Any, Final, NamedTuple

from tidelog.protocol.hot.wire import (
    FIRST_BY_ID,
    NO_LEADER,
    NodeEndpoint,
    TopicKey,
    leader_of,
    leader_values,
    node_endpoints_of,
)
from tidelog.protocol.schema import ApiKey, decode_response, encode_request, request_codec, response_codec
from tidelog.protocol.steps import ELEMENTS_PER_STEP, NUMBERS_PER_ELEMENT, Steps, finish
from tidelog.protocol.types import NO_OFFSET, Buffer

_FIRST_WITH_REPLICA_STATE: Final = 15
_NO_REPLICA_EPOCH: Final = -1


class FetchPartition(NamedTuple):
    """The request for one partition; sizes in bytes. An epoch of -1 means that the reader knows none."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


_partition_values: Final = attrgetter(*FetchPartition._fields)


class FetchRequest(NamedTuple):
    """`topics` holds (topic, [FetchPartition]), `forgotten_topics` holds (topic, [partition]). `replica_id`
    is -1 for a consumer; `replica_epoch` names the start of a follower (KIP-903), -1 for none. A
    `session_epoch` of -1 means no fetch session (KIP-227)."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: Sequence[tuple[TopicKey, Sequence[FetchPartition]]]
    forgotten_topics: Sequence[tuple[TopicKey, Sequence[int]]] = ()
    rack_id: str = ""
    replica_epoch: int = _NO_REPLICA_EPOCH


def decode_fetch_request(version: int, body: Buffer) -> FetchRequest:
    """Decode the whole `body`. Each partition is in the result once, with its last values.

    Raises ProtocolError for malformed bytes and for a version that has no codec.
    """
    return finish(decode_fetch_request_steps(version, body))


def decode_fetch_request_steps(version: int, body: Buffer) -> Steps[FetchRequest]:
    """`decode_fetch_request` in steps."""
    key = attrgetter(_topic_field(version))
    values = request_codec(ApiKey.FETCH, version).decode_steps(body)
    if values.__class__ is GeneratorType:
        values = yield from values
    # Not by `Pace`: two calls for each partition would cost more than the rest.
    left = ELEMENTS_PER_STEP
    found: dict[TopicKey, dict[int, FetchPartition]] = {}
    for topic in values.topics:
        partitions = found.setdefault(key(topic), {})
        left -= 1
        for partition in topic.partitions:
            partitions[partition.partition] = FetchPartition._make(_partition_values(partition))
            left -= 1
            if left <= 0:
                left = ELEMENTS_PER_STEP
                yield
        if left <= 0:
            left = ELEMENTS_PER_STEP
            yield
    forgotten: list[tuple[TopicKey, Sequence[int]]] = []
    for topic in values.forgotten_topics_data:
        forgotten.append((key(topic), topic.partitions))
        left -= 1 + len(topic.partitions) // NUMBERS_PER_ELEMENT
        if left <= 0:
            left = ELEMENTS_PER_STEP
            yield
    topics: list[tuple[TopicKey, Sequence[FetchPartition]]] = []
    for name, partitions in found.items():
        topics.append((name, list(partitions.values())))
    reader = values if version < _FIRST_WITH_REPLICA_STATE else values.replica_state
    return FetchRequest(
        reader.replica_id,
        values.max_wait_ms,
        values.min_bytes,
        values.max_bytes,
        values.isolation_level,
        values.session_id,
        values.session_epoch,
        topics,
        forgotten,
        values.rack_id,
        values.replica_state.replica_epoch,
    )


def encode_fetch_request(version: int, request: FetchRequest) -> bytes:
    """The request as bytes. A field that the version lacks is dropped, as in Kafka, if that is harmless.

    Raises ProtocolError if it is not harmless (last_fetched_epoch, forgotten_topics, replica_epoch), for
    values that cannot be encoded and for a version without a codec.
    """
    key = _topic_field(version)
    names = FetchPartition._fields
    topics = [
        {key: topic, "partitions": [dict(zip(names, partition, strict=True)) for partition in partitions]}
        for topic, partitions in request.topics
    ]
    forgotten = [{key: topic, "partitions": indexes} for topic, indexes in request.forgotten_topics]
    values = {**request._asdict(), "topics": topics, "forgotten_topics_data": forgotten}
    del values["forgotten_topics"]
    state = values["replica_state"] = {"replica_epoch": values.pop("replica_epoch")}
    if version >= _FIRST_WITH_REPLICA_STATE:
        state["replica_id"] = values.pop("replica_id")
    return encode_request(ApiKey.FETCH, version, values)


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
    key = _topic_field(version)
    left = ELEMENTS_PER_STEP
    topics = []
    for topic, results in response.topics:
        partitions = []
        left -= 1
        for result in results:
            partitions.append(_result_values(result))
            left -= 1
            if left <= 0:
                left = ELEMENTS_PER_STEP
                yield
        topics.append({key: topic, "partitions": partitions})
        if left <= 0:
            left = ELEMENTS_PER_STEP
            yield
    values: dict[str, Any] = {
        "throttle_time_ms": response.throttle_time_ms,
        "error_code": response.error_code,
        "session_id": response.session_id,
        "responses": topics,
    }
    if response.node_endpoints:
        values["node_endpoints"] = [endpoint._asdict() for endpoint in response.node_endpoints]
    buffers: list[Buffer] = yield from response_codec(ApiKey.FETCH, version).encode_steps(values)
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
    key = attrgetter(_topic_field(version))
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


def _topic_field(version: int) -> str:
    return "topic" if version < FIRST_BY_ID else "topic_id"
