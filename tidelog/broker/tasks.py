"""Tasks that run beside their callers, until they end or their owner closes; waiting for an event.

Owns the references to tasks: the event loop alone does not keep one. Event loop only.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import structlog

from tidelog.broker.beginning import begin

T = TypeVar("T")
_AGAIN_SECONDS = 1.0
logger = structlog.get_logger(__name__)


async def is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Whether `event` is set at some time within so many seconds; None: without a limit."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


async def kept(work: Callable[..., Coroutine[Any, Any, None]], *arguments: object) -> None:
    """Run `work`, and again after each error: what a broker does all the time must not end by one that nobody
    expects."""
    while True:
        try:
            await work(*arguments)
            return
        except Exception as error:
            logger.error(
                "background_task_failed",
                task=work.__qualname__,
                error=repr(error),
                exc_info=error,
                advice="it begins again in a second; report this",
            )
        await asyncio.sleep(_AGAIN_SECONDS)


class Tasks:
    """The tasks of one owner that have not ended."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Future[Any], None] = {}

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`, for which nobody waits."""
        _ = self.task(work)

    def task(self, work: Coroutine[Any, Any, T], *, is_awaited: bool = False) -> asyncio.Task[T]:
        """Run `work`. `is_awaited`: its error is for the caller, and for nobody if that was cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._running[task] = None
        task.add_done_callback(self._retrieve if is_awaited else self._running.pop)
        return task

    def at_once(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run `work`, up to where it first waits within this call. Its error is as with `is_awaited`."""
        task = begin(work)
        if task.done():
            self._retrieve(task)
        else:
            self._running[task] = None
            task.add_done_callback(self._retrieve)
        return task

    def _retrieve(self, task: asyncio.Future[Any]) -> None:
        self._running.pop(task, None)
        if not task.cancelled():
            task.exception()

    async def ended(self) -> None:
        """Return when none runs."""
        while self._running:
            await asyncio.wait(self._running)

    async def cancel(self) -> None:
        """Cancel all; returns when none runs."""
        for task in self._running:
            task.cancel()
        await self.ended()
