"""Carries out the steps of a schedule on real brokers, their network and their users, and heals it all again.

Owns what is being done to whom while a run lasts. Of several brokers one may be down while the next step hits
another. Invariants: no process is hit again before it is healed; `heal` leaves running brokers and proxies
that forward everything.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Final

from faults.etcd import EtcdMembers
from faults.honest_disk import named_files, synced_sizes
from faults.power import cut_power
from faults.process import BrokerProcessError
from faults.schedule import FaultKind, Step
from faults.site import SESSION_MS, Node, Site

_START_MS = 450
_STARTS: Final = 5
"""Of a broker whose store may not answer: it ends, and a service manager starts it again."""
_OF_USERS: Final = frozenset(
    {
        FaultKind.RENEW,
        FaultKind.KILL_PROCESSOR,
        FaultKind.PAUSE_PROCESSOR,
        FaultKind.TWO_PROCESSORS,
        FaultKind.ZOMBIE,
    }
)
_OF_MEMBERS: Final = frozenset({FaultKind.KILL_MEMBER, FaultKind.PAUSE_MEMBER, FaultKind.NO_QUORUM})
OfBroker = Callable[[Node, Step], Coroutine[Any, Any, None]]


class Saboteur:
    """`carry_out` steps one after the other, then `heal`. `done` counts the steps of each kind."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.done: Counter[FaultKind] = Counter()
        self.bytes_lost = 0
        self.ended_in_cleans = 0
        """How often a broker was killed between the first file of a clean and its last change."""
        self._delayed: dict[Node, asyncio.TimerHandle] = {}
        self._under_way: dict[Hashable, asyncio.Task[None]] = {}
        self._of_broker: dict[FaultKind, OfBroker] = {
            FaultKind.PAUSE: self._pause,
            FaultKind.KILL_PAUSED: self._pause,
            FaultKind.OUTLIVE: self._pause,
            FaultKind.KILL: self._kill,
            FaultKind.KILL_IN_FLIGHT: self._kill,
            FaultKind.KILL_STARTING: self._kill,
            FaultKind.POWER_CUT: self._cut_power,
            FaultKind.TERMINATE: self._terminate,
        }
        self._beside: frozenset[OfBroker] = frozenset()
        """What can be done to a machine while its broker is down or stopped."""

    async def carry_out(self, step: Step) -> None:
        """Do it, and return when the next may come. BrokerProcessError when a broker does not start."""
        await asyncio.sleep(step.wait_ms / 1000)
        kind, site = step.kind, self._site
        if kind in _OF_USERS:
            await site.users[int(step.draw * len(site.users))].disturb(step)
        elif kind is FaultKind.KILL_ALL:
            await self._ended()
            await asyncio.gather(*(broker.kill_9() for broker in site.brokers))
            await asyncio.gather(*map(self._start, site.nodes))
        elif kind in _OF_MEMBERS and site.members is not None:
            await self._do(site.members, partial(self._disturb_members, site.members, step))
        else:
            node = step.pick(site.nodes)
            of_broker = self._of_broker.get(kind)
            if of_broker is None:
                self._disturb_network(node, step)
            else:
                part = of_broker if of_broker in self._beside else None
                await self._do((node, part), partial(of_broker, node, step))
        self.done[kind] += 1

    async def _do(self, what: Hashable, work: "partial[Coroutine[Any, Any, None]]") -> None:
        """Once the work before it has ended. One broker alone is waited for."""
        before = self._under_way.pop(what, None)
        if before is not None:
            await before
        self._under_way[what] = asyncio.create_task(work())
        if len(self._site.nodes) == 1:
            await self._ended()

    async def _ended(self) -> None:
        """Wait for all that is under way. Raises BrokerProcessError of the first that failed."""
        tasks = list(self._under_way.values())
        self._under_way.clear()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def heal(self) -> None:
        """Take every fault back."""
        try:
            await self._ended()
        finally:
            for node in self._site.nodes:
                if node in self._delayed:
                    self._delayed[node].cancel()
                node.proxy.heal()
                if not node.broker.is_running:
                    await self._start(node)

    def _disturb_network(self, node: Node, step: Step) -> None:
        keys = self._site.api_keys
        proxy, api_key = node.proxy, keys[int(step.draw * len(keys))]
        match step.kind:
            case FaultKind.CUT:
                proxy.cut_connections()
            case FaultKind.CUT_BEFORE:
                proxy.cut_before_request(step.frames, api_key=api_key)
            case FaultKind.CUT_WITHIN:
                proxy.cut_within_request(step.frames, api_key=api_key)
            case FaultKind.CUT_AFTER:
                proxy.cut_after_request(step.frames, api_key=api_key)
            case FaultKind.DROP:
                proxy.drop_responses(step.frames, api_key=api_key, patience_ms=1 + step.duration_ms)
            case FaultKind.MUTE:
                proxy.drop_responses(step.frames, api_key=api_key, patience_ms=None)
            case FaultKind.REFUSE:
                proxy.refuse_connections(step.duration_ms)
                proxy.cut_connections()
            case FaultKind.DELAY:
                self._delay(node, step.draw * 400, step.duration_ms)

    def _delay(self, node: Node, delay_ms: float, duration_ms: int) -> None:
        if node in self._delayed:
            self._delayed[node].cancel()
        node.proxy.delay_ms = delay_ms
        loop = asyncio.get_running_loop()
        self._delayed[node] = loop.call_later(duration_ms / 1000, self._end_delay, node)

    def _end_delay(self, node: Node) -> None:
        node.proxy.delay_ms = 0.0

    async def _pause(self, node: Node, step: Step) -> None:
        broker = node.broker
        broker.pause()
        at_least_ms = SESSION_MS if step.kind is FaultKind.OUTLIVE else 0
        await asyncio.sleep((at_least_ms + step.duration_ms) / 1000)
        if step.kind is FaultKind.KILL_PAUSED:
            await broker.kill_9()
            await self._start(node)
        else:
            broker.resume()

    async def _disturb_members(self, members: EtcdMembers, step: Step) -> None:
        if step.kind is FaultKind.PAUSE_MEMBER:
            number = await members.leader()
            await members.stop(number)
            await asyncio.sleep(step.duration_ms / 1000)
            members.go_on(number)
        elif step.kind is FaultKind.NO_QUORUM:
            several = range(len(members.endpoints) // 2 + 1)
            await asyncio.gather(*map(members.stop, several))
            await asyncio.sleep(step.duration_ms / 1000)
            for number in several:
                members.go_on(number)
        else:
            number = step.pick(range(len(members.endpoints)))
            await members.kill(number)
            await asyncio.sleep(step.duration_ms / 1000)
            await members.start(number)

    async def _kill(self, node: Node, step: Step) -> None:
        keys = self._site.api_keys
        proxy, broker, api_key = node.proxy, node.broker, keys[int(step.draw * len(keys))]
        if step.kind is FaultKind.KILL_IN_FLIGHT:
            proxy.hold_responses(api_key=api_key)
            with contextlib.suppress(TimeoutError):
                await proxy.wait_until(lambda: proxy.answered(api_key) >= step.frames, step.duration_ms + 1)
        await broker.kill_9()
        if step.kind is FaultKind.KILL_IN_FLIGHT:
            proxy.cut_connections()
            proxy.release_responses()
        if step.kind is FaultKind.KILL_STARTING:
            starting = asyncio.create_task(broker.start())
            await asyncio.wait((starting,), timeout=step.draw * _START_MS / 1000)
            await broker.kill_9()
            with contextlib.suppress(BrokerProcessError):
                await starting
            # The kill may have come before there was a process.
            await broker.kill_9()
        await self._start(node)

    async def _terminate(self, node: Node, _: Step) -> None:
        exit_code = await node.broker.terminate()
        if exit_code:
            raise BrokerProcessError(f"the broker ended with exit code {exit_code} after SIGTERM")
        await self._start(node)

    async def _start(self, node: Node) -> None:
        files = await asyncio.to_thread(lambda: list(node.data_dir.glob("*/*")))
        self.ended_in_cleans += any(path.suffix in (".cleaned", ".swap") for path in files)
        for starts_left in reversed(range(1 if self._site.members is None else _STARTS)):
            try:
                await node.broker.start()
                return
            except BrokerProcessError:
                if not starts_left:
                    raise

    async def _cut_power(self, node: Node, step: Step) -> None:
        """Kill it in the middle of its work and lose what was not synced."""
        with contextlib.suppress(TimeoutError):
            in_flight = node.proxy.in_flight
            await node.proxy.wait_until(lambda: len(in_flight()) >= step.frames, step.duration_ms + 1)
        await node.broker.kill_9()
        rng = random.Random(step.draw)
        self.bytes_lost += await asyncio.to_thread(
            cut_power, node.data_dir, synced_sizes(node.journal), named_files(node.journal), rng
        )
        await self._start(node)
