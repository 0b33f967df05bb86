"""What an API may need: operations on resources, and what happens without them.

Owns the words for it; the row of an API in `broker.served_apis` declares its permissions. A need with a
`field` concerns the whole request, and `broker.handlers.access_control` checks it before the handler runs.

Invariant: pure.

Source: Kafka's KafkaApis, ControllerApis and AclApis; KIP-679 (idempotent producers), KIP-848 and KIP-939.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from tidelog.protocol.acls import Operation, ResourceType
from tidelog.protocol.errors import ErrorCode

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
DESCRIBE_GROUP_CONFIGS: Final = _right(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP)
ALTER_GROUP_CONFIGS: Final = _right(Operation.ALTER_CONFIGS, ResourceType.GROUP)
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
    request that names the resource, or `OF_CLUSTER`."""

    rights: tuple[Right, ...]
    effect: Effect
    when: str = ""
    field: str = ""
    first: int = 0
    last: int = LAST
    code: ErrorCode | None = None
    """With which code a request is refused, where it is not that of the last right."""

    @property
    def refusal(self) -> ErrorCode:
        return self.rights[-1].refusal if self.code is None else self.code


OF_CLUSTER: Final = "(cluster)"
"""The `field` of a need that concerns the whole request and the cluster."""


def whole(*rights: Right, field: str = OF_CLUSTER, when: str = "", first: int = 0, last: int = LAST) -> Need:
    """Without it the request is refused."""
    return Need(rights, Effect.REFUSED, when, field, first, last)


def each(*rights: Right, when: str = "", last: int = LAST) -> Need:
    """Without it the resource is refused."""
    return Need(rights, Effect.REFUSED_ALONE, when, last=last)


def shown(*rights: Right, when: str = "") -> Need:
    """Without it the resource is left out of the answer."""
    return Need(rights, Effect.LEFT_OUT, when)


NOTHING: Final[tuple[Need, ...]] = ()
"""The needs of an API that every client may use."""
