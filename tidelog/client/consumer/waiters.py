"""Calls that wait until something changes.

Owns: one future for each waiting call, and `Done` for calls that wait for nothing. Invariant: `wake` ends
every wait that began before it. For one event loop.
"""

import asyncio
from collections.abc import Generator


class Done:
    """What a call returns that may be awaited and has done all its work: `await` ends at once."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


class Waiters:
    """Holds calls that wait until `wake`."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        for waiter in self._waiting:
            _end(waiter)

    async def wait(self, deadline: float | None = None) -> bool:
        """Wait until `wake`, or until `deadline` on the loop's clock. False if that has passed already."""
        loop = asyncio.get_running_loop()
        if deadline is not None and deadline <= loop.time():
            # Else a loop of calls without a timeout would let nothing be fetched.
            await asyncio.sleep(0)
            return False
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        timer = None if deadline is None else loop.call_at(deadline, _end, waiter)
        try:
            await waiter
        finally:
            self._waiting.remove(waiter)
            if timer is not None:
                timer.cancel()
        return True


def _end(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
