"""FindCoordinator: which broker coordinates a group or a transactional id.

Owns the answer: the leader of the key's partition of the topic that stores groups, or transactional ids. The
first request for a coordinator creates that topic. A key whose partition is not served has no coordinator, as
far as this broker knows. Without this API, librdkafka treats the broker as too old for lz4, and sends such
batches uncompressed.

Versions: 0 asks for groups only; up to 3 a request has one key, from 4 on several of one type; only 6 asks
for share partitions. Source: Kafka's KafkaApis.handleFindCoordinatorRequest, KIP-699, KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.coordinator.group_coordinator import GroupCoordinator
from tidelog.broker.coordinator.transaction_coordinator import TransactionCoordinator
from tidelog.broker.handlers.access_control import GuardedHandler
from tidelog.broker.handlers.brokers import address_of
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.security.required_access import (
    CLUSTER_ACTION,
    DESCRIBE_GROUP,
    DESCRIBE_TRANSACTION,
    Right,
)
from tidelog.protocol import message_types as types
from tidelog.protocol.acls import CLUSTER_NAME
from tidelog.protocol.errors import ApiError, ErrorCode, again
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.steps import Pace, Steps, each

if TYPE_CHECKING:
    from tidelog.broker.coordinator.share_coordinator import ShareCoordinator

    _Coordinator = GroupCoordinator | TransactionCoordinator | ShareCoordinator
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_NO_ERROR = ErrorCode.NONE.name
"""Kafka's message of a success, in the versions with a single key."""
_KEY_TYPES = {_GROUP: "group", _TRANSACTION: "transaction", _SHARE: "share, from version 6 on"}
_FIRST_VERSION_OF_SHARE = 6
_RIGHTS = {_GROUP: DESCRIBE_GROUP, _TRANSACTION: DESCRIBE_TRANSACTION, _SHARE: CLUSTER_ACTION}


class CoordinatorsHandler(GuardedHandler):
    """Serves FindCoordinator 0-6."""

    async def find_coordinator(
        self, context: RequestContext, request: types.FindCoordinatorRequest
    ) -> DictOf[types.FindCoordinatorResponse]:
        """One answer per key; the first (or only) one also in the fields of versions with a single key."""
        keys = dict.fromkeys(request.coordinator_keys or [request.key])
        of_type = self._of_type(context, request.key_type)
        right = None if of_type is None else _RIGHTS[request.key_type]
        denied = await self._services.turns.run(self._denied(context, right, keys))
        refusal: ApiError | None = None
        # Who may not ask for any of the keys causes no topic.
        if of_type is not None and len(denied) < len(keys):
            try:
                await of_type.make_topic()
            except ApiError as error:
                refusal = again(error)

        def coordinator(key: str) -> DictOf[types.FindCoordinatorResponseCoordinator]:
            try:
                if right is not None and key in denied:
                    raise ApiError(right.refusal)
                if refusal is not None:
                    raise again(refusal)
                return {"key": key, **self._coordinator(context, of_type, request.key_type, key)}
            except ApiError as error:
                answer: DictOf[types.FindCoordinatorResponseCoordinator] = {
                    "node_id": -1,
                    "host": "",
                    "port": -1,
                    "error_code": error.code,
                }
                return {"key": key, **answer, "error_message": error.message}

        answers = await self._services.turns.run(each(coordinator, keys, Pace()))
        first = answers[0]
        return {
            "error_code": first["error_code"],
            "error_message": first.get("error_message", _NO_ERROR),
            "node_id": first["node_id"],
            "host": first["host"],
            "port": first["port"],
            "coordinators": answers if request.coordinator_keys else [],
        }

    def _denied(self, context: RequestContext, right: Right | None, keys: Iterable[str]) -> Steps[set[str]]:
        """The keys that the principal may not describe."""
        if right is None or not self._access.is_on:
            return set()
        if right is CLUSTER_ACTION:
            return set() if self._access.allows(context, right, CLUSTER_NAME) else set(keys)
        allowed = yield from each(partial(self._access.allows, context, right), keys, Pace())
        return {key for key, is_allowed in zip(keys, allowed, strict=True) if not is_allowed}

    def _of_type(self, context: RequestContext, key_type: int) -> _Coordinator | None:
        if key_type == _GROUP:
            return self._services.groups
        if key_type == _SHARE and context.header.api_version >= _FIRST_VERSION_OF_SHARE:
            return self._services.share.coordinator
        return self._services.transactions if key_type == _TRANSACTION else None

    def _coordinator(
        self, context: RequestContext, of_type: _Coordinator | None, key_type: int, key: str
    ) -> DictOf[types.FindCoordinatorResponseCoordinator]:
        if of_type is None:
            expected = " or ".join(f"{number} ({name})" for number, name in _KEY_TYPES.items())
            message = f"expected key type {expected}, got {key_type}"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        if key_type == _SHARE and not self._services.share.is_key(key):
            message = f"expected a key group:topic id:partition, got {key}"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        node_id = of_type.leader_of(key)
        listener = address_of(self._services, context, node_id)
        if listener is None or not self._services.is_live(node_id):
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the partition of {key} has no leader now")
        if node_id == self._services.node_id:
            of_type.check(key)
        return {
            "node_id": node_id,
            "host": listener.host,
            "port": listener.port,
            "error_code": ErrorCode.NONE,
        }
