"""Whether the principal of a request may do what the request asks for.

Owns the check of the needs that concern whole requests (`guarded`), the one question that handlers ask about
parts of a request (`AccessControl`), and the counts and events of what is refused.

Invariants: a request is checked against the ACLs of the time at which it is served, so a change of ACLs
counts from the next request on, also in a fetch session; a request that is refused as a whole reaches no
handler.

Source: Kafka's AuthHelper.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from tidelog.broker.cluster.catalog import TRANSACTIONS_TOPIC
from tidelog.broker.handlers.connection_state import ConnectionState
from tidelog.broker.handlers.context import Handler, RequestContext
from tidelog.broker.security.authorizer import SUPPORTED_OPERATIONS, Access, Authorizer
from tidelog.broker.security.required_access import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC,
    OF_CLUSTER,
    Need,
    Right,
)
from tidelog.broker.services import Services
from tidelog.protocol.acls import CLUSTER_NAME, ResourceType
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.schema import APIS, ApiKey
from tidelog.protocol.steps import Pace

_GroupT = TypeVar("_GroupT")
ELEMENTS_PER_GROUP = 10
"""One group takes as long as about this many elements: its coordinator runs a transition."""


class AccessControl:
    """The authorizer as handlers use it. `is_on` is false where none is configured."""

    def __init__(self, services: Services) -> None:
        self._authorizer: Authorizer | None = services.acls.authorizer
        self.is_on = self._authorizer is not None
        self._events = services.events
        self._metrics = services.metrics

    def allows(self, context: RequestContext, right: Right, name: str) -> bool:
        """Whether the request may do this with the resource of this name; a refusal is counted."""
        if self._authorizer is None or self.shows(context, right, name):
            return True
        self.refused(context, right, name)
        return False

    def allows_one(self, context: RequestContext, rights: tuple[Right, ...], name: str) -> bool:
        """As `allows` for one of these rights. Those on the cluster need no name."""
        if self._authorizer is None or any(
            self.shows(context, right, _name_of(right, name)) for right in rights
        ):
            return True
        self.refused(context, rights[-1], _name_of(rights[-1], name))
        return False

    def check(self, context: RequestContext, right: Right, name: str) -> None:
        """Raise ApiError, as `right` says, unless the request may do this."""
        if self._authorizer is not None and not self.allows(context, right, name):
            raise ApiError(right.refusal)

    def allows_offsets(self, context: RequestContext, right: Right, topic: str) -> bool:
        """As `allows`, for the committed offsets of a topic. Those of `__transaction_state` need rights on
        the group only: the topic has no consumers, and the Spark sink keeps its decisions there."""
        return topic == TRANSACTIONS_TOPIC or self.allows(context, right, topic)

    def shows_offsets(self, context: RequestContext, right: Right, topic: str) -> bool:
        """As `allows_offsets`, for what is only left out of an answer."""
        return topic == TRANSACTIONS_TOPIC or self.shows(context, right, topic)

    def shows(self, context: RequestContext, right: Right, name: str) -> bool:
        """As `allows`, for what is only left out of an answer: that is not counted."""
        if self._authorizer is None:
            return True
        connection = context.connection
        access = connection.access or self._access_of(connection, self._authorizer)
        return bool(access.allowed(right.resource_type, name) & right.bit)

    def allows_any(self, context: RequestContext, right: Right) -> bool:
        """Whether the request may do this with at least one resource."""
        if self._authorizer is None:
            return True
        access = context.connection.access or self._access_of(context.connection, self._authorizer)
        if access.may_with_any(right.operation, right.resource_type):
            return True
        self.refused(context, right, "*")
        return False

    def is_super(self, context: RequestContext) -> bool:
        """Whether the principal may do everything, as brokers of the cluster may with its own secret."""
        if self._authorizer is None:
            return True
        access = context.connection.access or self._access_of(context.connection, self._authorizer)
        return access.is_super

    def operations(self, context: RequestContext, resource_type: ResourceType, name: str) -> int:
        """The operations that the request may do with a resource, as the bits of KIP-430."""
        supported = SUPPORTED_OPERATIONS[resource_type]
        if self._authorizer is None:
            return supported
        access = context.connection.access or self._access_of(context.connection, self._authorizer)
        return access.allowed(resource_type, name) & supported

    def cluster_operations(self, context: RequestContext) -> int:
        """As `operations` for the cluster; none for whom may not describe it."""
        if not self.allows(context, DESCRIBE_CLUSTER, CLUSTER_NAME):
            return 0
        return self.operations(context, ResourceType.CLUSTER, CLUSTER_NAME)

    def seen_by(self, context: RequestContext, right: Right) -> Callable[[str], bool]:
        """A function that returns whether the principal of this request has this right on a name."""
        if self._authorizer is None:
            return lambda _: True
        access = context.connection.access or self._access_of(context.connection, self._authorizer)
        return lambda name: bool(access.allowed(right.resource_type, name) & right.bit)

    @staticmethod
    def _access_of(connection: ConnectionState, authorizer: Authorizer) -> Access:
        principal = connection.principal
        access = authorizer.access(f"{principal.type}:{principal.name}", connection.client_host)
        connection.access = access
        return access

    def refused(self, context: RequestContext, right: Right, name: str) -> None:
        """Count and report a refusal that `shows` found."""
        operation, resource = right.operation.name, right.resource_type.name
        self._metrics.access_denied(operation, resource)
        principal = context.connection.principal
        self._events.warning(
            "access_denied",
            context.connection.client_host,
            principal=f"{principal.type}:{principal.name}",
            peer=context.connection.client_host,
            client_id=context.header.client_id,
            api=APIS[ApiKey(context.header.api_key)].name,
            operation=operation,
            resource_type=resource,
            resource=name,
        )


def _name_of(right: Right, name: str) -> str:
    return CLUSTER_NAME if right.resource_type == ResourceType.CLUSTER else name


class GuardedHandler:
    """What a handler begins with: open services, and the question who may do what with them."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._access = AccessControl(services)

    async def _described_groups(
        self,
        context: RequestContext,
        group_ids: Iterable[str],
        described: Callable[[RequestContext, str], Awaitable[_GroupT]],
        with_operations: bool,
    ) -> list[_GroupT]:
        """Each of these groups once; with the operations that the user may do if asked for."""
        groups: list[_GroupT] = []
        pace = Pace()
        for group_id in dict.fromkeys(group_ids):
            answer: Any = await described(context, group_id)
            if with_operations and answer["error_code"] == ErrorCode.NONE:
                operations = self._access.operations(context, ResourceType.GROUP, group_id)
                answer["authorized_operations"] = operations
            groups.append(answer)
            if pace.spent(ELEMENTS_PER_GROUP):
                await self._services.turns.next()
        return groups

    def _check_may_describe(self, context: RequestContext, topics: Mapping[UUID, str]) -> None:
        """Raise ApiError unless the user may describe all topics that are assigned in a group: id -> name."""
        if not all(self._access.allows(context, DESCRIBE_TOPIC, name) for name in topics.values()):
            raise ApiError(
                DESCRIBE_TOPIC.refusal,
                "The group has described topic(s) that the client is not authorized to describe.",
            )


def guarded(access: AccessControl, needs: tuple[Need, ...], handler: Handler) -> Handler:
    """The handler; with an authorizer, what concerns whole requests is checked before it."""
    of_request = tuple(need for need in needs if need.field)
    if not access.is_on or not of_request:
        return handler

    def handle(context: RequestContext, request: object) -> Any:
        for need in of_request:
            if need.first <= context.header.api_version <= need.last:
                name = CLUSTER_NAME if need.field == OF_CLUSTER else getattr(request, need.field)
                # Without a name (InitProducerId, no transactional id) another need applies.
                if name is not None and not access.allows_one(context, need.rights, name):
                    raise ApiError(need.refusal)
        return handler(context, request)

    return handle
