"""An event loop on virtual time whose tasks and callbacks belong to nodes, which can be killed and paused.

Owns the time and the nodes. A node is what a process would be: everything that it starts inherits it (a
context variable). Invariants: time moves only when nothing is left to do now; nothing of a dead node ever
runs again, also no `finally`; what a paused node would have done, it does in order when it goes on; work for
threads is done at once and its result comes a little later, so a run is decided by its seed alone.
"""

import asyncio
import random
import sys
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from heapq import heappush
from typing import Any
from zlib import crc32

_LONGEST_WORK_S = 0.004
_TASKS_KEPT = 1_000
NODE: "ContextVar[Node | None]" = ContextVar("node", default=None)


class DeadlockError(Exception):
    """Nothing is left to happen, and the run has not ended."""


class NodeDied(BaseException):
    """Raised within a node where it dies, so that it goes no further."""


class Node:
    """A process of the simulation."""

    def __init__(self, loop: "VirtualLoop", name: str, machine: str = "") -> None:
        self.name = name
        self.machine = machine or name
        """Where it runs: the next node of the same machine has its place in the network and its clock."""
        self.is_dead = False
        self.is_paused = False
        self.on_death: Callable[[], None] | None = None
        self._loop = loop
        self._held: deque[events.Handle] = deque()
        self._tasks: list[asyncio.Task[Any]] = []
        self.context = copy_context()
        self.context.run(NODE.set, self)

    def start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a coroutine as this node."""
        task = self._loop.create_task(work, context=self.context.copy())
        self._tasks.append(task)
        return task

    def kill(self) -> None:
        if not self.is_dead:
            self.is_dead = True
            self._held.clear()
            if self.on_death is not None:
                self.on_death()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        held, self._held = self._held, deque()
        self._loop.run_again(held)

    def hold(self, handle: events.Handle) -> None:
        self._held.append(handle)


def _may_run(handle: events.Handle) -> bool:
    node = handle._context.get(NODE)  # type: ignore[attr-defined]
    if node is None:
        return True
    if node.is_paused and not node.is_dead:
        node.hold(handle)
    return not node.is_dead and not node.is_paused


class _Handle(events.Handle):
    __slots__ = ()

    def _run(self) -> None:
        if _may_run(self):
            super()._run()  # type: ignore[misc]


class _TimerHandle(events.TimerHandle):
    __slots__ = ()

    def _run(self) -> None:
        if _may_run(self):
            super()._run()  # type: ignore[misc]


def _set(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _close(coro: Any) -> None:
    """Undo a coroutine; one that awaits something on its way out is undone from there."""
    for _ in range(10):
        with suppress(BaseException):  # Whatever it raises, nobody hears it.
            coro.close()
            return


class _Clock:
    """Stands where a loop has its selector: waiting is moving the time."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise DeadlockError
        self.now += max(timeout, 0)
        return []

    def close(self) -> None:
        """As of a selector."""


class VirtualLoop(asyncio.BaseEventLoop):
    """`connect` is what `create_connection` does: see `virtual_network`."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self._selector = _Clock()
        self.connect: Callable[..., Coroutine[Any, Any, Any]]
        self._begun: list[asyncio.Task[Any]] = []
        self._looks_at = _TASKS_KEPT

    def time(self) -> float:
        return self._selector.now

    def now_ms(self) -> int:
        """Milliseconds, as clocks of the broker give them."""
        return 1_700_000_000_000 + int(self._selector.now * 1000)

    def monotonic(self) -> float:
        """`time.monotonic` of the machine that asks: each counts from a moment of its own."""
        node = NODE.get()
        return self.time() + (0 if node is None else crc32(node.machine.encode()) % 100_000)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> Any:
        """Tasks are kept: a dead node's must not be collected, which would run what it left undone."""
        task = super().create_task(coro, name=name, context=context)
        self._begun.append(task)
        if len(self._begun) > self._looks_at:
            self._begun = [each for each in self._begun if not each.done()]
            self._looks_at = len(self._begun) + _TASKS_KEPT
        return task

    def bury(self) -> None:
        """Undo every other task, at the end of a run. Their nodes are dead, and so is what this begins."""
        grave = Node(self, "grave")
        grave.is_dead = True
        told, sys.unraisablehook = sys.unraisablehook, lambda _: None
        done = {asyncio.current_task()}
        while left := [task for task in self._begun if task not in done and not task.done()]:
            for task in left:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                grave.context.run(_close, task.get_coro())
            done.update(left)
        sys.unraisablehook = told

    def run_again(self, handles: "deque[events.Handle]") -> None:
        self._ready.extend(handle for handle in handles if not handle.cancelled())  # type: ignore[attr-defined]

    def _call_soon(self, callback: Any, args: Any, context: Context | None) -> events.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        return self.call_soon(callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        timer = _TimerHandle(when, callback, args, self, context)
        heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        seconds = self.rng.random() * _LONGEST_WORK_S
        try:
            return self.after(seconds, func(*args))
        except Exception as error:
            return self.after(seconds, error=error)

    def after(
        self, seconds: float, result: Any = None, error: Exception | None = None
    ) -> "asyncio.Future[Any]":
        """Resolved after this time."""
        future: asyncio.Future[Any] = self.create_future()
        self.call_later(seconds, _set, future, result, error)
        return future

    async def create_connection(self, factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:  # type: ignore[override]
        return await self.connect(factory, host, port)

    def _asyncgen_firstiter_hook(self, agen: Any) -> None:
        """Generators of dead nodes are not finished."""

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """As above."""

    def _process_events(self, event_list: Any) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """No thread wakes this loop."""
