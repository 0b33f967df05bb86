"""The API table and the rules by which values become bodies."""

import subprocess
import sys
from uuid import UUID

import pytest

from tidelog.broker.served_apis import SERVED_APIS
from tidelog.client.asked_apis import ASKED_APIS
from tidelog.protocol.codecs import Codec
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.messages.declaration import Field, Message, version_in
from tidelog.protocol.schema import (
    APIS,
    ApiKey,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from tidelog.protocol.values import Values

TAGS = Message(
    "Tags",
    flexible="0+",
    fields=(
        Field("plain", "int8", "0+"),
        Field("count", "int32", "0+", default=-1, tag=0),
        Field("names", "[]string", "0+", tag=3),
        Field("leader", "struct", "0+", tag=5, fields=(Field("node_id", "int32", "0+", default=-1),)),
    ),
)


def tags_codec() -> Codec:
    return Codec(TAGS, 0, max_elements=100)


@pytest.mark.parametrize(
    ("versions", "inside", "outside"),
    [
        ("0+", {0, 30}, set()),
        ("3+", {3, 4}, {2}),
        ("2-5", {2, 5}, {1, 6}),
        ("4", {4}, {3, 5}),
        ("", set(), {0, 1}),
    ],
)
def test_a_version_range_holds_its_ends(versions: str, inside: set[int], outside: set[int]) -> None:
    assert all(version_in(version, versions) for version in inside)
    assert not any(version_in(version, versions) for version in outside)


def test_an_api_versions_answer_writes_no_tagged_field_that_holds_its_default() -> None:
    features = {"supported_features": [], "finalized_features_epoch": -1, "zk_migration_ready": False}
    body = encode_response(ApiKey.API_VERSIONS, 3, {"api_keys": [], **features})
    assert body == bytes.fromhex("0000 01 00000000 00")


def test_defaults_that_can_change_are_new_for_each_message() -> None:
    body = encode_request(ApiKey.DELETE_TOPICS, 5, {})
    decode_request(ApiKey.DELETE_TOPICS, 5, body).topics.append("changed")
    assert decode_request(ApiKey.DELETE_TOPICS, 5, body).topics == []


def test_an_unknown_key_is_a_type_error_that_names_the_known_ones() -> None:
    with pytest.raises(TypeError, match=r"MetadataRequest.topics has no field nmae; it has name, topic_id"):
        encode_request(ApiKey.METADATA, 12, {"topics": [{"nmae": "typo"}]})


def test_an_ignorable_field_that_the_version_lacks_is_dropped() -> None:
    partition = {"index": 0, "error_code": 0, "base_offset": 9, "log_start_offset": 4, "error_message": "x"}
    values = {"responses": [{"name": "t", "partition_responses": [partition]}]}
    decoded = decode_response(ApiKey.PRODUCE, 3, encode_response(ApiKey.PRODUCE, 3, values))
    found = decoded.responses[0].partition_responses[0]
    assert (found.base_offset, found.log_start_offset, found.error_message) == (9, -1, None)


def test_a_field_that_must_not_be_ignored_is_refused_where_the_version_lacks_it() -> None:
    encode_request(ApiKey.METADATA, 3, {"topics": None, "allow_auto_topic_creation": True})
    with pytest.raises(ProtocolError, match=r"version 3: allow_auto_topic_creation: .* got False"):
        encode_request(ApiKey.METADATA, 3, {"topics": None, "allow_auto_topic_creation": False})
    leader = {"current_leader": {"leader_id": 1, "leader_epoch": 0}}
    with pytest.raises(ProtocolError, match=r"partition_responses\[0\].current_leader"):
        encode_response(ApiKey.PRODUCE, 9, {"responses": [{"name": "t", "partition_responses": [leader]}]})
    none = {"current_leader": {"leader_id": -1}}
    encode_response(ApiKey.PRODUCE, 9, {"responses": [{"name": "t", "partition_responses": [none]}]})


def test_null_is_accepted_only_if_the_version_allows_it() -> None:
    values = {"topics": [{"error_code": 100, "name": None, "topic_id": UUID(int=7)}]}
    assert (
        decode_response(ApiKey.METADATA, 12, encode_response(ApiKey.METADATA, 12, values)).topics[0].name
        is None
    )
    with pytest.raises(ProtocolError, match=r"MetadataResponse version 11: topics\[0\].name: .* got None"):
        encode_response(ApiKey.METADATA, 11, values)


def test_bad_bytes_name_the_field_what_was_expected_and_what_came() -> None:
    body = encode_request(ApiKey.CREATE_TOPICS, 7, {"topics": [{"name": "t", "configs": [{"name": "k"}]}]})
    with pytest.raises(ProtocolError, match=r"Request version 7: validate_only: expected bool, got the end"):
        decode_request(ApiKey.CREATE_TOPICS, 7, body[:-2])
    answer = encode_response(ApiKey.CREATE_TOPICS, 7, {})
    with pytest.raises(ProtocolError, match=rf"expected {len(answer)} bytes, got {len(answer) + 1}"):
        decode_response(ApiKey.CREATE_TOPICS, 7, answer + b"!")


def test_a_fault_in_an_element_has_its_path() -> None:
    topics = [{"name": "a"}, {"name": "b", "partitions": [{}, {"leader_id": 2**31, "error_code": "x"}]}]
    with pytest.raises(
        ProtocolError, match=r"topics\[1\].partitions\[1\].error_code: expected int16, got 'x'"
    ):
        encode_response(ApiKey.METADATA, 12, {"topics": topics})
    topics[1]["partitions"] = [{}, {"leader_id": 2**31}]
    with pytest.raises(ProtocolError, match=r"partitions\[1\].leader_id: expected int32, got 2147483648"):
        encode_response(ApiKey.METADATA, 12, {"topics": topics})
    topics[1]["partitions"] = [{}, {"isr_nodes": [1, 1, 1]}]
    body = encode_response(ApiKey.METADATA, 7, {"topics": topics})
    with pytest.raises(ProtocolError, match=r"topics\[1\].partitions\[1\].isr_nodes: expected 3 elements"):
        decode_response(ApiKey.METADATA, 7, body[:-5])


def test_a_body_may_be_any_buffer() -> None:
    body = encode_request(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None})
    for buffer in (body, bytearray(body), memoryview(body)):
        assert decode_request(ApiKey.INIT_PRODUCER_ID, 4, buffer).producer_id == -1


@pytest.mark.parametrize(("key", "version"), [(3, 14), (3, -1), (0, 2), (7, 0), (999, 0)])
def test_a_message_that_has_no_codec_is_a_protocol_error(key: int, version: int) -> None:
    with pytest.raises(ProtocolError, match="expected"):
        decode_request(key, version, b"")


def test_tagged_fields_are_written_in_order_and_only_when_they_differ() -> None:
    codec = tags_codec()
    assert codec.encode({}) == bytes.fromhex("00 00")
    assert codec.encode({"count": -1, "names": [], "leader": {"node_id": -1}}) == bytes.fromhex("00 00")
    body = codec.encode({"leader": {"node_id": 2}, "count": 1})
    assert body == bytes.fromhex("00 02 0004 00000001 0505 00000002 00")
    decoded = codec.decode(body)
    assert (decoded.count, decoded.names, decoded.leader.node_id) == (1, [], 2)


def test_a_tagged_field_that_is_no_default_is_not_dropped_as_one() -> None:
    with pytest.raises(TypeError, match="has no field nodeid; it has node_id"):
        tags_codec().encode({"leader": {"nodeid": 2}})
    with pytest.raises(ProtocolError, match="names: expected an array, got None"):
        tags_codec().encode({"names": None})
    with pytest.raises(ProtocolError, match="count: expected int32, got 'x'"):
        tags_codec().encode({"count": "x"})


def test_unknown_tagged_fields_are_skipped() -> None:
    decoded = tags_codec().decode(bytes.fromhex("07 02 0203 aabbcc 0302 0201"))
    assert (decoded.plain, decoded.names) == (7, [""])


@pytest.mark.parametrize(
    ("octets", "fault"),
    [
        ("00 02 0004 00000001 0004 00000002", "ascending order, got 0 after 0"),
        ("00 02 0301 01 0004 00000002", "ascending order, got 0 after 3"),
        ("00 01 0003 000000", "count: expected int32, got the end of the message"),
        ("00 01 0005 0000000100", "count: expected 4 bytes of tagged field, got 5"),
        ("00 01 0904 00", "expected 4 bytes of tagged field 9, 1 bytes remain"),
        ("00 05 0904 00", "expected 5 elements of 2 bytes or more, 3 bytes remain"),
    ],
)
def test_tagged_fields_that_break_their_bounds_are_refused(octets: str, fault: str) -> None:
    with pytest.raises(ProtocolError, match=fault):
        tags_codec().decode(bytes.fromhex(octets))


def test_a_request_of_too_many_elements_is_refused() -> None:
    names = b"\x00\x00" * 100_001
    body = (100_001).to_bytes(4, "big") + names + bytes(4)
    with pytest.raises(ProtocolError, match=r"topic_names: expected at most 100000 more elements"):
        decode_request(ApiKey.DELETE_TOPICS, 1, body)


def test_no_field_hides_behind_a_method_of_a_mapping() -> None:
    def names(fields: tuple[Field, ...]) -> set[str]:
        return {field.name for field in fields}.union(*(names(field.fields) for field in fields))

    declared = set().union(*(names(api.request.fields) | names(api.response.fields) for api in APIS.values()))
    assert not [name for name in declared if hasattr(Values, name)]


def test_a_codec_is_made_without_construct() -> None:
    program = (
        "import sys; from tidelog.protocol.schema import encode_request; encode_request(3, 12, {});"
        "print('construct' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# Raises the last version in the table, and nothing else, before anything that follows from it is imported.
ONE_CHANGE = """
from uuid import UUID

from tidelog.protocol import schema
from tidelog.protocol.schema import ApiKey

for key in (ApiKey.PRODUCE, ApiKey.FETCH):
    api = schema.APIS[key]
    schema.APIS[key] = api._replace(max_version=api.max_version + 1)

from tidelog.broker.handlers.connection_state import AuthenticationStep
from tidelog.broker.net.routes import RouteTable
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.served_apis import advertised_api_keys
from tidelog.protocol import hot
from tidelog.protocol.steps import finish

for key in (ApiKey.PRODUCE, ApiKey.FETCH):
    new = schema.APIS[key].max_version
    assert [row["max_version"] for row in advertised_api_keys((key,))] == [new]
    assert RouteTable({key: print}, Metrics(), AuthenticationStep.NOT_REQUIRED)[key, new] is not None

topic = UUID(int=1)
new = schema.APIS[ApiKey.PRODUCE].max_version
request = hot.ProduceRequest(None, -1, 1, [(topic, [(0, b"records")])])
body = b"".join(hot.encode_produce_request(new, request))
assert hot.decode_produce_request(new, memoryview(body)) == request
response = hot.encode_produce_response(new, [(topic, [hot.ProducePartitionResult(0, 0, 5)])])
assert hot.decode_produce_response(new, response).topics[0][1][0].base_offset == 5

new = schema.APIS[ApiKey.FETCH].max_version
request = hot.FetchRequest(-1, 1, 1, 1, 0, 0, -1, [(topic, [hot.FetchPartition(0, -1, 5, -1, -1, 1)])])
assert hot.decode_fetch_request(new, hot.encode_fetch_request(new, request)).topics == request.topics
results = [(topic, [hot.FetchPartitionResult(0, 0, 5)])]
body = b"".join(finish(hot.encode_fetch_response_steps(new, hot.FetchResponse(0, 0, 0, results))))
assert hot.decode_fetch_response(new, body).topics[0][1][0].high_watermark == 5
"""


def test_a_new_version_is_a_change_in_one_place() -> None:
    done = subprocess.run([sys.executable, "-c", ONE_CHANGE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.FETCH])
def test_each_version_with_codecs_is_served_and_each_that_is_asked_for_has_codecs(key: ApiKey) -> None:
    api = APIS[key]
    versions = range(api.min_version, api.max_version + 1)
    assert [version for version in range(50) if SERVED_APIS[key].has(version)] == list(versions)
    assert set(range(ASKED_APIS[key].first, ASKED_APIS[key].last + 1)) <= set(versions)
