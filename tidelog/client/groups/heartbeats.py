"""The heartbeats of one member of a group.

Owns: when they are sent. Invariants: one at a time; after the interval that the membership has, or at once if
it has something to report; after failures with backoff. For one event loop.
"""

import asyncio
from collections.abc import Callable

from tidelog.client.groups.consumer_membership import ConsumerMembership
from tidelog.client.groups.coordinator import GroupCoordinator
from tidelog.client.groups.membership import Membership
from tidelog.wire.backoff import Backoff
from tidelog.wire.errors import ClientClosedError, ClientError


class Heartbeats:
    """`react` is called when the membership may have changed. The coordinator has `timeout_ms` to answer."""

    def __init__(
        self,
        membership: Membership | ConsumerMembership,
        coordinator: GroupCoordinator,
        backoff: Backoff,
        react: Callable[[], None],
        *,
        timeout_ms: int,
    ) -> None:
        self._membership = membership
        self._coordinator = coordinator
        self._backoff = backoff
        self._react = react
        self._timeout_ms = timeout_ms
        self._is_due = asyncio.Event()

    def send_if_due(self) -> None:
        """Send one now if the membership has something to report."""
        membership = self._membership
        if membership.must_report and membership.can_heartbeat and membership.coordinator is not None:
            self._is_due.set()

    async def run(self) -> None:
        """Send them until the client is closed."""
        membership = self._membership
        while True:
            try:
                async with asyncio.timeout(membership.heartbeat_interval_ms / 1000):
                    await self._is_due.wait()
            except TimeoutError:
                pass
            if membership.failures:
                await asyncio.sleep(self._backoff.delay_ms(membership.failures) / 1000)
            self._is_due.clear()
            if not membership.can_heartbeat:
                continue
            try:
                # The steps may wait for the application just now, so a lost coordinator is looked up here.
                node_id = await self._coordinator.find_for(membership)
                if not membership.can_heartbeat:
                    continue
                asked = membership.identity
                api_key, values = membership.heartbeat()
                answer = await self._coordinator.call(node_id, api_key, values, timeout_ms=self._timeout_ms)
                membership.heartbeat_received(asked, answer)
            except ClientClosedError:
                return
            except ClientError as error:
                if not membership.awaits_join:
                    membership.request_failed(error)
            self._react()
