"""The look-up of a coordinator: the broker that keeps a group, or a transactional id.

Owns FindCoordinator and the kinds of its keys. Invariants: nothing is remembered here.
"""

from typing import Final

from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode, error_code
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.wire.cluster import Cluster
from tidelog.wire.errors import broker_error

GROUP: Final = 0
TRANSACTION: Final = 1
NAMES: Final = {GROUP: "group", TRANSACTION: "transactional id"}


async def find_coordinator(cluster: Cluster, key: str, key_type: int) -> int:
    """The node id of the coordinator. Raises ClientError."""
    values: DictOf[types.FindCoordinatorRequest] = {"key": key, "key_type": key_type}
    answer: types.FindCoordinatorResponse = await cluster.call_any(ApiKey.FIND_COORDINATOR, values)
    code = error_code(answer.error_code)
    if code is not ErrorCode.NONE:
        raise broker_error(code, f"the coordinator of {NAMES[key_type]} {key!r}", answer.error_message)
    return answer.node_id
