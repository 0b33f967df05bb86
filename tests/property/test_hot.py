"""The tuples and the hand-tuned codecs of Produce, Fetch and offset commits equal protocol.schema, byte for
byte and value for value. Those of Produce refuse what it refuses with the same ProtocolError."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.protocol.test_hot import topic_in
from tidelog.protocol import hot, schema
from tidelog.protocol.coordinator_records import RecordSchema
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.hot.offset_commits import (
    OffsetCommit,
    decode_offset_commit,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from tidelog.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue
from tidelog.protocol.schema import APIS, ApiKey
from tidelog.protocol.steps import finish

PRODUCE_VERSIONS, FETCH_VERSIONS = (
    range(APIS[key].min_version, APIS[key].max_version + 1) for key in (ApiKey.PRODUCE, ApiKey.FETCH)
)

NO_ID = UUID(int=0)
int8 = st.integers(-(2**7), 2**7 - 1)
int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
# Names of 126 and 127 bytes need one and two bytes for their compact length.
names = st.text(max_size=8) | st.sampled_from(["t" * 126, "t" * 127, "t" * 300])
texts = st.none() | st.text(max_size=8)
records = (
    st.none() | st.binary(max_size=40) | st.sampled_from([b"r" * 126, b"r" * 127, b"r" * 16383, b"r" * 20000])
)


def topics_of(partitions: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[str, list[Any]]]]:
    return st.lists(st.tuples(names, st.lists(partitions, max_size=3)), max_size=3)


def one_topic_of(partitions: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[str, list[Any]]]]:
    return st.tuples(names, partitions).map(lambda one: [(one[0], [one[1]])])


produce_partitions = st.tuples(int32, records)
produce_requests = st.builds(
    hot.ProduceRequest,
    texts,
    int16,
    int32,
    topics_of(produce_partitions) | one_topic_of(produce_partitions),
)
leaders = st.just(hot.NO_LEADER) | st.tuples(int32, int32)
endpoints = st.lists(st.builds(hot.NodeEndpoint, int32, names, int32, texts), max_size=2)
produce_results = st.builds(
    hot.ProducePartitionResult,
    index=int32,
    error_code=int16,
    base_offset=int64,
    log_append_time_ms=int64,
    log_start_offset=int64,
    error_message=texts,
    record_errors=st.lists(st.tuples(int32, texts), max_size=2).map(tuple),
    current_leader=leaders,
)
# Not `builds`: that may make up the fields that have defaults, from types wider than what is sent.
plain_produce_results = st.tuples(int32, int16, int64, int64, int64).map(
    lambda fields: hot.ProducePartitionResult(*fields)
)
produce_topics = topics_of(produce_results) | one_topic_of(plain_produce_results)

fetch_partitions = st.builds(hot.FetchPartition, int32, int32, int64, int32, int64, int32)
fetch_requests = st.builds(
    hot.FetchRequest,
    int32,
    int32,
    int32,
    int32,
    int8,
    int32,
    int32,
    topics_of(fetch_partitions),
    st.lists(st.tuples(names, st.lists(int32, max_size=3)), max_size=2),
    st.text(max_size=5),
    st.just(-1) | int64,
)
fetch_results = st.builds(
    hot.FetchPartitionResult,
    int32,
    int16,
    int64,
    int64,
    int64,
    st.none() | st.lists(st.tuples(int64, int64), max_size=2),
    int32,
    records | st.lists(st.binary(max_size=20), max_size=3),
    leaders,
    st.just(hot.NO_EPOCH_END_OFFSET) | st.tuples(int32, int64),
)


def produce_request_values(request: hot.ProduceRequest) -> dict[str, Any]:
    topic_data = [
        {
            **topic_values(topic, "name"),
            "partition_data": [
                {"index": index, "records": None if data is None else bytes(data)}
                for index, data in partitions
            ],
        }
        for topic, partitions in request.topics
    ]
    return {
        "transactional_id": request.transactional_id,
        "acks": request.acks,
        "timeout_ms": request.timeout_ms,
        "topic_data": topic_data,
    }


def topic_values(topic: str | UUID, field: str = "topic") -> dict[str, Any]:
    """The two fields of a Fetch or a Produce that name a topic."""
    by_name = isinstance(topic, str)
    return {field: topic if by_name else "", "topic_id": NO_ID if by_name else topic}


def in_version(version: int, topics: Any) -> list[Any]:
    """Topics that were drawn by name, as this version names them."""
    return [(topic_in(version, name), parts) for name, parts in topics]


def leader_values(leader: tuple[int, int]) -> dict[str, int]:
    return {"leader_id": leader[0], "leader_epoch": leader[1]}


def produce_response_values(topics: Any, throttle_time_ms: int, endpoints: Any = ()) -> dict[str, Any]:
    responses = []
    for topic, results in topics:
        partition_responses = []
        for result in results:
            values = result._asdict()
            values["current_leader"] = leader_values(result.current_leader)
            values["record_errors"] = [
                {"batch_index": index, "batch_index_error_message": message}
                for index, message in result.record_errors
            ]
            partition_responses.append(values)
        responses.append({**topic_values(topic, "name"), "partition_responses": partition_responses})
    return {
        "responses": responses,
        "throttle_time_ms": throttle_time_ms,
        "node_endpoints": [each._asdict() for each in endpoints],
    }


def fetch_request_values(version: int, request: hot.FetchRequest) -> dict[str, Any]:
    values = request._asdict()
    of_followers = {"replica_directory_id": NO_ID, "high_watermark": 2**63 - 1}
    values["topics"] = [
        {
            **topic_values(topic),
            "partitions": [{**partition._asdict(), **of_followers} for partition in partitions],
        }
        for topic, partitions in request.topics
    ]
    values["forgotten_topics_data"] = [
        {**topic_values(topic), "partitions": list(indexes)}
        for topic, indexes in values.pop("forgotten_topics")
    ]
    values["replica_state"] = {"replica_id": -1, "replica_epoch": values.pop("replica_epoch")}
    if version >= 15:
        values["replica_state"]["replica_id"] = values.pop("replica_id")
    return {"cluster_id": None, "replica_id": -1, **values}


def joined(data: Any) -> bytes | None:
    if data is None:
        return None
    return b"".join(data) if isinstance(data, list) else bytes(data)


def fetch_response_values(response: hot.FetchResponse) -> dict[str, Any]:
    responses = []
    for topic, results in response.topics:
        partitions = []
        for result in results:
            values = result._asdict()
            aborted = result.aborted_transactions
            values["aborted_transactions"] = (
                None
                if aborted is None
                else [{"producer_id": producer, "first_offset": offset} for producer, offset in aborted]
            )
            values["records"] = joined(result.records)
            values["current_leader"] = leader_values(result.current_leader)
            epoch, end_offset = result.diverging_epoch
            values["diverging_epoch"] = {"epoch": epoch, "end_offset": end_offset}
            values["snapshot_id"] = {"end_offset": -1, "epoch": -1}
            partitions.append(values)
        responses.append({**topic_values(topic), "partitions": partitions})
    return {
        "throttle_time_ms": response.throttle_time_ms,
        "error_code": response.error_code,
        "session_id": response.session_id,
        "responses": responses,
        "node_endpoints": [each._asdict() for each in response.node_endpoints],
    }


def plain(value: Any) -> Any:
    """A decoded message as plain dicts and lists."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return bytes(value) if isinstance(value, memoryview | bytearray) else value


def outcome(encode: Any) -> bytes | None:
    """The bytes that an encoder gives, or None where it finds that they have no place in the version."""
    try:
        buffers = encode()
    except ProtocolError:
        return None
    return buffers if isinstance(buffers, bytes) else b"".join(buffers)


@given(version=st.sampled_from(PRODUCE_VERSIONS), request=produce_requests)
def test_produce_requests_equal_the_schema(version: int, request: hot.ProduceRequest) -> None:
    request = request._replace(topics=in_version(version, request.topics))
    encoded = b"".join(hot.encode_produce_request(version, request))
    assert encoded == schema.encode_request(ApiKey.PRODUCE, version, produce_request_values(request))
    decoded = hot.decode_produce_request(version, memoryview(encoded))
    expected = plain(schema.decode_request(ApiKey.PRODUCE, version, encoded))
    assert produce_request_values(decoded) == expected == produce_request_values(request)


@given(
    version=st.sampled_from(PRODUCE_VERSIONS),
    topics=produce_topics,
    throttle_time_ms=int32,
    named=endpoints,
)
def test_produce_responses_equal_the_schema(
    version: int, topics: Any, throttle_time_ms: int, named: list[hot.NodeEndpoint]
) -> None:
    topics = in_version(version, topics)
    named = named if version >= 10 else []
    values = produce_response_values(topics, throttle_time_ms, named)
    encoded = outcome(lambda: hot.encode_produce_response(version, topics, throttle_time_ms))
    if named and encoded is not None:
        encoded = b"".join(hot.with_node_endpoints(version, encoded, named))
    assert encoded == outcome(lambda: schema.encode_response(ApiKey.PRODUCE, version, values))
    if encoded is not None:
        decoded = hot.decode_produce_response(version, encoded)
        expected = plain(schema.decode_response(ApiKey.PRODUCE, version, encoded))
        assert produce_response_values(*decoded) == expected


@given(version=st.sampled_from(FETCH_VERSIONS), request=fetch_requests)
def test_fetch_requests_equal_the_schema(version: int, request: hot.FetchRequest) -> None:
    forgotten = in_version(version, request.forgotten_topics)
    request = request._replace(topics=in_version(version, request.topics), forgotten_topics=forgotten)
    values = fetch_request_values(version, request)
    encoded = outcome(lambda: hot.encode_fetch_request(version, request))
    assert encoded == outcome(lambda: schema.encode_request(ApiKey.FETCH, version, values))
    if encoded is not None:
        decoded = hot.decode_fetch_request(version, encoded)
        expected = plain(schema.decode_request(ApiKey.FETCH, version, encoded))
        assert fetch_request_values(version, decoded) == {**expected, "topics": merged(expected["topics"])}


def merged(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each topic and each of its partitions once: at the first place, as named last."""
    by_key: dict[str | UUID, dict[int, Any]] = {}
    for topic in topics:
        named = by_key.setdefault(topic["topic"] if topic["topic_id"] == NO_ID else topic["topic_id"], {})
        named.update((partition["partition"], partition) for partition in topic["partitions"])
    return [{**topic_values(key), "partitions": list(named.values())} for key, named in by_key.items()]


@given(
    version=st.sampled_from(FETCH_VERSIONS),
    response=st.builds(hot.FetchResponse, int32, int16, int32, topics_of(fetch_results), endpoints),
)
def test_fetch_responses_equal_the_schema(version: int, response: hot.FetchResponse) -> None:
    if version < 7:
        response = response._replace(error_code=0, session_id=0)
    if version < 11:
        topics = [
            (name, [result._replace(preferred_read_replica=-1) for result in results])
            for name, results in response.topics
        ]
        response = response._replace(topics=topics)
    named = response.node_endpoints if version >= 16 else []
    response = response._replace(topics=in_version(version, response.topics), node_endpoints=named)
    values = fetch_response_values(response)
    encoded = outcome(lambda: finish(hot.encode_fetch_response_steps(version, response)))
    assert encoded == outcome(lambda: schema.encode_response(ApiKey.FETCH, version, values))
    if encoded is not None:
        decoded = hot.decode_fetch_response(version, encoded)
        expected = plain(schema.decode_response(ApiKey.FETCH, version, encoded))
        assert fetch_response_values(decoded) == expected


@given(version=st.sampled_from(PRODUCE_VERSIONS), request=produce_requests, data=st.data())
def test_damaged_produce_requests_are_refused_exactly_where_the_schema_refuses_them(
    version: int, request: hot.ProduceRequest, data: st.DataObject
) -> None:
    request = request._replace(topics=in_version(version, request.topics))
    encoded = bytearray(b"".join(hot.encode_produce_request(version, request)))
    for _ in range(data.draw(st.integers(0, 3))):
        if not encoded:
            break
        position = data.draw(st.integers(0, len(encoded) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "insert"])):
            case "flip":
                encoded[position] = data.draw(st.integers(0, 255))
            case "cut":
                del encoded[position:]
            case _:
                encoded[position:position] = data.draw(st.binary(max_size=6))
    assert_read_as_by_the_schema(version, bytes(encoded))


@given(junk=st.binary(max_size=80))
def test_any_bytes_at_all_are_a_produce_request_or_refused_as_by_the_schema(junk: bytes) -> None:
    for version in PRODUCE_VERSIONS:
        assert_read_as_by_the_schema(version, junk)


def assert_read_as_by_the_schema(version: int, body: bytes) -> None:
    expected = outcome_or_refusal(lambda: plain(schema.decode_request(ApiKey.PRODUCE, version, body)))
    assert expected == outcome_or_refusal(
        lambda: produce_request_values(hot.decode_produce_request(version, memoryview(body)))
    )


def outcome_or_refusal(decode: Callable[[], object]) -> object:
    try:
        return decode()
    except ProtocolError as error:
        return str(error)


KEY = RecordSchema(OffsetCommitKey, 0, 1)
VALUE = RecordSchema(OffsetCommitValue, 0, 4)
offset_commits = st.builds(
    OffsetCommit,
    names,
    names,
    int32,
    int64,
    int32,
    st.text(max_size=8) | st.sampled_from(["m" * 126, "m" * 127]),
    int64,
    st.uuids(allow_nil=True),
)


@given(commit=offset_commits, data=st.data())
def test_offset_commits_equal_the_schema(commit: OffsetCommit, data: st.DataObject) -> None:
    key = KEY.encode(1, dict(zip(("group", "topic", "partition"), commit[:3], strict=True)))
    fields = ("offset", "leader_epoch", "metadata", "commit_timestamp", "topic_id")
    value = VALUE.encode(4, dict(zip(fields, commit[3:], strict=True)))
    assert encode_offset_commit_key(*commit[:3]) == key
    assert encode_offset_commit_value(*commit[3:]) == (None if len(commit.metadata) > 126 else value)
    at = data.draw(st.integers(0, len(key) + len(value) - 1))
    both = bytearray(key + value)
    both[at] ^= data.draw(st.sampled_from([0, 1, 0x80, 0xFF]))
    cut, more = data.draw(st.integers(0, 3)), data.draw(st.binary(max_size=2))
    changed_key, changed_value = bytes(both[: len(key)]), bytes(both[len(key) : len(both) - cut]) + more
    found = decode_offset_commit(changed_key, changed_value)
    if (changed_key, changed_value) == (key, value):
        assert found == (None if len(commit.metadata) > 126 else commit)
    elif found is not None:
        where, what = KEY.decode(changed_key), VALUE.decode(changed_value)
        plain_fields = tuple(what[name] for name in fields)
        assert found == (where.group, where.topic, where.partition, *plain_fields)


@pytest.mark.parametrize(("name", "partition"), [("t" * 32768, 0), ("\ud800", 0), ("t", 2**31)])
def test_what_no_offset_commit_can_have_is_left_to_the_schema(name: str, partition: int) -> None:
    assert encode_offset_commit_key(name, "t", partition) is None
    assert encode_offset_commit_value(2**63, 0, "", 0, UUID(int=0)) is None
    assert encode_offset_commit_value(0, 0, "\ud800", 0, UUID(int=0)) is None
