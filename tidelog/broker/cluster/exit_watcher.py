"""Finds out when the process of another broker has ended, without waiting for the end of its session.

Owns whom this broker watches: the controller watches all others, the others watch the controller. A running
machine refuses connections to a port without a listening process; a machine that is gone, or a network that
is cut, refuses nothing, so then the session decides.

Invariant: a broker that refuses though it lives is only fenced, and with its session it registers again. From
then on it is watched only once it can be reached. A broker listens before it is live, so until then a first
refusal counts: who begins to watch may find it dead.

Event loop only.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final
from uuid import UUID

from tidelog.broker.cluster.catalog import BrokerRegistration
from tidelog.protocol.errors import ApiError

GRACE_SECONDS: Final = 0.5
"""In which a broker that stops answers what is in flight, and fences itself."""
_RETRY_SECONDS: Final = 1.0


class ExitWatcher:
    """Watches the processes of other brokers, and reports each that has ended, once per start."""

    def __init__(
        self,
        until_refused: Callable[[int, bool], Awaitable[None]],
        has_ended: Callable[[BrokerRegistration], Awaitable[object]],
    ) -> None:
        """`until_refused` takes a broker's id and whether it has to answer first, and raises ApiError;
        `has_ended` is called once for a start of a broker."""
        self._until_refused = until_refused
        self._has_ended = has_ended
        self._ended: dict[int, UUID] = {}
        """Broker -> the start that was reported last."""
        self._watches: dict[BrokerRegistration, asyncio.Task[None]] = {}

    def watch(self, brokers: Iterable[BrokerRegistration]) -> None:
        """Watch these, and no others."""
        wanted = dict.fromkeys(brokers)
        for broker in [each for each in self._watches if each not in wanted]:
            self._watches.pop(broker).cancel()
        for broker in [each for each in wanted if each not in self._watches]:
            self._watches[broker] = asyncio.get_running_loop().create_task(self._watch(broker))

    async def _watch(self, broker: BrokerRegistration) -> None:
        while True:
            try:
                was_wrong = self._ended.get(broker.node_id) == broker.incarnation
                await self._until_refused(broker.node_id, was_wrong)
            except ApiError:
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                await asyncio.sleep(GRACE_SECONDS)
                self._ended[broker.node_id] = broker.incarnation
                await self._has_ended(broker)
                return

    async def stop(self) -> None:
        """Watch no broker."""
        tasks = list(self._watches.values())
        self.watch(())
        if tasks:
            await asyncio.wait(tasks)
