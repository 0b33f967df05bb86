"""Group commit: what waits together shares a flush, logs flush in parallel, a failure is reported once."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.replicas.group_commit import MAX_THREADS, Answering, GroupCommit, Work
from tidelog.broker.storage.sync_queue import SyncQueue


class Flush:
    """Work that takes until it is let go."""

    def __init__(self, log: "Log", error: OSError | None = None) -> None:
        self.log = log
        self.error = error
        self.lone_fd = log.lone_fd

    def run(self) -> None:
        self.log.started.release()
        if not self.log.may_finish.acquire(timeout=DEADLINE_SECONDS):
            raise OSError("the test never let the flush go")
        if self.error is not None:
            raise self.error

    def after_sync(self, error: OSError | None) -> OSError | None:
        self.log.released += 1
        if self.error is not None:
            raise self.error
        return error


class Log:
    """A log whose unflushed batches are a number."""

    def __init__(self) -> None:
        self.unflushed = 0
        self.flushed: list[int] = []
        self.begun: list[int] = []
        self.lone_fd: int | None = None
        self.released = 0
        self.told: list[int] = []
        """How many flushes had begun each time that those who wait were told."""
        self.errors: list[BaseException] = []
        self.error: OSError | None = None
        self.started = threading.Semaphore(0)
        self.may_finish = threading.Semaphore(0)
        self.changed = asyncio.Event()
        self._in_flight = 0

    def begin_flush(self) -> Flush | None:
        if not self.unflushed:
            return None
        self._in_flight, self.unflushed = self.unflushed, 0
        self.begun.append(self._in_flight)
        return Flush(self, self.error)

    def flush_finished(self, work: Work, error: BaseException | None) -> Answering:
        if error is None:
            self.flushed.append(self._in_flight)
        else:
            self.errors.append(error)
        self.changed.set()
        return self.answer

    def answer(self) -> list[Exception]:
        self.told.append(len(self.begun))
        return []

    def ask(self, group_commit: GroupCommit) -> None:
        self.unflushed += 1
        group_commit.request(self)

    async def until(self, flushes: int) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(self.flushed) + len(self.errors) < flushes:
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
async def group_commit() -> AsyncIterator[GroupCommit]:
    made = GroupCommit(asyncio.get_running_loop())
    yield made
    await made.close()


async def begun(log: Log) -> None:
    assert await asyncio.to_thread(log.started.acquire, timeout=DEADLINE_SECONDS)


async def test_all_that_waits_in_one_step_of_the_loop_shares_a_flush(group_commit: GroupCommit) -> None:
    log = Log()
    for _ in range(5):
        log.ask(group_commit)
    log.may_finish.release()
    await log.until(1)
    assert log.flushed == [5]


async def test_what_arrives_during_a_flush_shares_the_next_one(group_commit: GroupCommit) -> None:
    log = Log()
    log.ask(group_commit)
    await begun(log)
    for _ in range(3):
        log.ask(group_commit)
        await asyncio.sleep(0)
    assert log.flushed == []
    log.may_finish.release(2)
    await log.until(2)
    assert log.flushed == [1, 3]


async def test_the_next_flush_begins_before_the_waiters_of_the_last_are_answered(
    group_commit: GroupCommit,
) -> None:
    log = Log()
    log.ask(group_commit)
    await begun(log)
    log.ask(group_commit)
    log.may_finish.release(2)
    await log.until(2)
    await group_commit.close()
    assert log.told == [2, 2]


async def test_several_logs_are_flushed_at_the_same_time(group_commit: GroupCommit) -> None:
    logs = [Log() for _ in range(MAX_THREADS)]
    for log in logs:
        log.ask(group_commit)
    for log in logs:
        await begun(log)
    for log in logs:
        log.may_finish.release()
        await log.until(1)


async def test_a_slow_log_holds_up_no_other(group_commit: GroupCommit) -> None:
    slow, *others = [Log() for _ in range(2 * MAX_THREADS)]
    for log in (slow, *others):
        log.ask(group_commit)
    for log in others:
        log.may_finish.release()
        await log.until(1)
    assert slow.flushed == []
    slow.may_finish.release()
    await group_commit.close()
    assert slow.flushed == [1]


@pytest.fixture
def sync_queue() -> SyncQueue:
    queue = SyncQueue.open()
    if queue is None:
        pytest.fail(
            "Linux on x86_64 is expected to have io_uring: a container needs seccomp=unconfined for it"
        )
    return queue


async def test_the_kernel_flushes_without_a_thread(sync_queue: SyncQueue, tmp_path: Path) -> None:
    group_commit = GroupCommit(asyncio.get_running_loop(), sync_queue)
    logs = [Log() for _ in range(3)]
    files = [(tmp_path / str(number)).open("wb") for number in range(len(logs))]
    for number in range(1, 4):
        for log, file in zip(logs, files, strict=True):
            file.write(b"x" * 100)
            file.flush()
            log.lone_fd, log.unflushed = file.fileno(), number
            group_commit.request(log)
        for log in logs:
            await log.until(number)
    assert [log.flushed for log in logs] == [[1, 2, 3]] * 3
    assert [log.released for log in logs] == [3] * 3
    assert group_commit._threads == []
    await group_commit.close()
    await group_commit.close()
    for file in files:
        file.close()


@pytest.mark.parametrize("code", [None, errno.ECANCELED, errno.EINTR])
async def test_what_the_kernel_does_not_take_or_gives_up_a_thread_does(
    sync_queue: SyncQueue, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    finished = sync_queue.finished
    given_up = OSError(code or errno.EIO, "given up")
    monkeypatch.setattr(sync_queue, "finished", lambda: [(ticket, given_up) for ticket, _ in finished()])
    if code is None:
        monkeypatch.setattr(sync_queue, "submit", lambda fd: None)
    group_commit = GroupCommit(asyncio.get_running_loop(), sync_queue)
    not_taken = Log()
    not_taken.lone_fd = 0
    not_taken.unflushed = 1
    not_taken.may_finish.release()
    group_commit.request(not_taken)
    await not_taken.until(1)
    assert (not_taken.flushed, not_taken.released) == ([1], 0)
    await group_commit.close()


async def flush_together(group_commit: GroupCommit, path: Path, *logs: Log) -> None:
    """Have the kernel flush them once, in this order, and close."""
    with path.open("wb") as file:
        for log in logs:
            log.lone_fd, log.unflushed = file.fileno(), 1
            group_commit.request(log)
        for log in logs:
            await log.until(1)
        await group_commit.close()


async def test_an_error_of_the_kernel_is_reported_once_and_the_others_go_on(
    sync_queue: SyncQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group_commit, bad, good = GroupCommit(asyncio.get_running_loop(), sync_queue), Log(), Log()
    finished, refused = sync_queue.finished, OSError(5, "Input/output error")
    # Tickets count from 1 in the order of the requests.
    monkeypatch.setattr(
        sync_queue,
        "finished",
        lambda: [(ticket, refused if ticket == 1 else error) for ticket, error in finished()],
    )
    await flush_together(group_commit, tmp_path / "log", bad, good)
    assert (bad.errors, good.flushed) == ([refused], [1])
    assert (bad.released, good.released) == (1, 1)


async def test_a_file_that_cannot_be_closed_after_the_kernel_synced_it_keeps_no_other_waiting(
    sync_queue: SyncQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group_commit, bad, good = GroupCommit(asyncio.get_running_loop(), sync_queue), Log(), Log()
    bad.error = OSError(5, "Input/output error")
    finished, answers = sync_queue.finished, list[tuple[int, OSError | None]]()

    def both_at_once() -> list[tuple[int, OSError | None]]:
        answers.extend(finished())
        return sorted(answers) if len(answers) == 2 else []

    monkeypatch.setattr(sync_queue, "finished", both_at_once)
    await flush_together(group_commit, tmp_path / "log", bad, good)
    assert (bad.errors, good.flushed) == ([bad.error], [1])


async def test_where_no_thread_can_be_started_the_loop_flushes_itself(
    group_commit: GroupCommit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    logs = [Log(), Log()]
    for log in logs:
        log.may_finish.release()
        log.ask(group_commit)
    for log in logs:
        await log.until(1)
    assert [log.flushed for log in logs] == [[1], [1]]


async def test_threads_stay_few_and_nothing_waits_for_ever(group_commit: GroupCommit) -> None:
    before = threading.enumerate()
    logs = [Log() for _ in range(5 * MAX_THREADS)]
    for log in logs:
        log.may_finish.release()
        log.ask(group_commit)
    for log in logs:
        await log.until(1)
    begun = [thread for thread in threading.enumerate() if thread not in before]
    flushers = [thread for thread in begun if thread.name.startswith("flusher-")]
    assert len(flushers) == MAX_THREADS
    await group_commit.close()
    assert not [thread for thread in flushers if thread.is_alive()]


async def test_a_failure_is_reported_once_and_the_others_go_on(group_commit: GroupCommit) -> None:
    bad, good = Log(), Log()
    bad.error = OSError("no")
    for log in (bad, good):
        log.may_finish.release()
        log.ask(group_commit)
    await bad.until(1)
    await good.until(1)
    assert (bad.errors, good.flushed) == ([bad.error], [1])


async def test_close_waits_for_what_was_requested(group_commit: GroupCommit) -> None:
    log = Log()
    log.unflushed = 2
    group_commit.request(log)
    closing = asyncio.create_task(group_commit.close())
    await begun(log)
    assert not closing.done()
    log.may_finish.release()
    await closing
    assert log.flushed == [2]


@pytest.mark.parametrize("pending", [0, 1])
async def test_a_request_with_nothing_to_flush_costs_no_thread(
    group_commit: GroupCommit, pending: int
) -> None:
    log = Log()
    log.unflushed = pending
    log.may_finish.release()
    group_commit.request(log)
    await group_commit.wait_idle()
    assert len(group_commit._threads) == pending
