"""Threads that call the object store, which may not answer.

Invariant: a process that ends does not wait for them, as it does for those of `ThreadPoolExecutor`. What they
were doing is left as a kill leaves it.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class StoreThreads(Executor):
    """At most `count` threads, started when they are needed."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._queue: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._started = 0
        self._unfinished = 0
        self._lock = threading.Lock()

    def submit(self, call: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """As `Executor`."""
        future: Future[T] = Future()
        with self._lock:
            self._unfinished += 1
            if self._started < min(self._unfinished, self._count):
                name = f"{self._name}-{self._started}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
                self._started += 1
        self._queue.put((future, lambda: call(*arguments, **named)))
        return future

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            future, call = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del item, future, call  # Else the last result stays in memory.
            with self._lock:
                self._unfinished -= 1

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """Let the threads end after what was submitted; never waits."""
        for _ in range(self._started):
            self._queue.put(None)
