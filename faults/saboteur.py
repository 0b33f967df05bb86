"""Carries out the steps of a schedule on a real broker, its network and its users, and heals it all again.

Owns the broker process and the proxy while a run lasts. Invariants: after each step the broker runs or is
being started; `heal` leaves a running broker and a proxy that forwards everything.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from faults.honest_disk import named_files, synced_sizes
from faults.power import cut_power
from faults.process import BrokerProcess, BrokerProcessError
from faults.proxy import FaultProxy
from faults.schedule import FaultKind, Step
from tidelog.protocol.schema import ApiKey

_START_MS = 450


class User(Protocol):
    """A client of the broker that a step can disturb: a writer, or the processors of one id."""

    async def disturb(self, step: Step) -> None: ...


_OF_USERS: Final = frozenset(
    {
        FaultKind.RENEW,
        FaultKind.KILL_PROCESSOR,
        FaultKind.PAUSE_PROCESSOR,
        FaultKind.TWO_PROCESSORS,
        FaultKind.ZOMBIE,
    }
)


@dataclass
class Site:
    """What can be broken. `api_keys`: the requests that faults of the network hit."""

    broker: BrokerProcess
    proxy: FaultProxy
    data_dir: Path
    journal: Path
    users: Sequence[User] = ()
    api_keys: Sequence[ApiKey] = (ApiKey.PRODUCE,)

    @property
    def address(self) -> str:
        """Where clients reach the broker through the proxy."""
        return f"{self.proxy.host}:{self.proxy.port}"

    def api_key(self, step: Step) -> ApiKey:
        """The requests that this step hits."""
        return self.api_keys[int(step.draw * len(self.api_keys))]


class Saboteur:
    """`carry_out` steps one after the other, then `heal`. `done` counts the steps of each kind."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.done: Counter[FaultKind] = Counter()
        self.bytes_lost = 0
        self.ended_in_cleans = 0
        """How often the broker was killed between the first file of a clean and its last change."""
        self._delayed: asyncio.TimerHandle | None = None

    async def carry_out(self, step: Step) -> None:
        """Do it, and return when the next may come. BrokerProcessError when the broker does not start."""
        await asyncio.sleep(step.wait_ms / 1000)
        kind = step.kind
        if kind in (FaultKind.PAUSE, FaultKind.KILL_PAUSED):
            await self._pause(step)
        elif kind in (FaultKind.KILL, FaultKind.KILL_IN_FLIGHT, FaultKind.KILL_STARTING):
            await self._kill(step)
        elif kind is FaultKind.POWER_CUT:
            await self._cut_power(step)
        elif kind is FaultKind.TERMINATE:
            await self._terminate()
        elif kind in _OF_USERS:
            users = self._site.users
            await users[int(step.draw * len(users))].disturb(step)
        else:
            self._disturb_network(step)
        self.done[kind] += 1

    async def heal(self) -> None:
        """Take every fault back."""
        if self._delayed is not None:
            self._delayed.cancel()
        self._site.proxy.heal()
        if not self._site.broker.is_running:
            await self._start()

    def _disturb_network(self, step: Step) -> None:
        proxy, api_key = self._site.proxy, self._site.api_key(step)
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
                self._delay(step.draw * 400, step.duration_ms)

    def _delay(self, delay_ms: float, duration_ms: int) -> None:
        if self._delayed is not None:
            self._delayed.cancel()
        self._site.proxy.delay_ms = delay_ms
        loop = asyncio.get_running_loop()
        self._delayed = loop.call_later(duration_ms / 1000, self._end_delay)

    def _end_delay(self) -> None:
        self._site.proxy.delay_ms = 0.0

    async def _pause(self, step: Step) -> None:
        broker = self._site.broker
        broker.pause()
        await asyncio.sleep(step.duration_ms / 1000)
        if step.kind is FaultKind.PAUSE:
            broker.resume()
        else:
            await broker.kill_9()
            await self._start()

    async def _kill(self, step: Step) -> None:
        site, api_key = self._site, self._site.api_key(step)
        if step.kind is FaultKind.KILL_IN_FLIGHT:
            site.proxy.hold_responses(api_key=api_key)
            with contextlib.suppress(TimeoutError):
                await site.proxy.wait_until(
                    lambda: site.proxy.answered(api_key) >= step.frames, step.duration_ms + 1
                )
        await site.broker.kill_9()
        if step.kind is FaultKind.KILL_IN_FLIGHT:
            site.proxy.cut_connections()
            site.proxy.release_responses()
        if step.kind is FaultKind.KILL_STARTING:
            starting = asyncio.create_task(site.broker.start())
            await asyncio.wait((starting,), timeout=step.draw * _START_MS / 1000)
            await site.broker.kill_9()
            with contextlib.suppress(BrokerProcessError):
                await starting
            # The kill may have come before there was a process.
            await site.broker.kill_9()
        await self._start()

    async def _terminate(self) -> None:
        broker = self._site.broker
        exit_code = await broker.terminate()
        if exit_code:
            raise BrokerProcessError(f"the broker ended with exit code {exit_code} after SIGTERM")
        await self._start()

    async def _start(self) -> None:
        files = await asyncio.to_thread(lambda: list(self._site.data_dir.glob("*/*")))
        self.ended_in_cleans += any(path.suffix in (".cleaned", ".swap") for path in files)
        await self._site.broker.start()

    async def _cut_power(self, step: Step) -> None:
        """Kill it in the middle of its work and lose what was not synced."""
        site = self._site
        with contextlib.suppress(TimeoutError):
            in_flight = site.proxy.in_flight
            await site.proxy.wait_until(lambda: len(in_flight()) >= step.frames, step.duration_ms + 1)
        await site.broker.kill_9()
        rng = random.Random(step.draw)
        self.bytes_lost += await asyncio.to_thread(
            cut_power, site.data_dir, synced_sizes(site.journal), named_files(site.journal), rng
        )
        await self._start()
