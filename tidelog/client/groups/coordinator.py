"""Requests to the coordinator of one group.

Owns: how a coordinator is found, and on which connection a request waits. Invariants: a request that the
coordinator holds back (JoinGroup, SyncGroup) has a connection of its own, because brokers answer in order and
heartbeats must not wait for it. Errors of the lookup are raised; those within an answer are the caller's.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from tidelog.client.coordinators import GROUP, find_coordinator
from tidelog.protocol.schema import ApiKey
from tidelog.wire.cluster import Cluster
from tidelog.wire.errors import BrokerUnavailableError

_JOIN_LANE: Final = "group"


class _Member(Protocol):
    coordinator: int | None

    def coordinator_found(self, node_id: int) -> None: ...


class GroupCoordinator:
    """Finds the coordinator of the group `group_id`, and sends requests to it."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id

    async def find(self) -> int:
        """The node id of the coordinator. Raises ClientError."""
        return await find_coordinator(self._cluster, self._group_id, GROUP)

    async def find_for(self, membership: _Member) -> int:
        """The node id that the membership knows, looked up if it knows none. Raises ClientError."""
        if membership.coordinator is None:
            membership.coordinator_found(await self.find())
        if membership.coordinator is None:
            raise BrokerUnavailableError("the group's coordinator changed meanwhile")
        return membership.coordinator

    async def call(
        self,
        node_id: int,
        api_key: ApiKey,
        values: Mapping[str, object] | Callable[[int], Mapping[str, object]],
        *,
        timeout_ms: int | None = None,
        is_held_back: bool = False,
        at_most: int | None = None,
    ) -> Any:
        """The decoded answer. `values` may depend on the version, the highest that the coordinator supports
        up to `at_most`. Raises ClientError if there is no answer."""
        connection = await self._cluster.connected(node_id, _JOIN_LANE if is_held_back else "")
        version = connection.version(api_key, at_most=at_most)
        fields = values(version) if callable(values) else values
        return await connection.call(api_key, fields, version=version, timeout_ms=timeout_ms)
