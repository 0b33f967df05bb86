"""Group commit: one fdatasync for all requests that wait on a log, in the kernel or a few threads.

Owns the flusher threads and the set of logs that are being flushed. A log asks with `request`. At the end of
the current step of the loop its unflushed batches become one piece of work. The kernel's sync queue runs it
where that is possible, else a thread does. One wake-up of the loop reports all finished work. Batches that
arrive meanwhile share the log's next flush.

Invariants:
- at most one flush of a log is in progress, so flushes of a log finish in the order they began;
- only `Work.run` runs in a thread, all else on the loop;
- logs are flushed in parallel: a slow one delays no other. Only if the kernel has no queue, `MAX_THREADS`
  slow ones delay the others;
- a log's next flush begins before the waiters of the last one are answered, so that the disk works during the
  answers;
- a failed flush is reported once and never tried again here: after a failed fdatasync the kernel may have
  dropped the dirty pages, and a second call would report success for lost data.
"""

import asyncio
import errno
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Protocol, TypeAlias

import structlog

from tidelog.broker.storage.sync_queue import SyncQueue

MAX_THREADS = 16
"""How many logs threads flush at the same time. They start only when that many flushes are in progress."""

_NOT_DONE = (errno.ECANCELED, errno.EINTR)
"""The kernel began no sync, or was interrupted, as some file systems are: `os.fdatasync` repeats that too."""
Answering: TypeAlias = Callable[[], Sequence[Exception]]
"""Answers those who wait; the errors of those that failed."""
logger = structlog.get_logger(__name__)


class Work(Protocol):
    """What has to reach the disk: `run` does it and may raise OSError.

    If `lone_fd` names a file, its fdatasync and then `after_sync` may stand in for `run`.
    """

    lone_fd: int | None

    def run(self) -> None: ...

    def after_sync(self, error: OSError | None) -> OSError | None: ...


class Flushable(Protocol):
    """A log that group commit may flush; its methods are called on the loop."""

    def begin_flush(self) -> Work | None:
        """All that is unflushed now, or None when nothing is."""

    def flush_finished(self, work: Work, error: BaseException | None) -> Answering | None:
        """The work is done, or failed with `error`. Returns what answers the waiters, if any may be."""


class GroupCommit:
    """The flusher of one broker. Create and use it on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sync_queue: SyncQueue | None = None) -> None:
        """`sync_queue` belongs to this from now on."""
        self._loop = loop
        self._sync_queue = sync_queue
        self._in_kernel: dict[int, tuple[Flushable, Work]] = {}
        if sync_queue is not None:
            loop.add_reader(sync_queue.fileno(), self._collect)
        self._requested: dict[Flushable, None] = {}
        self._flushing: set[Flushable] = set()
        self._again: set[Flushable] = set()
        self._queue: SimpleQueue[tuple[Flushable, Work] | None] = SimpleQueue()
        self._finished: deque[tuple[Flushable, Work, BaseException | None]] = deque()
        self._threads: list[threading.Thread] = []
        self._start_scheduled = False
        self._wake_pending = False
        self._listeners: list[asyncio.Future[None]] = []

    def request(self, log: Flushable) -> None:
        """Flush `log` after this step of the loop, or after the flush of it that is in progress."""
        if log in self._flushing:
            self._again.add(log)
            return
        self._requested[log] = None
        if not self._start_scheduled:
            self._start_scheduled = True
            self._loop.call_soon(self._start_requested)

    def _start_requested(self) -> None:
        self._start_scheduled = False
        waiting = self._requested
        self._requested = {}
        for log in waiting:
            if log in self._flushing:
                self._again.add(log)
            else:
                self._begin(log)

    def _begin(self, log: Flushable) -> None:
        work = log.begin_flush()
        if work is None:
            return
        self._flushing.add(log)
        if self._sync_queue is not None and (fd := work.lone_fd) is not None:
            ticket = self._sync_queue.submit(fd)
            if ticket is not None:
                self._in_kernel[ticket] = (log, work)
                return
        self._give_to_threads(log, work)

    def _give_to_threads(self, log: Flushable, work: Work) -> None:
        if len(self._threads) < min(len(self._flushing) - len(self._in_kernel), MAX_THREADS):
            self._start_thread()
        if self._threads:
            self._queue.put((log, work))
        else:
            # The system gives no thread: flush on the loop, so that no waiter is left without an answer.
            self._finished.append((log, work, _run(work)))
            self._loop.call_soon(self._collect)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name=f"flusher-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return  # Continue with the existing threads; the next flush that needs one tries again.
        self._threads.append(thread)

    def _run(self) -> None:
        """The loop of a thread: run work, return it, wake the event loop unless a wake-up is pending."""
        while (item := self._queue.get()) is not None:
            log, work = item
            self._finished.append((log, work, _run(work)))
            if not self._wake_pending:
                self._wake_pending = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:
                    return  # The loop was closed without `close`: there is no waiter any more.

    def _collect(self) -> None:
        """Take over what the kernel and the threads have done."""
        # Cleared before reading, so that work finished after the last read wakes the loop again.
        self._wake_pending = False
        finished = self._finished
        for ticket, error in () if self._sync_queue is None else self._sync_queue.finished():
            log, work = self._in_kernel.pop(ticket)
            if error is not None and error.errno in _NOT_DONE:
                self._give_to_threads(log, work)
                continue
            outcome: BaseException | None
            try:
                outcome = work.after_sync(error)
            except BaseException as raised:
                outcome = raised
            finished.append((log, work, outcome))
        answering: list[Answering] = []
        while finished:
            log, work, outcome = finished.popleft()
            self._flushing.discard(log)
            if (answer := log.flush_finished(work, outcome)) is not None:
                answering.append(answer)
            if log in self._again:
                self._again.discard(log)
                self._begin(log)
        for answer in answering:
            if errors := answer():
                report_unanswered(errors)
        listeners, self._listeners = self._listeners, []
        for future in listeners:
            if not future.done():
                future.set_result(None)

    async def wait_flushed(self, log: Flushable) -> None:
        """Return when no flush of `log` is in progress and none is asked for."""
        while log in self._flushing or log in self._requested:
            if log in self._requested:
                self._start_requested()
            if log in self._flushing:
                await self._moved()

    async def _moved(self) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._listeners.append(future)
        await future

    async def wait_idle(self) -> None:
        """Return when nothing that was requested is left to be flushed."""
        while self._requested or self._flushing:
            if self._requested:
                self._start_requested()
            if self._flushing:
                await self._moved()

    async def close(self) -> None:
        """Finish what was requested, then end the threads. Harmless when done already."""
        await self.wait_idle()
        if self._sync_queue is not None:
            self._loop.remove_reader(self._sync_queue.fileno())
            self._sync_queue.close()
            self._sync_queue = None
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            await self._loop.run_in_executor(None, thread.join)
        self._threads.clear()


def report_unanswered(errors: Sequence[Exception]) -> None:
    """Some of those who wait have failed, which kept none of the others waiting."""
    advice = "report this; its client may have to send the request again"
    for error in errors:
        logger.error("waiting_request_failed", error=repr(error), advice=advice, exc_info=error)


def _run(work: Work) -> BaseException | None:
    try:
        work.run()
    except BaseException as failure:
        return failure
    return None
