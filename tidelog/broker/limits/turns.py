"""The turns of long requests: one step of one request per turn of the event loop.

Owns the queue of requests with long work. Invariants: in a turn of the loop at most one of them does a step
(see `protocol.steps`), however many wait, so a short request waits for at most one step; they take turns in
order, so each of them makes progress.

Event loop only.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeVar

from tidelog.broker.cluster.batcher import A_GROUP
from tidelog.protocol.steps import Pace, Steps

T = TypeVar("T")
R = TypeVar("R")


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

    async def together(
        self, do: Callable[[T], Coroutine[Any, Any, R]], items: Collection[T], pace: Pace, elements: int = 1
    ) -> list[R]:
        """`[await do(item) for item in items]`, of which up to A_GROUP run at once and wait together.

        Each item counts as `elements` elements. Those that began go on even if the call is cancelled.
        """
        results: list[Any] = [None] * len(items)
        left = enumerate(items)
        turn: asyncio.Future[None] | None = None

        async def work() -> None:
            nonlocal turn
            for index, item in left:
                results[index] = await do(item)
                if pace.spent(elements):
                    turn = self.next()
                while turn is not None and not turn.done():
                    await turn

        # Not a task per item: most items of a hostile request are refused without a wait.
        begin = asyncio.get_running_loop().create_task
        workers = [begin(work()) for _ in range(min(A_GROUP, len(items)))]
        if workers:
            await asyncio.wait(workers)
        if turn is not None:  # The answer of a large request has a turn of its own.
            await self.next()
        for worker in workers:
            worker.result()
        return results
