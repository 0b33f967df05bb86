"""Writers: producers that never stop sending, and record the outcomes in a ledger.

Owns the pace of sending and the life of producers: one writer runs one producer after the other, each with a
ledger of its own, like an application that is restarted. Invariants: a record enters the ledger before its
producer can have sent it; `settle` returns once every outcome is known, or raises TimeoutError.
"""

import asyncio
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from faults.checker import OPEN, REFUSED, UNCERTAIN, Ledger, Mark
from faults.marks import record_of
from faults.schedule import Step
from tidelog.client import ClientError, Delivery, DeliveryFailedError, DeliveryTimeoutError, Producer

_LARGEST_BURST: Final = 25
_RETRY_S: Final = 0.05
_CLOSING_MS: Final = 300


@dataclass
class Job:
    """What all writers share: where to write, how fast, and where ledgers and oddities are collected."""

    bootstrap_servers: str
    topic: str
    partitions: int
    seed: int
    ledgers: list[Ledger] = field(default_factory=list)
    oddities: dict[str, int] = field(default_factory=dict)
    longest_pause_s: float = 0.04
    """Between two bursts of one writer."""

    def open_ledger(self, name: str) -> Ledger:
        ledger = Ledger(len(self.ledgers), name)
        self.ledgers.append(ledger)
        return ledger

    def count(self, oddity: str) -> None:
        """Something that is not a finding, but should be reported."""
        self.oddities[oddity] = self.oddities.get(oddity, 0) + 1


class Writer(ABC):
    """`start`, then `renew` as often as wanted, then `settle` once."""

    def __init__(self, name: str, job: Job, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.job = job
        self.settings = dict(settings)
        self.ledger: Ledger
        self.is_broken = False
        """The producer takes nothing more: the next record needs another one."""
        self._rng = random.Random(f"{job.seed} {name}")
        self._sending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the first producer and begin to send."""
        self.ledger = self.job.open_ledger(self.name)
        await self.open()
        self._sending = asyncio.create_task(self._send_on())

    async def disturb(self, step: Step) -> None:
        """RENEW alone disturbs a writer."""
        await self.renew()

    async def renew(self) -> None:
        """Close the producer however much it has under way, and open another."""
        await self.give_up()
        self.ledger.close()
        await self.start()

    async def settle(self, timeout_s: float) -> None:
        """Send nothing more, and wait until every outcome is known. TimeoutError when none came for
        `timeout_s`."""
        await self._stop_sending()
        flushing = asyncio.create_task(self.flush())
        open_before = -1
        try:
            while not flushing.done():
                open_now = self.ledger.count(lambda fate: fate == OPEN)
                if open_now == open_before:
                    raise TimeoutError
                open_before = open_now
                await asyncio.wait((flushing,), timeout=timeout_s)
            flushing.result()
        finally:
            flushing.cancel()
            await self.abandon()

    async def give_up(self) -> None:
        """Send nothing more and close the producer, also with records in flight."""
        await self._stop_sending()
        await self.abandon()

    async def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
            if not self._sending.cancelled() and (error := self._sending.exception()) is not None:
                raise error
            self._sending = None

    async def _send_on(self) -> None:
        while True:
            partition = self._rng.randrange(self.job.partitions)
            for _ in range(self._rng.randint(1, _LARGEST_BURST)):
                await self._send_one(partition)
                if self._rng.random() < 0.3:
                    partition = self._rng.randrange(self.job.partitions)
            await asyncio.sleep(self._rng.random() * self.job.longest_pause_s)

    async def _send_one(self, partition: int) -> None:
        if self.is_broken:
            self.job.count(f"{self.name}: replaced after a fatal error")
            await self.abandon()
            self.ledger.close()
            self.ledger = self.job.open_ledger(self.name)
            await self.open()
        ledger = self.ledger
        counter = ledger.sent(partition)
        if not await self.send(partition, counter, *record_of(Mark(ledger.writer, partition, counter))):
            ledger.taken_back(partition)
            await asyncio.sleep(_RETRY_S)

    @abstractmethod
    async def open(self) -> None:
        """Make a producer for `self.ledger`."""

    @abstractmethod
    async def send(self, partition: int, counter: int, key: bytes, value: bytes) -> bool:
        """Give one record to the producer; False if it did not accept it. A cancelled call gave nothing, and
        took the record back."""

    @abstractmethod
    async def flush(self) -> None:
        """Wait until the producer has reported the outcome of every record."""

    @abstractmethod
    async def abandon(self) -> None:
        """Close the producer soon, and record its last outcomes. Harmless when it is closed."""


class TidelogWriter(Writer):
    """Our client's `Producer`; `settings` are its keyword arguments."""

    async def open(self) -> None:
        """The producer; the broker may be down, so it is tried until it starts."""
        self.is_broken = False
        while True:
            producer = Producer(
                bootstrap_servers=self.job.bootstrap_servers, client_id=self.name, **self.settings
            )
            try:
                await producer.start()
                break
            except ClientError:
                self.job.count(f"{self.name}: start tried again")
                await producer.stop()
                await asyncio.sleep(_RETRY_S)
        self._producer = producer
        self._deliveries: deque[tuple[int, int, Delivery]] = deque()
        self._sent = asyncio.Event()
        self._outcome_arrived = asyncio.Event()
        self._receiving = asyncio.create_task(self._receive(self.ledger))
        self._receiving.add_done_callback(lambda _: self._outcome_arrived.set())

    async def send(self, partition: int, counter: int, key: bytes, value: bytes) -> bool:
        try:
            delivery = await self.hand_over(partition, counter, key, value)
        except asyncio.CancelledError:
            self.ledger.taken_back(partition)
            raise
        except ClientError as error:
            self.job.count(f"{self.name}: send raised {type(error).__name__}")
            self.is_broken = not error.retriable
            return False
        self._deliveries.append((partition, counter, delivery))
        self._sent.set()
        return True

    async def hand_over(self, partition: int, counter: int, key: bytes, value: bytes) -> Delivery:
        """Give a record to the producer. Raises ClientError."""
        return await self._producer.send(self.job.topic, value, key, partition)

    async def flush(self) -> None:
        if not self.is_broken:
            # A producer that takes nothing more reports its outcomes all the same.
            with suppress(ClientError):
                await self._producer.flush()
            await self._all_reported()

    async def abandon(self) -> None:
        await self._producer.stop(timeout_ms=_CLOSING_MS)
        await self._all_reported()
        self._receiving.cancel()
        await asyncio.gather(self._receiving, return_exceptions=True)

    async def _all_reported(self) -> None:
        while self._deliveries:
            if self._receiving.done():
                self._receiving.result()
            self._outcome_arrived.clear()
            await self._outcome_arrived.wait()

    async def _receive(self, ledger: Ledger) -> None:
        while True:
            while not self._deliveries:
                self._sent.clear()
                await self._sent.wait()
            partition, counter, delivery = self._deliveries[0]
            try:
                fate = (await delivery).offset
            except (DeliveryTimeoutError, DeliveryFailedError) as error:
                self._note(error)
                fate = REFUSED
            except ClientError as error:
                self._note(error)
                fate = UNCERTAIN
            ledger.record_outcome(partition, counter, fate)
            self._deliveries.popleft()
            self._outcome_arrived.set()

    def _note(self, error: ClientError) -> None:
        code = getattr(error, "code", None)
        after = f" after {code.name}" if code is not None else ""
        self.job.count(f"{self.name}: record ended with {type(error).__name__}{after}")
