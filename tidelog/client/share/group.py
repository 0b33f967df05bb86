"""One consumer's membership in a share group: it carries out its steps.

Owns: the watch on the application. Invariants: `assign` is called with what the broker assigned, as soon as
it is known; nothing waits for the application. One that does nothing is no member. For one event loop.
"""

import asyncio
from collections.abc import Callable
from uuid import uuid4

from tidelog.client.groups import steps
from tidelog.client.groups.member import GroupMember
from tidelog.client.groups.subscription import TopicSubscription
from tidelog.client.share.config import ShareConsumerConfig
from tidelog.client.share.membership import ShareMembership
from tidelog.protocol.types import TopicPartition
from tidelog.wire.cluster import Cluster

_CHECKS_PER_POLL_INTERVAL = 4


class ShareGroup(GroupMember):
    """Keeps one consumer a member of its share group. `start` it within its loop. `assign` gets the
    partitions to read."""

    def __init__(
        self,
        config: ShareConsumerConfig,
        cluster: Cluster,
        assign: Callable[[frozenset[TopicPartition]], None],
        on_error: Callable[[], None],
    ) -> None:
        membership = ShareMembership(config.group_id, uuid4(), rack_id=config.client_rack)
        super().__init__(membership, cluster, on_error, cluster.config.request_timeout_ms)
        self._assign = assign
        self._max_idle_ms = config.max_poll_interval_ms

    def start(self, idle_seconds: Callable[[], float]) -> None:
        """Begin to work. The loop must run. `idle_seconds` says how long the application has done nothing."""
        self._begin(self._watch_reads(idle_seconds))

    def subscribe(self, subscription: TopicSubscription | None) -> None:
        """Be a member that reads these topics; None: leave the group."""
        super().subscribe(subscription)
        if subscription is not None:
            self._cluster.request_refresh()

    async def close(self) -> None:
        """Leave the group. Logs what fails. The coordinator has request_timeout_ms to answer."""
        await self._end(self._tasks)
        self.membership.revoked(self.membership.owned)
        await self._leave_within(self._cluster.config.request_timeout_ms / 1000)

    async def _carry_out(self, step: steps.Step) -> None:
        match step:
            case steps.Revoke(partitions):
                self.membership.revoked(partitions)
                self._assign(self.membership.owned)
            case steps.Adopt(partitions):
                self.membership.adopted(partitions)
                self._assign(self.membership.owned)
            case _:
                await super()._carry_out(step)

    async def _watch_reads(self, idle_seconds: Callable[[], float]) -> None:
        """Leave the group while the application does nothing."""
        limit = self._max_idle_ms / 1000
        while True:
            await asyncio.sleep(max(limit - idle_seconds(), limit / _CHECKS_PER_POLL_INTERVAL))
            if idle_seconds() >= limit and self.membership.owned and not self._awaits_application:
                self._poll_interval_exceeded(self._max_idle_ms)
