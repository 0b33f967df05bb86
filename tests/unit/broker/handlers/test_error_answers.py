"""What each API answers when its request fails as a whole."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from tests.property.messages import KAFKA_APIS
from tidelog.broker.net.routes import Route
from tidelog.broker.observability.metrics import RequestTally
from tidelog.broker.served_apis import SERVED_APIS
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import (
    FIRST_BY_ID,
    FetchPartition,
    FetchRequest,
    ProduceRequest,
)
from tidelog.protocol.schema import ApiKey, decode_request, decode_response, encode_request
from tidelog.protocol.steps import finish

CODE = ErrorCode.UNKNOWN_SERVER_ERROR
VERSIONS = [
    (key, version) for key, served in SERVED_APIS.items() for version in range(served.first, served.last + 1)
]

ANSWERED_WITHOUT_NAMES = (
    ApiKey.ASK_CONSOLE,
    ApiKey.API_VERSIONS,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.LIST_GROUPS,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_DELETE,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
)

TOPIC = "flights"
TOPIC_ID = UUID(int=7)
RESOURCE = {"resource_type": 2, "resource_name": TOPIC, "configuration_keys": None}

SHARE_STATE = {"group_id": "g", "topics": [{"topic_id": TOPIC_ID, "partitions": [{"partition": 3}]}]}

REQUESTS: dict[ApiKey, dict[str, Any]] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: {"group_id": "g"},
    ApiKey.SHARE_GROUP_DESCRIBE: {"group_ids": [TOPIC]},
    ApiKey.SHARE_FETCH: {"group_id": "g", "member_id": "m"},
    ApiKey.SHARE_ACKNOWLEDGE: {"group_id": "g", "member_id": "m"},
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: SHARE_STATE,
    ApiKey.READ_SHARE_GROUP_STATE: SHARE_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE: SHARE_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE: SHARE_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: SHARE_STATE,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: {"groups": [{"group_id": TOPIC, "topics": None}]},
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: {"group_id": "g"},
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: {"group_id": "g"},
    ApiKey.LIST_OFFSETS: {
        "topics": [{"name": TOPIC, "partitions": [{"partition_index": 3, "timestamp": -1}]}]
    },
    ApiKey.METADATA: {"topics": [{"name": TOPIC}]},
    ApiKey.JOIN_GROUP: {"group_id": "g"},
    ApiKey.HEARTBEAT: {"group_id": "g"},
    ApiKey.LEAVE_GROUP: {"group_id": "g"},
    ApiKey.SYNC_GROUP: {"group_id": "g"},
    ApiKey.DESCRIBE_GROUPS: {"groups": [TOPIC]},
    ApiKey.LIST_GROUPS: {},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {"group_id": "g"},
    ApiKey.CONSUMER_GROUP_DESCRIBE: {"group_ids": [TOPIC]},
    ApiKey.DELETE_GROUPS: {"groups_names": [TOPIC]},
    ApiKey.API_VERSIONS: {},
    ApiKey.SASL_HANDSHAKE: {},
    ApiKey.SASL_AUTHENTICATE: {},
    ApiKey.CREATE_TOPICS: {"topics": [{"name": TOPIC, "num_partitions": 1, "replication_factor": 1}]},
    ApiKey.DELETE_RECORDS: {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 3, "offset": 5}]}]},
    ApiKey.INIT_PRODUCER_ID: {},
    ApiKey.OFFSET_COMMIT: {
        "group_id": "g",
        "topics": [{"name": TOPIC, "topic_id": TOPIC_ID, "partitions": [{"partition_index": 3}]}],
    },
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {
        "topics": [{"topic": TOPIC, "partitions": [{"partition": 3, "leader_epoch": 0}]}]
    },
    ApiKey.DESCRIBE_CONFIGS: {"resources": [RESOURCE]},
    ApiKey.ALTER_CONFIGS: {"resources": [{"resource_type": 2, "resource_name": TOPIC, "configs": []}]},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {
        "resources": [{"resource_type": 2, "resource_name": TOPIC, "configs": []}]
    },
    ApiKey.CREATE_PARTITIONS: {"topics": [{"name": TOPIC, "count": 2, "assignments": None}]},
    ApiKey.ADD_OFFSETS_TO_TXN: {"transactional_id": "x", "group_id": "g"},
    ApiKey.END_TXN: {"transactional_id": "x"},
    ApiKey.TXN_OFFSET_COMMIT: {
        "transactional_id": "x",
        "group_id": "g",
        "topics": [{"name": TOPIC, "partitions": [{"partition_index": 3}]}],
    },
    ApiKey.DESCRIBE_TRANSACTIONS: {"transactional_ids": [TOPIC]},
    ApiKey.LIST_TRANSACTIONS: {},
    ApiKey.ASK_CONSOLE: {},
    ApiKey.WRITE_TXN_MARKERS: {
        "markers": [
            {
                "producer_id": 7,
                "producer_epoch": 0,
                "transaction_result": True,
                "topics": [{"name": TOPIC, "partition_indexes": [3]}],
                "coordinator_epoch": 0,
            }
        ]
    },
    ApiKey.OFFSET_DELETE: {
        "group_id": "g",
        "topics": [{"name": TOPIC, "partitions": [{"partition_index": 3}]}],
    },
    ApiKey.DESCRIBE_ACLS: {"resource_type_filter": 1},
    ApiKey.CREATE_ACLS: {"creations": [{"resource_type": 2, "resource_name": TOPIC}]},
    ApiKey.DELETE_ACLS: {"filters": [{"resource_type_filter": 1}]},
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": None},
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {
        "deletions": [{"name": TOPIC, "mechanism": 1}],
        "upsertions": [],
    },
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {"components": []},
    ApiKey.ALTER_CLIENT_QUOTAS: {
        "entries": [{"entity": [{"entity_type": "user", "entity_name": TOPIC}], "ops": []}]
    },
    ApiKey.FETCH_SNAPSHOT: {"replica_id": 2, "topics": []},
    ApiKey.DESCRIBE_CLUSTER: {},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": TOPIC}]},
    ApiKey.ALTER_REPLICA_LOG_DIRS: {"dirs": [{"path": "/d", "topics": [{"name": TOPIC, "partitions": [3]}]}]},
    ApiKey.DESCRIBE_LOG_DIRS: {"topics": None},
    ApiKey.ELECT_LEADERS: {"topic_partitions": [{"topic": TOPIC, "partitions": [3]}]},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {"topics": []},
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {},
    ApiKey.DESCRIBE_QUORUM: {"topics": []},
    ApiKey.UPDATE_FEATURES: {"feature_updates": []},
    ApiKey.UNREGISTER_BROKER: {"broker_id": 2},
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: {},
    ApiKey.PUSH_TELEMETRY: {},
    ApiKey.LIST_CONFIG_RESOURCES: {},
    ApiKey.DESCRIBE_PRODUCERS: {"topics": [{"name": TOPIC, "partition_indexes": [3]}]},
}


def request_of(api_key: ApiKey, version: int) -> Any:
    topic = TOPIC if version < FIRST_BY_ID else TOPIC_ID
    if api_key == ApiKey.PRODUCE:
        return ProduceRequest(None, -1, 1000, [(topic, [(3, b"")])])
    if api_key == ApiKey.FETCH:
        wanted = FetchPartition(3, -1, 0, -1, -1, 1024)
        return FetchRequest(-1, 0, 0, 1024, 0, 0, -1, [(topic, [wanted])])
    values = REQUESTS.get(api_key)
    if api_key == ApiKey.FIND_COORDINATOR:
        values = {"coordinator_keys": [TOPIC]} if version >= 4 else {"key": TOPIC}
    if api_key == ApiKey.OFFSET_FETCH:
        topics = [{"name": TOPIC, "partition_indexes": [3]}]
        one = {"group_id": TOPIC, "topics": topics}
        values = {"groups": [one]} if version >= 8 else one
    if api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
        topics = [{"name": TOPIC, "partitions": [3]}]
        one = {"transactional_id": "x", "topics": topics}
        values = {"transactions": [one]} if version >= 4 else {"v3_and_below_topics": topics}
    if api_key == ApiKey.DELETE_TOPICS:
        values = {"topics": [{"name": TOPIC}]} if version >= 6 else {"topic_names": [TOPIC]}
    assert values is not None
    return decode_request(api_key, version, encode_request(api_key, version, values))


def codes_in(value: Any) -> list[int]:
    """Every error_code in a decoded response, however deep."""
    if isinstance(value, Mapping):
        own = [value[name] for name in ("error_code", "partition_error_code") if name in value]
        return own + [code for inner in value.values() for code in codes_in(inner)]
    return [code for inner in value for code in codes_in(inner)] if isinstance(value, list) else []


@pytest.mark.parametrize("api_key", SERVED_APIS, ids=lambda key: ApiKey(key).name)
def test_an_error_answer_names_what_was_asked_for_and_the_error_in_every_version(api_key: ApiKey) -> None:
    served = SERVED_APIS[api_key]
    for version in range(served.first, served.last + 1):
        route = Route(api_key, version, lambda context, request: None, RequestTally())
        answer = finish(route.error_answer(request_of(api_key, version), CODE, "what happened"))
        body = finish(route.encode(version, answer))
        response = decode_response(api_key, version, b"".join(body) if isinstance(body, list) else body)
        codes = codes_in(response)
        assert CODE in codes, f"version {version}"
        assert set(codes) <= {CODE, ErrorCode.NONE}, f"version {version}"
        if api_key not in ANSWERED_WITHOUT_NAMES:
            assert TOPIC in str(response) or repr(TOPIC_ID) in str(response), f"version {version}"


# A field that is null in Kafka's own error answers, beside its messages.
NULL_IN_KAFKA = {
    ApiKey.FETCH: {"aborted_transactions"},
    ApiKey.METADATA: {"cluster_id"},
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
        route = Route(api_key, version, lambda context, request: None, RequestTally())
        answer = finish(route.error_answer(request_of(api_key, version), CODE, None))
        body = finish(route.encode(version, answer))
        data = b"".join(body) if isinstance(body, list) else body
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
