"""The API table: which APIs have codecs, in which versions, and the one codec of each (message, version).

Owns: `ApiKey`, `APIS`, the codecs, and the functions that convert between bodies and values.

Invariants: a codec is made once, when its message is first read or written. Decoding raises only
ProtocolError, also for bytes after the last field of a response. A decoded value has every declared field, so
a handler never needs to know the version.
"""

from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple, cast

from tidelog.protocol import messages
from tidelog.protocol.codecs import Codec
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.messages.declaration import Message, Struct, message_of
from tidelog.protocol.types import Buffer

MAX_REQUEST_ELEMENTS: Final = 100_000
"""Array elements and tagged fields of one request: 50 MB and half a second of decoding, in steps."""
MAX_RESPONSE_ELEMENTS: Final = 4_000_000
"""Larger than for requests: the client trusts its broker, and a large cluster has large metadata."""


class ApiKey(IntEnum):
    """The number of an API. Numbers without an entry in `APIS` have no codecs, only a name."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    ASK_CONSOLE = 10_000
    """Tidelog's own, far from Kafka's numbers."""


class Api(NamedTuple):
    """One API, with codecs for `min_version` to `max_version`.

    From `first_flexible_version` on, the request header is v2 and the response header v1 (except
    ApiVersions). `declarations` is the module with those of its messages, which is imported when they are
    needed.
    """

    key: ApiKey
    name: str
    min_version: int
    max_version: int
    declarations: str

    @property
    def first_flexible_version(self) -> int:
        return int(self._declaration("Request").flexible_versions.removesuffix("+"))

    @property
    def request(self) -> Message:
        return message_of(self._declaration("Request"))

    @property
    def response(self) -> Message:
        return message_of(self._declaration("Response"))

    def _declaration(self, direction: str) -> type[Struct]:
        module = import_module(f"{messages.__name__}.{self.declarations}")
        declaration: type[Struct] = getattr(module, self.name + direction)
        return declaration


def _api(key: ApiKey, first_version: int, last_version: int, declarations: str) -> tuple[ApiKey, Api]:
    return key, Api(key, key.name.title().replace("_", ""), first_version, last_version, declarations)


# The versions of Produce and Fetch are set here only: `protocol.hot`, broker and client read them here.
# A new field is declared in `protocol.messages`; `protocol.hot` turns the values into tuples.
APIS: Final[Mapping[ApiKey, Api]] = dict(
    (
        _api(ApiKey.PRODUCE, 3, 13, "produce"),
        _api(ApiKey.FETCH, 4, 18, "fetch"),
        _api(ApiKey.LIST_OFFSETS, 1, 11, "fetch"),
        _api(ApiKey.METADATA, 0, 13, "metadata"),
        _api(ApiKey.OFFSET_COMMIT, 2, 10, "groups"),
        _api(ApiKey.OFFSET_FETCH, 1, 10, "groups"),
        _api(ApiKey.FIND_COORDINATOR, 0, 6, "groups"),
        _api(ApiKey.JOIN_GROUP, 0, 9, "groups"),
        _api(ApiKey.HEARTBEAT, 0, 4, "groups"),
        _api(ApiKey.LEAVE_GROUP, 0, 5, "groups"),
        _api(ApiKey.SYNC_GROUP, 0, 5, "groups"),
        _api(ApiKey.DESCRIBE_GROUPS, 0, 6, "groups"),
        _api(ApiKey.LIST_GROUPS, 0, 5, "groups"),
        _api(ApiKey.SASL_HANDSHAKE, 0, 1, "users"),
        _api(ApiKey.API_VERSIONS, 0, 4, "metadata"),
        _api(ApiKey.CREATE_TOPICS, 2, 7, "topics"),
        _api(ApiKey.DELETE_TOPICS, 1, 6, "topics"),
        _api(ApiKey.DELETE_RECORDS, 0, 2, "topics"),
        _api(ApiKey.INIT_PRODUCER_ID, 0, 6, "produce"),
        _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, "fetch"),
        _api(ApiKey.DESCRIBE_CONFIGS, 1, 4, "admin"),
        _api(ApiKey.ALTER_CONFIGS, 0, 2, "admin"),
        _api(ApiKey.SASL_AUTHENTICATE, 0, 2, "users"),
        _api(ApiKey.CREATE_PARTITIONS, 0, 3, "topics"),
        _api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, "cluster_admin"),
        _api(ApiKey.DESCRIBE_LOG_DIRS, 1, 4, "cluster_admin"),
        _api(ApiKey.ELECT_LEADERS, 0, 2, "cluster_admin"),
        _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, "cluster_admin"),
        _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, "cluster_admin"),
        _api(ApiKey.DESCRIBE_QUORUM, 0, 2, "cluster_admin"),
        _api(ApiKey.UPDATE_FEATURES, 0, 2, "cluster_admin"),
        _api(ApiKey.UNREGISTER_BROKER, 0, 0, "cluster_admin"),
        _api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, "cluster_admin"),
        _api(ApiKey.WRITE_TXN_MARKERS, 1, 2, "transactions"),
        _api(ApiKey.DESCRIBE_ACLS, 1, 3, "acls"),
        _api(ApiKey.CREATE_ACLS, 1, 3, "acls"),
        _api(ApiKey.DELETE_ACLS, 1, 3, "acls"),
        _api(ApiKey.DELETE_GROUPS, 0, 2, "groups"),
        _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, "admin"),
        _api(ApiKey.OFFSET_DELETE, 0, 0, "groups"),
        _api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, "users"),
        _api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, "users"),
        _api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, "client_quotas"),
        _api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, "client_quotas"),
        _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, "consumer_groups"),
        _api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, "consumer_groups"),
        _api(ApiKey.FETCH_SNAPSHOT, 0, 1, "fetch"),
        _api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, "telemetry"),
        _api(ApiKey.PUSH_TELEMETRY, 0, 0, "telemetry"),
        _api(ApiKey.DESCRIBE_CLUSTER, 0, 2, "metadata"),
        _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, "metadata"),
        _api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, "topics"),
        _api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, "transactions"),
        _api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, "transactions"),
        _api(ApiKey.END_TXN, 0, 5, "transactions"),
        _api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, "transactions"),
        _api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, "transactions"),
        _api(ApiKey.LIST_TRANSACTIONS, 0, 2, "transactions"),
        _api(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, "share_groups"),
        _api(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, "share_groups"),
        _api(ApiKey.SHARE_FETCH, 1, 2, "share_fetch"),
        _api(ApiKey.SHARE_ACKNOWLEDGE, 1, 2, "share_fetch"),
        _api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0, "share_group_state"),
        _api(ApiKey.READ_SHARE_GROUP_STATE, 0, 0, "share_group_state"),
        _api(ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1, "share_group_state"),
        _api(ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0, "share_group_state"),
        _api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1, "share_group_state"),
        _api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, "share_groups"),
        _api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, "share_groups"),
        _api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, "share_groups"),
        _api(ApiKey.ASK_CONSOLE, 0, 0, "console"),
    )
)


def decode_request(api_key: int, version: int, body: Buffer) -> Any:
    """The request body as `protocol.values` (items and attributes, snake_case names).

    Arrays are lists, null is None, uuids are uuid.UUID, bytes are bytes, records are slices of `body`. Bytes
    after the last field are ignored, as in Kafka: librdkafka and kafka-go send some. Raises ProtocolError.
    """
    return request_codec(api_key, version).decode(body)


def decode_response(api_key: int, version: int, body: Buffer) -> Any:
    """The response body as `protocol.values`, as in `decode_request`. Raises ProtocolError."""
    return response_codec(api_key, version).decode(body)


def encode_request(api_key: int, version: int, values: Mapping[str, object]) -> bytes:
    """The request's bytes. A missing field gets its default. An unknown one raises TypeError.

    Fields that the version lacks are dropped. Raises ProtocolError if one of them is not ignorable and
    differs from its default, or if a value does not fit its type.
    """
    return request_codec(api_key, version).encode(values)


def encode_response(api_key: int, version: int, values: Mapping[str, object]) -> bytes:
    """The response's bytes, by the rules of `encode_request`."""
    return response_codec(api_key, version).encode(values)


@cache
def request_codec(api_key: int, version: int) -> Codec:
    """Raises ProtocolError if there is none."""
    return Codec(_supported(api_key, version).request, version, MAX_REQUEST_ELEMENTS, whole=False)


@cache
def response_codec(api_key: int, version: int) -> Codec:
    """Raises ProtocolError if there is none."""
    return Codec(_supported(api_key, version).response, version, MAX_RESPONSE_ELEMENTS)


def _supported(api_key: int, version: int) -> Api:
    api = APIS.get(cast("ApiKey", api_key))
    if api is None:
        raise ProtocolError(f"API key {api_key}: expected one of {', '.join(map(str, map(int, APIS)))}")
    if not api.min_version <= version <= api.max_version:
        expected = f"expected {api.min_version} to {api.max_version}"
        raise ProtocolError(f"{api.name} version {version}: {expected}")
    return api
