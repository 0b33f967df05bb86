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
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from heapq import heappop, heappush
from itertools import chain, count
from typing import Any
from weakref import WeakKeyDictionary
from zlib import crc32

_LONGEST_WORK_S = 0.004
_TASKS_KEPT = 1_000
_RESOLUTION_S = 1e-9
"""What is due within it is due now."""
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
        self.loop = loop
        self._held: deque[_Handle] = deque()
        self.context = copy_context()
        self.context.run(NODE.set, self)

    def start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a coroutine as this node."""
        return self.loop.create_task(work, context=self.context.copy())  # type: ignore[no-any-return]

    def kill(self) -> None:
        if not self.is_dead:
            self.is_dead = True
            self._held.clear()
            for task in self.loop.tasks_of(self):
                task._log_traceback = False  # type: ignore[attr-defined]  # Whoever waited is dead too.
            if self.on_death is not None:
                self.on_death()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        held, self._held = self._held, deque()
        self.loop.run_again(held)

    def hold(self, handle: "_Handle") -> None:
        self._held.append(handle)


class _Handle(events.TimerHandle):
    """What asyncio expects of one, without what a loop in debug mode keeps in it."""

    __slots__ = ()

    def __init__(self, when: float, callback: Any, args: Any, loop: "VirtualLoop", context: Any) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._repr = None
        self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None


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


class VirtualLoop(asyncio.BaseEventLoop):
    """`connect` is what `create_connection` does: see `virtual_network`."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.connect: Callable[..., Coroutine[Any, Any, Any]]
        self._now = 1_000.0
        self._waiting: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        """A heap: when, and in which order they were made."""
        self._timer_numbers = count()
        self._begun: list[tuple[Node | None, asyncio.Task[Any]]] = []
        self._looks_at = _TASKS_KEPT
        self._unheard: WeakKeyDictionary[asyncio.Task[Any], Node | None] = WeakKeyDictionary()
        """Tasks that failed, and of whose failure nobody has heard."""

    def close(self) -> None:
        super().close()
        self._waiting.clear()
        self._timers.clear()

    get_debug: Any = bool
    """Asked for each future, so without a step of Python: `bool()` is False."""

    def time(self) -> float:
        return self._now

    def now_ms(self) -> int:
        """Milliseconds, as clocks of the broker give them."""
        return 1_700_000_000_000 + int(self._now * 1000)

    def monotonic(self) -> float:
        """`time.monotonic` of the machine that asks: each counts from a moment of its own."""
        node = NODE.get()
        return self.time() + (0 if node is None else crc32(node.machine.encode()) % 100_000)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> Any:
        """Tasks are kept: a dead node's must not be collected, which would run what it left undone."""
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        node = NODE.get() if context is None else context.get(NODE)
        self._begun.append((node, task))
        if len(self._begun) > self._looks_at:
            self._forget_done()
        return task

    def _forget_done(self) -> None:
        for node, task in self._begun:
            if task.done() and task._log_traceback:  # type: ignore[attr-defined]
                self._unheard[task] = node
        self._begun = [each for each in self._begun if not each[1].done()]
        self._looks_at = len(self._begun) + _TASKS_KEPT

    def tasks_of(self, node: Node) -> Iterator["asyncio.Task[Any]"]:
        """Those that are not done, or failed and nobody heard of it."""
        unheard = ((owner, task) for task, owner in self._unheard.items())
        return (task for owner, task in chain(self._begun, unheard) if owner is node)

    def bury(self) -> None:
        """Undo every other task, at the end of a run. Their nodes are dead, and so is what this begins."""
        grave = Node(self, "grave")
        grave.is_dead = True
        told, sys.unraisablehook = sys.unraisablehook, lambda _: None
        done = {asyncio.current_task()}
        while left := [task for _, task in self._begun if task not in done and not task.done()]:
            for task in left:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                grave.context.run(_close, task.get_coro())
            done.update(left)
        sys.unraisablehook = told

    def run_again(self, handles: "deque[_Handle]") -> None:
        self._waiting.extend(handle for handle in handles if not handle._cancelled)

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        handle = _Handle(self._now, callback, args, self, context)
        self._waiting.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        handle = _Handle(when, callback, args, self, context)
        heappush(self._timers, (when, next(self._timer_numbers), handle))
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """All iterations until the loop is stopped. Raises DeadlockError."""
        waiting, timers = self._waiting, self._timers
        while not self._stopping:  # type: ignore[attr-defined]
            while timers and timers[0][2]._cancelled:
                heappop(timers)
            if not waiting:
                if not timers:
                    raise DeadlockError
                self._now += max(timers[0][0] - self._now, 0)
            soon = self._now + _RESOLUTION_S
            while timers and timers[0][0] < soon:
                waiting.append(heappop(timers)[2])
            for _ in range(len(waiting)):
                handle = waiting.popleft()
                if not handle._cancelled:
                    self._run_handle(handle)

    def _run_handle(self, handle: _Handle) -> None:
        context = handle._context
        node = context.get(NODE)
        if node is not None and (node.is_dead or node.is_paused):
            if not node.is_dead:
                node.hold(handle)
            return
        try:
            context.run(handle._callback, *handle._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.call_exception_handler({"message": f"Exception in {handle}", "exception": error})

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        if (begin := getattr(executor, "begin", None)) is not None:  # Threads that wait for others.
            return begin(self, partial(func, *args))
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
