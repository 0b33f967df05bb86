"""Calls that wait until something changes.

Owns: one future for each waiting call. Invariant: `wake` ends every wait that began before it.
For one event loop.
"""

import asyncio

__all__ = ["Waiters"]


class Waiters:
    """Empty at first."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        for waiter in self._waiting:
            _end(waiter)

    async def wait(self, seconds: float | None) -> None:
        """Wait until `wake`, or until the time has passed."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        timer = None if seconds is None else loop.call_later(seconds, _end, waiter)
        try:
            await waiter
        finally:
            self._waiting.remove(waiter)
            if timer is not None:
                timer.cancel()


def _end(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
