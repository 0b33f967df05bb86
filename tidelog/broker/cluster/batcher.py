"""Work of many callers that is done together, in groups: one sync of the disk instead of one per caller.

Owns who is in which group. Invariants: one group at a time, under the given lock; callers of one turn of the
loop, and those that arrive while a group is in progress, are in the next one; each gets a result or an error.

Event loop only.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

_W = TypeVar("_W")
_R = TypeVar("_R")
A_GROUP: Final = 100
"""At most this many callers in a group, so that what is done for all in one turn of the loop is short."""


class Batcher(Generic[_W, _R]):
    """Does what callers want, in groups."""

    def __init__(
        self, do: Callable[[Sequence[_W]], Awaitable[Sequence[_R | Exception]]], lock: asyncio.Lock
    ) -> None:
        """`do` returns one result or error for each that it was given; it runs with `lock` held."""
        self._do = do
        self._lock = lock
        self._waiting: deque[tuple[_W, asyncio.Future[_R | Exception]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def run(self, wanted: _W) -> _R:
        """The result of `do` for `wanted`. Raises its error."""
        outcome = await self._begin(wanted)
        try:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        finally:
            del outcome  # The error refers to this frame.

    def _begin(self, wanted: _W) -> asyncio.Future[_R | Exception]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_R | Exception] = loop.create_future()
        self._waiting.append((wanted, answer))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._do_waiting())
        return answer

    async def _do_waiting(self) -> None:
        while self._waiting:
            async with self._lock:
                await self._do_next()

    async def _do_next(self) -> None:
        group = [self._waiting.popleft() for _ in range(min(A_GROUP, len(self._waiting)))]
        results: Sequence[_R | Exception]
        try:
            results = await self._do([wanted for wanted, _ in group])
            if len(results) != len(group):
                raise ValueError(f"expected {len(group)} results, got {len(results)}")
        except Exception as error:
            results = [error] * len(group)
        for (_, answer), result in zip(group, results, strict=True):
            if not answer.done():
                answer.set_result(result)
