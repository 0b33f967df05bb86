"""What a broker refuses while it cannot reach the cluster's store.

Owns the list. Others may have fenced such a broker, or deleted or created topics, without its knowledge. So
it coordinates nothing: a group or a transaction has one coordinator at a time.

Records are written and read as before if the partition has one replica: no other broker can have newer ones.
A partition with followers is served while every other replica that may be elected (in sync, eligible, or
being added) fetches from this one in its epoch: a broker that fetches does not lead and knows of no other
leader. The last fetch may be half a session timeout old, so records of another leader are missed for at most
this time. If no other broker may be elected, it is served without end. Otherwise clients get
NOT_LEADER_OR_FOLLOWER, and look for the new leader (`Services.check_not_replaced`). Records that were
acknowledged with acks=all are safe in any case.

The same holds for a partition that this broker gives up, because its disk is full or slow, until the store
has answered: another broker may lead by then. The last fetch may be twice `replica.fetch.wait.max.ms` old.

Producer ids come from a block that the catalog gave to this broker alone. Metadata may be old, as at every
broker; a former leader that it names refuses requests. FindCoordinator names the other brokers in the same
way (`Shards.check` refuses the keys of this one): clients such as franz-go treat its refusal as final.

The codes are those after which clients look for the coordinator again.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from tidelog.broker.cluster.membership import Membership
from tidelog.broker.handlers.context import Handler, RequestContext
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import ApiKey

CODES: Final[Mapping[ApiKey, ErrorCode]] = {
    ApiKey.LIST_GROUPS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ApiKey.LIST_TRANSACTIONS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    **dict.fromkeys(
        (
            ApiKey.OFFSET_COMMIT,
            ApiKey.OFFSET_FETCH,
            ApiKey.OFFSET_DELETE,
            ApiKey.JOIN_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.DELETE_GROUPS,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.END_TXN,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.DESCRIBE_TRANSACTIONS,
        ),
        ErrorCode.NOT_COORDINATOR,
    ),
}


def refused_while_cut_off(membership: Membership, key: ApiKey, handler: Handler) -> Handler:
    """The handler of an API of a broker among others, which refuses what only a member may answer."""
    code = CODES.get(key)
    if code is None:
        return handler

    def handle(context: RequestContext, request: object) -> Any:
        if membership.is_cut_off and _needs_coordinator(key, request):
            raise ApiError(code, "this broker cannot reach the cluster's store")
        return handler(context, request)

    return handle


def _needs_coordinator(key: ApiKey, request: object) -> bool:
    if key != ApiKey.INIT_PRODUCER_ID:
        return True
    return cast("types.InitProducerIdRequest", request).transactional_id is not None
