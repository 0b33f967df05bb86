"""What each API needs: the one table of operations on resources.

Owns `REQUIRED_ACCESS`. A need with a `field` concerns the whole request, and `broker.handlers.access_control`
checks it before the handler runs. The other needs concern parts of a request (each topic, each group), and
the API's handler checks them. `docs/security` shows this table.

Invariants: pure; an API without a row cannot be served (`check_complete`); the tests go through the table:
each need is necessary, and all needs of an API together are enough.

Source: Kafka's KafkaApis, ControllerApis and AclApis; KIP-679 (idempotent producers), KIP-848 and KIP-939.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from tidelog.protocol.acls import Operation, ResourceType
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

REFUSALS: Final[Mapping[ResourceType, ErrorCode]] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""Type of a resource -> the code with which access to it is refused."""


class Right(NamedTuple):
    """An operation on resources of one type. `bit` is the operation in a set of operations."""

    operation: Operation
    resource_type: ResourceType
    bit: int

    @property
    def refusal(self) -> ErrorCode:
        """The code of a request that lacks this right."""
        return REFUSALS[self.resource_type]


def _right(operation: Operation, resource_type: ResourceType) -> Right:
    return Right(operation, resource_type, 1 << operation)


READ_TOPIC: Final = _right(Operation.READ, ResourceType.TOPIC)
WRITE_TOPIC: Final = _right(Operation.WRITE, ResourceType.TOPIC)
CREATE_TOPIC: Final = _right(Operation.CREATE, ResourceType.TOPIC)
DELETE_TOPIC: Final = _right(Operation.DELETE, ResourceType.TOPIC)
ALTER_TOPIC: Final = _right(Operation.ALTER, ResourceType.TOPIC)
DESCRIBE_TOPIC: Final = _right(Operation.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_TOPIC_CONFIGS: Final = _right(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
ALTER_TOPIC_CONFIGS: Final = _right(Operation.ALTER_CONFIGS, ResourceType.TOPIC)
READ_GROUP: Final = _right(Operation.READ, ResourceType.GROUP)
DELETE_GROUP: Final = _right(Operation.DELETE, ResourceType.GROUP)
DESCRIBE_GROUP: Final = _right(Operation.DESCRIBE, ResourceType.GROUP)
WRITE_TRANSACTION: Final = _right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTION: Final = _right(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
TWO_PHASE_COMMIT: Final = _right(Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID)
CREATE_CLUSTER: Final = _right(Operation.CREATE, ResourceType.CLUSTER)
DELETE_CLUSTER: Final = _right(Operation.DELETE, ResourceType.CLUSTER)
ALTER_CLUSTER: Final = _right(Operation.ALTER, ResourceType.CLUSTER)
DESCRIBE_CLUSTER: Final = _right(Operation.DESCRIBE, ResourceType.CLUSTER)
CLUSTER_ACTION: Final = _right(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS: Final = _right(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
ALTER_CLUSTER_CONFIGS: Final = _right(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
IDEMPOTENT_WRITE: Final = _right(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)


LAST: Final = 99
"""Later than all versions."""


class Effect(Enum):
    """What happens without a right."""

    REFUSED = "the request is refused"
    REFUSED_ALONE = "only this resource is refused"
    LEFT_OUT = "the resource is left out of the answer"


class Need(NamedTuple):
    """One of `rights` is needed (the last one says with which code a request is refused), of requests in the
    versions `first` to `last`. `when` says of which requests; empty: of all. `field` is the field of the
    request that names the resource, or `OF_CLUSTER`.
    """

    rights: tuple[Right, ...]
    effect: Effect
    when: str = ""
    field: str = ""
    first: int = 0
    last: int = LAST


OF_CLUSTER: Final = "(cluster)"
"""The `field` of a need that concerns the whole request and the cluster."""


def _whole(*rights: Right, field: str = OF_CLUSTER, when: str = "", first: int = 0, last: int = LAST) -> Need:
    return Need(rights, Effect.REFUSED, when, field, first, last)


def _each(*rights: Right, when: str = "", last: int = LAST) -> Need:
    return Need(rights, Effect.REFUSED_ALONE, when, last=last)


def _shown(*rights: Right, when: str = "") -> Need:
    return Need(rights, Effect.LEFT_OUT, when)


_MEMBER: Final = (_whole(READ_GROUP, field="group_id"),)
_NOTHING: Final[tuple[Need, ...]] = ()
_OF_CONSUMED: Final = "not for offsets of __transaction_state, which has no consumers"
_SEES_OPERATIONS: Final = _shown(
    DESCRIBE_CLUSTER, when="it asks for the authorized operations of the cluster"
)

REQUIRED_ACCESS: Final[Mapping[ApiKey, tuple[Need, ...]]] = {
    ApiKey.PRODUCE: (
        Need((WRITE_TRANSACTION,), Effect.REFUSED, "it names a transactional id"),
        _each(WRITE_TOPIC),
    ),
    ApiKey.FETCH: (_each(READ_TOPIC),),
    ApiKey.LIST_OFFSETS: (_each(DESCRIBE_TOPIC),),
    ApiKey.METADATA: (
        _each(DESCRIBE_TOPIC, when="it names topics"),
        _shown(DESCRIBE_TOPIC, when="it asks for all topics"),
        _each(CREATE_CLUSTER, CREATE_TOPIC, when="it creates a topic that does not exist"),
        _SEES_OPERATIONS,
    ),
    ApiKey.OFFSET_COMMIT: (_whole(READ_GROUP, field="group_id"), _each(READ_TOPIC, when=_OF_CONSUMED)),
    ApiKey.OFFSET_FETCH: (
        _each(DESCRIBE_GROUP),
        _each(DESCRIBE_TOPIC, when=f"it names topics; {_OF_CONSUMED}"),
        _shown(DESCRIBE_TOPIC, when=f"it asks for all topics; {_OF_CONSUMED}"),
    ),
    ApiKey.FIND_COORDINATOR: (
        _each(DESCRIBE_GROUP, when="it asks for groups"),
        _each(DESCRIBE_TRANSACTION, when="it asks for transactional ids"),
    ),
    ApiKey.JOIN_GROUP: _MEMBER,
    ApiKey.HEARTBEAT: _MEMBER,
    ApiKey.LEAVE_GROUP: _MEMBER,
    ApiKey.SYNC_GROUP: _MEMBER,
    ApiKey.DESCRIBE_GROUPS: (_each(DESCRIBE_GROUP),),
    ApiKey.LIST_GROUPS: (_shown(DESCRIBE_CLUSTER, DESCRIBE_GROUP),),
    ApiKey.SASL_HANDSHAKE: _NOTHING,
    ApiKey.API_VERSIONS: _NOTHING,
    ApiKey.CREATE_TOPICS: (
        _each(CREATE_CLUSTER, CREATE_TOPIC),
        _shown(DESCRIBE_TOPIC_CONFIGS, when="for the settings of the new topic in the answer"),
    ),
    ApiKey.DELETE_TOPICS: (
        _each(DELETE_CLUSTER, DELETE_TOPIC),
        _shown(DELETE_CLUSTER, DESCRIBE_TOPIC, when="for the name of a topic that it names by id"),
    ),
    ApiKey.DELETE_RECORDS: (_each(DELETE_TOPIC),),
    ApiKey.INIT_PRODUCER_ID: (
        _whole(WRITE_TRANSACTION, field="transactional_id", when="it names a transactional id"),
        Need((TWO_PHASE_COMMIT,), Effect.REFUSED, "it asks for two-phase commit"),
        Need(
            (WRITE_TOPIC, IDEMPOTENT_WRITE),
            Effect.REFUSED,
            "it names no transactional id; Write on any topic is enough",
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (_each(CLUSTER_ACTION, DESCRIBE_TOPIC),),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        _whole(WRITE_TRANSACTION, field="v3_and_below_transactional_id", last=3),
        _each(WRITE_TOPIC, last=3),
        _whole(CLUSTER_ACTION, first=4),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (
        _whole(WRITE_TRANSACTION, field="transactional_id"),
        _whole(READ_GROUP, field="group_id"),
    ),
    ApiKey.END_TXN: (_whole(WRITE_TRANSACTION, field="transactional_id"),),
    ApiKey.WRITE_TXN_MARKERS: (_whole(ALTER_CLUSTER, CLUSTER_ACTION),),
    ApiKey.TXN_OFFSET_COMMIT: (
        _whole(WRITE_TRANSACTION, field="transactional_id"),
        _whole(READ_GROUP, field="group_id"),
        _each(READ_TOPIC, when=_OF_CONSUMED),
    ),
    ApiKey.DESCRIBE_ACLS: (_whole(DESCRIBE_CLUSTER),),
    ApiKey.CREATE_ACLS: (_whole(ALTER_CLUSTER),),
    ApiKey.DELETE_ACLS: (_whole(ALTER_CLUSTER),),
    ApiKey.DESCRIBE_CONFIGS: (
        _each(DESCRIBE_TOPIC_CONFIGS, when="it names topics"),
        _each(DESCRIBE_CLUSTER_CONFIGS, when="it names brokers"),
    ),
    ApiKey.ALTER_CONFIGS: (
        _each(ALTER_TOPIC_CONFIGS, when="it names topics"),
        _each(ALTER_CLUSTER_CONFIGS, when="it names brokers"),
    ),
    ApiKey.SASL_AUTHENTICATE: _NOTHING,
    ApiKey.CREATE_PARTITIONS: (_each(ALTER_TOPIC),),
    ApiKey.DELETE_GROUPS: (_each(DELETE_GROUP),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        _each(ALTER_TOPIC_CONFIGS, when="it names topics"),
        _each(ALTER_CLUSTER_CONFIGS, when="it names brokers"),
    ),
    ApiKey.OFFSET_DELETE: (_whole(DELETE_GROUP, field="group_id"), _each(READ_TOPIC)),
    ApiKey.DESCRIBE_CLUSTER: (_SEES_OPERATIONS,),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        _whole(READ_GROUP, field="group_id"),
        Need((DESCRIBE_TOPIC,), Effect.REFUSED, "it names topics; each of them"),
        _shown(DESCRIBE_TOPIC, when="it subscribes by a regular expression"),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        _each(DESCRIBE_GROUP),
        _each(DESCRIBE_TOPIC, when="topics are assigned to members of the group; the group is refused"),
    ),
    ApiKey.DESCRIBE_PRODUCERS: (_each(READ_TOPIC),),
    ApiKey.DESCRIBE_TRANSACTIONS: (_each(DESCRIBE_TRANSACTION), _shown(DESCRIBE_TOPIC)),
    ApiKey.LIST_TRANSACTIONS: (_shown(DESCRIBE_TRANSACTION),),
    ApiKey.DESCRIBE_LOG_DIRS: (_whole(DESCRIBE_CLUSTER),),
    ApiKey.ELECT_LEADERS: (_whole(ALTER_CLUSTER),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (_whole(ALTER_CLUSTER),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (_whole(DESCRIBE_CLUSTER),),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (_whole(DESCRIBE_CLUSTER_CONFIGS),),
    ApiKey.ALTER_CLIENT_QUOTAS: (_whole(ALTER_CLUSTER_CONFIGS),),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (_whole(DESCRIBE_CLUSTER),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (_whole(ALTER_CLUSTER),),
    ApiKey.DESCRIBE_QUORUM: (_whole(DESCRIBE_CLUSTER),),
    ApiKey.UPDATE_FEATURES: (_whole(ALTER_CLUSTER),),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _NOTHING,
    ApiKey.LIST_CONFIG_RESOURCES: (_whole(DESCRIBE_CLUSTER_CONFIGS),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        _each(DESCRIBE_TOPIC, when="it names topics"),
        _shown(DESCRIBE_TOPIC, when="it asks for all topics"),
    ),
}
"""API -> its needs; () for an API that every client may use."""


def check_complete(api_keys: Iterable[ApiKey]) -> None:
    """Raise ValueError for an API that has no row in `REQUIRED_ACCESS`, so that none is open by mistake."""
    missing = [key.name for key in api_keys if key not in REQUIRED_ACCESS]
    if missing:
        raise ValueError(f"broker.security.required_access does not say what {', '.join(missing)} needs")
