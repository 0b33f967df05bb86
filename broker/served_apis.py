"""The APIs that this broker serves, their versions, and the kind of each request.

Owns the one table of them. It may be narrower than `protocol.schema.APIS`, which lists what has codecs: an
API or a version that is not listed here is neither advertised nor served.

Invariants: pure; every API listed has an error answer, codecs for its versions, an entry in `broker.net.gate`
and, unless the gate opens it at no step, a handler (tests hold it).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from functools import cache
from typing import NamedTuple

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import APIS, ApiKey, encode_response


class Kind(Enum):
    """What a request does. It decides whether later requests of its connection wait for its answer.

    Kafka serves one request of a connection at a time. Here a request holds back later ones only if a client
    could otherwise see the difference. A request that is answered at once never does.
    """

    APPEND = auto()
    """Takes effect before its handler returns and is answered once it is durable. Later requests are served
    meanwhile, so that five may be in flight.
    """
    LONG_POLL = auto()
    """Reads the state at the time of its answer, which may be much later. Later requests are served
    meanwhile: they take effect sooner than in Kafka, but their answers are still sent after its own.
    """
    READ = auto()
    """Reads, also after its handler returned. Later requests may change that state, so they wait."""
    CHANGE = auto()
    """Takes effect at any time until it is answered. Later requests must see the effect, so they wait."""
    LONG_CHANGE = auto()
    """A change that is answered when other clients have sent theirs, which may be much later. As in Kafka,
    later requests wait until then: a heartbeat behind a join belongs to the generation in the answer to the
    join.
    """

    @property
    def holds_back(self) -> bool:
        """Whether later requests of the connection wait until such a request is answered."""
        return self in (Kind.READ, Kind.CHANGE, Kind.LONG_CHANGE)

    @property
    def may_be_long(self) -> bool:
        """Whether it waits for other clients. A stop of the broker does not wait for that."""
        return self in (Kind.LONG_POLL, Kind.LONG_CHANGE)


class ServedApi(NamedTuple):
    """One API in the versions `first` to `last`. ApiVersions names them from `advertised_first` on."""

    kind: Kind
    first: int
    last: int
    advertised_first: int

    def has(self, version: int) -> bool:
        return self.first <= version <= self.last


def _served(kind: Kind, first: int, last: int, advertised_first: int | None = None) -> ServedApi:
    return ServedApi(kind, first, last, first if advertised_first is None else advertised_first)


def _every_version(key: ApiKey, kind: Kind, advertised_first: int | None = None) -> ServedApi:
    """An API that is served in each version that has codecs."""
    return _served(kind, APIS[key].min_version, APIS[key].max_version, advertised_first)


SERVED_APIS: Mapping[ApiKey, ServedApi] = {
    # Produce is advertised from 0: librdkafka before 2.11.1 otherwise turns compression off (KAFKA-18659).
    ApiKey.PRODUCE: _every_version(ApiKey.PRODUCE, Kind.APPEND, advertised_first=0),
    ApiKey.FETCH: _every_version(ApiKey.FETCH, Kind.LONG_POLL),
    ApiKey.LIST_OFFSETS: _served(Kind.READ, 1, 7),
    ApiKey.METADATA: _served(Kind.CHANGE, 0, 12),  # It creates topics.
    ApiKey.OFFSET_COMMIT: _served(Kind.CHANGE, 2, 10),
    ApiKey.OFFSET_FETCH: _served(Kind.READ, 1, 10),
    ApiKey.FIND_COORDINATOR: _served(Kind.CHANGE, 0, 5),  # It creates internal topics.
    ApiKey.JOIN_GROUP: _served(Kind.LONG_CHANGE, 0, 9),
    ApiKey.HEARTBEAT: _served(Kind.CHANGE, 0, 4),
    ApiKey.LEAVE_GROUP: _served(Kind.CHANGE, 0, 5),
    ApiKey.SYNC_GROUP: _served(Kind.LONG_CHANGE, 0, 5),
    ApiKey.DESCRIBE_GROUPS: _served(Kind.READ, 0, 6),
    ApiKey.LIST_GROUPS: _served(Kind.READ, 0, 5),
    ApiKey.SASL_HANDSHAKE: _served(Kind.CHANGE, 0, 1),
    ApiKey.API_VERSIONS: _served(Kind.READ, 0, 4),
    ApiKey.CREATE_TOPICS: _served(Kind.CHANGE, 2, 7),
    ApiKey.DELETE_TOPICS: _served(Kind.CHANGE, 1, 6),
    ApiKey.DELETE_RECORDS: _served(Kind.CHANGE, 0, 2),
    ApiKey.INIT_PRODUCER_ID: _served(Kind.CHANGE, 0, 6),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _served(Kind.READ, 2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: _served(Kind.CHANGE, 0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: _served(Kind.CHANGE, 0, 4),
    ApiKey.END_TXN: _served(Kind.CHANGE, 0, 5),
    ApiKey.WRITE_TXN_MARKERS: _served(Kind.CHANGE, 1, 2),
    ApiKey.TXN_OFFSET_COMMIT: _served(Kind.CHANGE, 0, 5),
    ApiKey.DESCRIBE_ACLS: _served(Kind.READ, 1, 3),
    ApiKey.CREATE_ACLS: _served(Kind.CHANGE, 1, 3),
    ApiKey.DELETE_ACLS: _served(Kind.CHANGE, 1, 3),
    ApiKey.DESCRIBE_CONFIGS: _served(Kind.READ, 1, 4),
    ApiKey.ALTER_CONFIGS: _served(Kind.CHANGE, 0, 2),
    ApiKey.SASL_AUTHENTICATE: _served(Kind.CHANGE, 0, 2),
    ApiKey.CREATE_PARTITIONS: _served(Kind.CHANGE, 0, 3),
    ApiKey.DELETE_GROUPS: _served(Kind.CHANGE, 0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _served(Kind.CHANGE, 0, 1),
    ApiKey.OFFSET_DELETE: _served(Kind.CHANGE, 0, 0),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _served(Kind.READ, 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _served(Kind.CHANGE, 0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _served(Kind.READ, 0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: _served(Kind.CHANGE, 0, 1),
    ApiKey.DESCRIBE_CLUSTER: _served(Kind.READ, 0, 1),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _served(Kind.CHANGE, 0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _served(Kind.READ, 0, 1),
    ApiKey.DESCRIBE_PRODUCERS: _served(Kind.READ, 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: _served(Kind.READ, 0, 0),
    ApiKey.LIST_TRANSACTIONS: _served(Kind.READ, 0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: _served(Kind.READ, 1, 4),
    ApiKey.ELECT_LEADERS: _served(Kind.READ, 0, 2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _served(Kind.READ, 0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _served(Kind.READ, 0, 0),
    ApiKey.DESCRIBE_QUORUM: _served(Kind.READ, 0, 2),
    ApiKey.UPDATE_FEATURES: _served(Kind.READ, 0, 2),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _served(Kind.READ, 0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: _served(Kind.READ, 0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _served(Kind.READ, 0, 0),
}


def advertised_api_keys(keys: Iterable[ApiKey] = SERVED_APIS) -> list[dict[str, int]]:
    """The `api_keys` of an ApiVersions response for these APIs, in ascending order."""
    return [
        {
            "api_key": int(key),
            "min_version": SERVED_APIS[key].advertised_first,
            "max_version": SERVED_APIS[key].last,
        }
        for key in sorted(keys)
    ]


@cache
def unsupported_api_versions_body() -> bytes:
    """The answer to an ApiVersions request of an unknown version: a version 0 body with error 35.

    It holds the range of ApiVersions itself, so that the client can ask again (KIP-511).
    """
    values = {
        "error_code": ErrorCode.UNSUPPORTED_VERSION,
        "api_keys": advertised_api_keys((ApiKey.API_VERSIONS,)),
    }
    return encode_response(ApiKey.API_VERSIONS, 0, values)
