"""FetchRequest as tuples: what a consumer or a follower asks for.

Owns: the values of the request. Its bytes are those of `protocol.schema`. Invariants: a partition that is
named twice is kept once, with its last values (as in Kafka, which decodes it to a map). Malformed bytes raise
only ProtocolError. The tagged fields cluster_id, replica_directory_id and high_watermark are never written.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from tidelog.protocol.hot.wire import TopicKey, topic_field
from tidelog.protocol.schema import ApiKey, decode_request_steps, encode_request
from tidelog.protocol.steps import NUMBERS_PER_ELEMENT, Pace, Steps, finish, in_steps
from tidelog.protocol.types import Buffer

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
    values = yield from in_steps(decode_request_steps(ApiKey.FETCH, version, body))
    pace = Pace()
    key = attrgetter(topic_field(version, "topic"))
    topics: dict[TopicKey, dict[int, FetchPartition]] = {}
    for topic in values.topics:
        partitions = topics.setdefault(key(topic), {})
        for partition in topic.partitions:
            partitions[partition.partition] = FetchPartition._make(_partition_values(partition))
            if pace.spent():
                yield
        if pace.spent():
            yield
    forgotten: list[tuple[TopicKey, Sequence[int]]] = []
    for topic in values.forgotten_topics_data:
        forgotten.append((key(topic), topic.partitions))
        if pace.spent(1 + len(topic.partitions) // NUMBERS_PER_ELEMENT):
            yield
    reader = values if version < _FIRST_WITH_REPLICA_STATE else values.replica_state
    return FetchRequest(
        reader.replica_id,
        values.max_wait_ms,
        values.min_bytes,
        values.max_bytes,
        values.isolation_level,
        values.session_id,
        values.session_epoch,
        [(topic, list(partitions.values())) for topic, partitions in topics.items()],
        forgotten,
        values.rack_id,
        values.replica_state.replica_epoch,
    )


def encode_fetch_request(version: int, request: FetchRequest) -> bytes:
    """The request as bytes. A field that the version lacks is dropped, as in Kafka, if that is harmless.

    Raises ProtocolError if it is not harmless (last_fetched_epoch, forgotten_topics, replica_epoch), for
    values that cannot be encoded and for a version without a codec.
    """
    key = topic_field(version, "topic")
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
