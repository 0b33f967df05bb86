"""What a broker has for share groups: coordinator of states, share partitions, sessions of members.

Owns when a member's session ends: with its last request, or with its connection. Then what it held becomes
available. Made with the first use, and imported only then: see `Services.share`.

On the event loop. Source: Kafka's SharePartitionManager.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tidelog.broker.coordinator.share_coordinator import ShareCoordinator
from tidelog.broker.coordinator.share_states.state import is_coordinator_key
from tidelog.broker.observability.share_counts import ShareCounts, ShareLoad
from tidelog.broker.share.held import HeldPartition
from tidelog.broker.share.partitions import SharePartitions
from tidelog.broker.share.parts import BrokerParts
from tidelog.broker.share.sessions import ShareSession, ShareSessions
from tidelog.broker.share.states import ShareStatesClient


class Share:
    """The parts that handlers use."""

    def __init__(self, services: BrokerParts) -> None:
        self._services = services
        self.coordinator = ShareCoordinator(services.coordinator_parts)
        self.coordinator.refuse_while(lambda: services.is_cut_off)
        self.coordinator.start()
        services.cluster.follow(self.coordinator.follow)
        self.states = ShareStatesClient(self.coordinator, services.peers, services.node_id)
        counts = services.metrics.share = ShareCounts(self._load)
        self.partitions = SharePartitions(services, self.states, counts)
        self.sessions = ShareSessions()
        self.is_key = is_coordinator_key
        self._tasks: set[asyncio.Task[Any]] = set()

    def _load(self) -> ShareLoad:
        held = list(self.partitions.all())
        return ShareLoad(len(self.sessions), len(held), sum(each.machine.in_flight_count for each in held))

    def begin_session(self, group_id: str, member_id: str, connection_id: int) -> ShareSession:
        """Raises ApiError(SHARE_SESSION_LIMIT_REACHED)."""
        if group_id not in self.sessions.group_ids:
            self.partitions.forget(group_id)  # Its offsets may have been altered since the last one ended.
        limit = self._services.config.group_share_max_share_sessions
        return self.sessions.begin(group_id, member_id, connection_id, limit)

    def connection_closed(self, connection_id: int) -> None:
        for session in self.sessions.of_connection(connection_id):
            task = asyncio.get_running_loop().create_task(self.end_session(session))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def end_session(self, session: ShareSession) -> None:
        """Make available what the member holds; of a group without sessions here, nothing stays in memory."""
        if not self.sessions.end(session):
            return
        group_id = session.group_id
        await asyncio.gather(
            *(_released(held, session.member_id) for held in self.partitions.of_group(group_id))
        )
        if group_id not in self.sessions.group_ids:
            self.partitions.forget(group_id)

    async def close(self) -> None:
        """Wait until what began is done."""
        for task in list(self._tasks):
            task.cancel()
        self.states.stop_waiting()
        await self.partitions.close()
        await self.coordinator.close()


def _released(held: HeldPartition, member_id: str) -> asyncio.Future[None]:
    """Done once what the member holds is available again, or cannot be: then another broker leads."""
    released: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def stored(_: object) -> None:
        if not released.done():
            released.set_result(None)

    held.release(member_id, stored)
    return released
