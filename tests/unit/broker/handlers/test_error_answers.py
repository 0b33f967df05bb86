"""What each API answers when its request fails as a whole."""

from dataclasses import fields, is_dataclass
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from tests.message_texts import found_in, in_version
from tests.property.messages import KAFKA_APIS
from tests.unit.broker.handlers.access_world import CASES
from tidelog.broker.net.routes import Route
from tidelog.broker.observability.metrics import RequestTally
from tidelog.broker.served_apis import SERVED_APIS
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import APIS, ApiKey, decode_request, decode_response, encode_request
from tidelog.protocol.steps import finish

CODE = ErrorCode.UNKNOWN_SERVER_ERROR
ANSWERED_WITHOUT_NAMES = """
    AskConsole ApiVersions FindCoordinator JoinGroup Heartbeat LeaveGroup SyncGroup ListGroups DescribeAcls
    CreateAcls DeleteAcls InitProducerId OffsetDelete ConsumerGroupHeartbeat DescribeClientQuotas
    DescribeUserScramCredentials FetchSnapshot DescribeCluster SaslHandshake SaslAuthenticate DescribeLogDirs
    AlterPartitionReassignments ListPartitionReassignments DescribeQuorum UpdateFeatures UnregisterBroker
    GetTelemetrySubscriptions PushTelemetry ListConfigResources AddOffsetsToTxn EndTxn ListTransactions
    ShareGroupHeartbeat ShareFetch ShareAcknowledge AlterShareGroupOffsets DeleteShareGroupOffsets
"""

TOPIC = "flights"
TOPIC_ID = UUID(int=7)
NAMES = {
    **dict.fromkeys(("topic", "group", "consumers", "transaction", "fresh", "user"), TOPIC),
    "topic_id": TOPIC_ID,
    "producer_id": 7,
    "producer_epoch": 0,
    "records": b"",
}


def request_of(route: Route) -> Any:
    """What the requests of `access.txt` ask this API, decoded in the version of the route."""
    values: dict[str, Any] = {}
    for case in CASES:
        if case.key == route.api_key:
            values = {**case.values(NAMES), **values}
    values = in_version(values, APIS[ApiKey(route.api_key)].request.fields, route.version)
    body = encode_request(route.api_key, route.version, values)
    return finish(route.decode(memoryview(body)))


def error_answer(api_key: ApiKey, version: int, message: str | None) -> bytes:
    route = Route(api_key, version, lambda context, request: None, RequestTally())
    body = finish(route.encode(finish(route.error_answer(request_of(route), CODE, message))))
    return b"".join(body) if isinstance(body, list) else body


@pytest.mark.parametrize("api_key", SERVED_APIS, ids=lambda key: ApiKey(key).name)
def test_an_error_answer_names_what_was_asked_for_and_the_error_in_every_version(api_key: ApiKey) -> None:
    served = SERVED_APIS[api_key]
    for version in range(served.first, served.last + 1):
        response = decode_response(api_key, version, error_answer(api_key, version, "what happened"))
        codes = found_in(response, "error_code")
        assert CODE in codes, f"version {version}"
        assert set(codes) <= {CODE, ErrorCode.NONE}, f"version {version}"
        if APIS[api_key].name not in ANSWERED_WITHOUT_NAMES.split():
            assert TOPIC in str(response) or repr(TOPIC_ID) in str(response), f"version {version}"


# A field that is null in Kafka's own error answers, beside its messages.
NULL_IN_KAFKA = {
    ApiKey.FETCH: {"aborted_transactions"},
    ApiKey.METADATA: {"cluster_id"},
    ApiKey.DELETE_TOPICS: {"name"},  # Of a topic that is named by its id.
    ApiKey.JOIN_GROUP: {"protocol_type"},
    ApiKey.SYNC_GROUP: {"protocol_type", "protocol_name"},
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {"entries"},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {"member_id", "assignment"},
    ApiKey.SHARE_GROUP_HEARTBEAT: {"member_id", "assignment"},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"next_cursor"},
}


def nulls_in(entity: Any) -> set[str]:
    """The names of the nullable fields without a value in a message of kio, however deep."""
    found: set[str] = set()
    for field in fields(entity):
        value = getattr(entity, field.name)
        if value is None and field.metadata.get("kafka_type") not in ("uuid", "datetime_i64"):
            found.add(field.name)
        for inner in value if isinstance(value, tuple) else (value,):
            found |= nulls_in(inner) if is_dataclass(inner) else set()
    return found


@pytest.mark.parametrize(
    "api_key", sorted(SERVED_APIS.keys() & set(KAFKA_APIS)), ids=lambda key: ApiKey(key).name
)
def test_an_error_answer_has_null_only_where_kafka_answers_null(api_key: ApiKey) -> None:
    served = SERVED_APIS[api_key]
    for version in range(served.first, served.last + 1):
        data = error_answer(api_key, version, None)
        response, size = entity_reader(load_response_schema(api_key, version))(data, 0)
        assert size == len(data)
        allowed = {"error_message", *NULL_IN_KAFKA.get(api_key, ())}
        assert nulls_in(response) <= allowed, f"version {version}"


def test_an_unknown_topic_id_is_answered_with_an_empty_name_never_null() -> None:
    request = decode_request(
        ApiKey.METADATA,
        12,
        encode_request(ApiKey.METADATA, 12, {"topics": [{"topic_id": TOPIC_ID, "name": None}]}),
    )
    (topic,) = SERVED_APIS[ApiKey.METADATA].error_answer(request, CODE, None)["topics"]
    assert (topic["name"], topic["topic_id"]) == ("", TOPIC_ID)


def test_metadata_of_all_topics_fails_with_no_topics() -> None:
    request = decode_request(ApiKey.METADATA, 9, encode_request(ApiKey.METADATA, 9, {"topics": None}))
    assert SERVED_APIS[ApiKey.METADATA].error_answer(request, CODE, None) == {"topics": []}
