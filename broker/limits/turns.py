"""The turns of long requests: one step of one request per turn of the event loop.

Owns the queue of requests with long work. Invariants: in a turn of the loop at most one of them does a step
(see `protocol.steps`), however many wait, so a short request waits for at most one step; they take turns in
order, so each of them makes progress.

Event loop only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeVar

from tidelog.protocol.steps import Steps

T = TypeVar("T")


class Turns:
    """The turns of all long work of one broker."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    def next(self) -> asyncio.Future[None]:
        """Done when the caller may do one step of its work."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting.append(future)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._give)
        return future

    def _give(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                break
        self._is_scheduled = bool(self._waiting)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._give)

    async def run(self, steps: Steps[T]) -> T:
        """The result of `steps`: one step now, each other in a turn. A cancelled call closes `steps`."""
        try:
            while True:
                next(steps)
                await self.next()
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()
