"""The hand-written codec of FetchRequest.

Owns: the values of the request of a consumer or follower, and its bytes.
Invariants: equal, byte for byte and value for value, to the codec of protocol.schema, except that a partition
that is named twice is kept once (as in Kafka, which decodes it to a map). Malformed bytes raise only
ProtocolError. The tagged fields cluster_id, replica_directory_id and high_watermark are skipped when read and
never written.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.hot.wire import (
    FETCH_FORMS,
    FLEXIBLE,
    MALFORMED,
    TAG_BYTES_PER_ELEMENT,
    Form,
    TopicKey,
    read_name,
    read_size,
    read_tags,
    require_end,
    write_tags,
)
from tidelog.protocol.schema import APIS, MAX_REQUEST_ELEMENTS, ApiKey
from tidelog.protocol.steps import NUMBERS_PER_ELEMENT, Pace, Steps, finish
from tidelog.protocol.types import NO_LEADER_EPOCH, NO_OFFSET, Buffer

_new_tuple = tuple.__new__
_FIRST_WITH_LOG_START_OFFSET = 5
_FIRST_WITH_SESSION = 7
_FIRST_WITH_LEADER_EPOCH = 9
_FIRST_WITH_RACK = 11
_FIRST_WITH_REPLICA_STATE = 15
_FIRST_FLEXIBLE = APIS[ApiKey.FETCH].first_flexible_version

_REPLICA_STATE_TAG = 1
_NO_REPLICA = -1
_NO_REPLICA_EPOCH = -1

_REPLICA_ID = struct.Struct(">i")
# max wait, min bytes, max bytes, isolation level; then session id and epoch
_REQUEST = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_NO_SESSION = (0, -1)
# partition, (leader epoch), fetch offset, (last fetched epoch), (log start offset), max bytes
_PARTITION = struct.Struct(">iqi")
_PARTITION_WITH_LOG_START_OFFSET = struct.Struct(">iqqi")
_PARTITION_WITH_LEADER_EPOCH = struct.Struct(">iiqqi")
_PARTITION_FLEXIBLE = struct.Struct(">iiqiqi")
# replica id, replica epoch, no tagged fields
_REPLICA_STATE = struct.Struct(">iqB")


class FetchPartition(NamedTuple):
    """The request for one partition; sizes in bytes. An epoch of -1 means that the reader knows none."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


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
    """`decode_fetch_request` in steps. `body` must not change until the last step."""
    form = FETCH_FORMS[version]
    try:
        return (yield from _decode_request(version, form, memoryview(body)))
    except MALFORMED as error:
        raise ProtocolError(f"FetchRequest version {version}: {error}") from None


def encode_fetch_request(version: int, request: FetchRequest) -> bytes:
    """The request as bytes. A field that the version lacks is dropped, as in Kafka, if that is harmless.

    Raises ProtocolError if it is not harmless (last_fetched_epoch, forgotten_topics, replica_epoch), for
    values that cannot be encoded and for a version without a codec.
    """
    form = FETCH_FORMS[version]
    try:
        return b"".join(_encode_request(version, form, request))
    except MALFORMED as error:
        raise ProtocolError(f"FetchRequest version {version}: {error}") from None


def _decode_request(version: int, form: Form, body: memoryview) -> Steps[FetchRequest]:
    pace = Pace()
    replica_id, replica_epoch, position = _NO_REPLICA, _NO_REPLICA_EPOCH, 0
    if version < _FIRST_WITH_REPLICA_STATE:
        (replica_id,) = _REPLICA_ID.unpack_from(body)
        position = _REPLICA_ID.size
    limits = _REQUEST.unpack_from(body, position)
    position += _REQUEST.size
    session = _NO_SESSION
    if version >= _FIRST_WITH_SESSION:
        session = _SESSION.unpack_from(body, position)
        position += _SESSION.size
    topics: dict[TopicKey, dict[int, FetchPartition]] = {}
    count, position = read_size(form, body, position, 3, MAX_REQUEST_ELEMENTS)
    remaining = MAX_REQUEST_ELEMENTS - count
    for _ in range(count):
        topic, position = form.read_topic(body, position)
        partitions = topics.setdefault(topic, {})
        partition_count, position = read_size(form, body, position, _PARTITION.size, remaining)
        remaining -= partition_count
        for _ in range(partition_count):
            partition, end = _decode_partition(version, body, position)
            position = form.skip_tags(body, end)
            partitions[partition.partition] = partition
            if pace.spent(1 + (position - end) // TAG_BYTES_PER_ELEMENT):
                yield
        end, position = position, form.skip_tags(body, position)
        if pace.spent(1 + (position - end) // TAG_BYTES_PER_ELEMENT):
            yield
    forgotten: list[tuple[TopicKey, Sequence[int]]] = []
    if version >= _FIRST_WITH_SESSION:
        count, position = read_size(form, body, position, 3, remaining)
        remaining -= count
        for _ in range(count):
            topic, position = form.read_topic(body, position)
            size, position = read_size(form, body, position, 4, remaining)
            remaining -= size
            indexes = struct.unpack_from(f">{size}i", body, position)
            end = position + 4 * size
            position = form.skip_tags(body, end)
            forgotten.append((topic, list(indexes)))
            if pace.spent(1 + size // NUMBERS_PER_ELEMENT + (position - end) // TAG_BYTES_PER_ELEMENT):
                yield
    rack_id = ""
    if version >= _FIRST_WITH_RACK:
        rack_id, position = read_name(form, body, position)
    if version >= _FIRST_WITH_REPLICA_STATE and body[position]:
        tags, _ = read_tags(body, position)
        replica_id, replica_epoch = _read_replica_state(tags.get(_REPLICA_STATE_TAG))
    else:
        form.skip_tags(body, position)
    wanted = [(topic, list(partitions.values())) for topic, partitions in topics.items()]
    row = replica_id, *limits, *session, wanted, forgotten, rack_id, replica_epoch
    return _new_tuple(FetchRequest, row)


def _read_replica_state(state: memoryview | None) -> tuple[int, int]:
    """The replica's id and epoch."""
    if state is None:
        return _NO_REPLICA, _NO_REPLICA_EPOCH
    replica_id, replica_epoch, _ = _REPLICA_STATE.unpack_from(state)
    require_end(state, FLEXIBLE.skip_tags(state, _REPLICA_STATE.size - 1))
    return replica_id, replica_epoch


def _decode_partition(version: int, body: memoryview, position: int) -> tuple[FetchPartition, int]:
    if version >= _FIRST_FLEXIBLE:
        fields = _PARTITION_FLEXIBLE.unpack_from(body, position)
        return _new_tuple(FetchPartition, fields), position + _PARTITION_FLEXIBLE.size
    leader_epoch: int = NO_LEADER_EPOCH
    log_start_offset: int = NO_OFFSET
    if version >= _FIRST_WITH_LEADER_EPOCH:
        layout = _PARTITION_WITH_LEADER_EPOCH
        index, leader_epoch, offset, log_start_offset, max_bytes = layout.unpack_from(body, position)
    elif version >= _FIRST_WITH_LOG_START_OFFSET:
        layout = _PARTITION_WITH_LOG_START_OFFSET
        index, offset, log_start_offset, max_bytes = layout.unpack_from(body, position)
    else:
        layout = _PARTITION
        index, offset, max_bytes = layout.unpack_from(body, position)
    fields = index, leader_epoch, offset, NO_LEADER_EPOCH, log_start_offset, max_bytes
    return _new_tuple(FetchPartition, fields), position + layout.size


def _encode_request(version: int, form: Form, request: FetchRequest) -> list[bytes]:
    parts = [_REQUEST.pack(*request[1:5])]
    if version < _FIRST_WITH_REPLICA_STATE:
        parts.insert(0, _REPLICA_ID.pack(request.replica_id))
    if version >= _FIRST_WITH_SESSION:
        parts.append(_SESSION.pack(request.session_id, request.session_epoch))
    elif request.forgotten_topics:
        raise ProtocolError("forgotten_topics needs version 7 or later")
    parts.append(form.write_count(len(request.topics)))
    for topic, partitions in request.topics:
        parts += (form.write_topic(topic), form.write_count(len(partitions)))
        for partition in partitions:
            parts += (_encode_partition(version, partition), form.no_tags)
        parts.append(form.no_tags)
    if version >= _FIRST_WITH_SESSION:
        parts.append(form.write_count(len(request.forgotten_topics)))
        for topic, indexes in request.forgotten_topics:
            packed = struct.pack(f">{len(indexes)}i", *indexes)
            parts += (form.write_topic(topic), form.write_count(len(indexes)), packed, form.no_tags)
    if version >= _FIRST_WITH_RACK:
        parts.append(form.write_string(request.rack_id))
    state = request.replica_id, request.replica_epoch
    if version < _FIRST_WITH_REPLICA_STATE and request.replica_epoch != _NO_REPLICA_EPOCH:
        raise ProtocolError("replica_epoch needs version 15 or later")
    if version >= _FIRST_WITH_REPLICA_STATE and state != (_NO_REPLICA, _NO_REPLICA_EPOCH):
        parts.append(write_tags([(_REPLICA_STATE_TAG, _REPLICA_STATE.pack(*state, 0))]))
    else:
        parts.append(form.no_tags)
    return parts


def _encode_partition(version: int, partition: FetchPartition) -> bytes:
    if version >= _FIRST_FLEXIBLE:
        return _PARTITION_FLEXIBLE.pack(*partition)
    index, leader_epoch, offset, last_fetched_epoch, log_start_offset, max_bytes = partition
    if last_fetched_epoch != NO_LEADER_EPOCH:
        raise ProtocolError(f"last_fetched_epoch {last_fetched_epoch} needs version 12 or later")
    if version >= _FIRST_WITH_LEADER_EPOCH:
        return _PARTITION_WITH_LEADER_EPOCH.pack(index, leader_epoch, offset, log_start_offset, max_bytes)
    if version >= _FIRST_WITH_LOG_START_OFFSET:
        return _PARTITION_WITH_LOG_START_OFFSET.pack(index, offset, log_start_offset, max_bytes)
    return _PARTITION.pack(index, offset, max_bytes)
