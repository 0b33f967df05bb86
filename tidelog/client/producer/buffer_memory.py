"""Back-pressure: sends wait for memory in the order of their calls.

Owns: the queue of sends that found `buffer_memory` full. Invariants: the first in the queue continues first,
whatever size it needs; no send overtakes it. No polling: a waiter is woken once enough memory is free. While
a send waits, batches do not linger. For one event loop.
"""

from asyncio import Future, get_running_loop, sleep
from collections import deque

from tidelog.client.metrics import ClientMetrics
from tidelog.client.producer.accumulator import Accumulator, PartitionQueue
from tidelog.wire.errors import ClientError


class _Ticket:
    __slots__ = ("size_bytes", "waiter")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.waiter: Future[None] = get_running_loop().create_future()


class BufferMemory:
    """The queue in front of one accumulator."""

    def __init__(self, accumulator: Accumulator) -> None:
        self._accumulator = accumulator
        self.metrics = ClientMetrics()
        self._tickets: deque[_Ticket] = deque()

    def is_free(self, record_size_bytes: int) -> bool:
        """Whether a batch for such a record may be opened without waiting."""
        return not self._tickets and self._accumulator.can_hold(record_size_bytes)

    def grow(self, queue: PartitionQueue, record_size_bytes: int) -> bool:
        """Raise the limit of the open batch for such a record, unless a send waits; see Accumulator.grow."""
        return not self._tickets and self._accumulator.grow(queue, record_size_bytes)

    async def pause(self) -> None:
        """Let other tasks run once. The caller then continues to append records."""
        self._accumulator.fillers += 1
        try:
            await sleep(0)
        finally:
            self._accumulator.fillers -= 1

    async def wait(self, record_size_bytes: int) -> None:
        """Wait until enough memory is free. It stays free until the caller awaits again.

        Raises the error of `fail`.
        """
        loop = get_running_loop()
        began = loop.time()
        ticket = _Ticket(record_size_bytes)
        self._tickets.append(ticket)
        if len(self._tickets) == 1:
            self._accumulator.hurry()
        try:
            while self._tickets[0] is not ticket or not self._accumulator.can_hold(record_size_bytes):
                await ticket.waiter
                ticket.waiter = get_running_loop().create_future()
        finally:
            self._tickets.remove(ticket)
            self.metrics.bufferpool_waited((now := loop.time()) - began, now)
            if not self._tickets:
                self._accumulator.relax()
            self.notify()

    def notify(self) -> None:
        """Memory was freed: wake the first waiter if there is enough for it."""
        if self._tickets and self._accumulator.can_hold(self._tickets[0].size_bytes):
            waiter = self._tickets[0].waiter
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, error: ClientError) -> None:
        """From now on every `wait` raises `error`."""
        for ticket in self._tickets:
            if not ticket.waiter.done():
                ticket.waiter.set_exception(error)
