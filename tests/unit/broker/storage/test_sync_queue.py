"""The kernel's fdatasync: all that it took is answered once, and it steps aside for who replaced the call."""

import errno
import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.broker.storage import sync_queue
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.sync_queue import SyncQueue


@pytest.fixture
def queue() -> Iterator[SyncQueue]:
    opened = Disk().sync_queue()
    if opened is None:
        pytest.fail(
            "Linux on x86_64 is expected to have io_uring: a container needs seccomp=unconfined for it"
        )
    yield opened
    opened.close()


def answers(queue: SyncQueue, count: int) -> dict[int, OSError | None]:
    """The answers of `count` tickets, which must all be different."""
    found: list[tuple[int, OSError | None]] = []
    while len(found) < count:
        assert select.select([queue], [], [], 10)[0], f"{len(found)} of {count} answers came"
        found += queue.finished()
    assert len(dict(found)) == len(found) == count
    return dict(found)


def test_what_was_taken_is_answered_once_however_much_is_under_way(queue: SyncQueue, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb", buffering=0) as file:
        file.write(bytes(1000))
        tickets = [queue.submit(file.fileno()) for _ in range(1_000)]
        taken = {ticket for ticket in tickets if ticket is not None}
        assert len(taken) > 1
        assert answers(queue, len(taken)) == dict.fromkeys(taken)
        assert queue.finished() == []


def test_queues_at_the_same_time_are_separate_and_a_later_one_gets_nothing_of_an_earlier(
    queue: SyncQueue, tmp_path: Path
) -> None:
    with (tmp_path / "log").open("wb", buffering=0) as file:
        for _ in range(12):
            others = [SyncQueue.open() for _ in range(10)]
            for other in others:
                assert other is not None
                ticket = other.submit(file.fileno())
                assert ticket is not None
                assert answers(other, 1) == {ticket: None}
                other.close()
        assert queue.finished() == []
        assert queue.submit(file.fileno()) == 1
        assert answers(queue, 1) == {1: None}


def test_what_cannot_be_synced_is_answered_with_its_error(queue: SyncQueue) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ticket = queue.submit(writing)
    ((told, error),) = answers(queue, 1).items()
    assert (told, error and error.errno) == (ticket, errno.EINVAL)
    os.close(writing)
    ticket = queue.submit(writing)
    ((told, error),) = answers(queue, 1).items()
    assert (told, error and error.errno) == (ticket, errno.EBADF)


def test_a_request_that_the_kernel_refuses_is_not_taken_and_the_next_one_is(
    queue: SyncQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "log").open("wb", buffering=0) as file:
        with monkeypatch.context() as patched:
            patched.setattr(queue, "_syscall", lambda *_: -1)
            assert queue.submit(file.fileno()) is None
        ticket = queue.submit(file.fileno())
        assert answers(queue, 1) == {ticket: None}


def test_there_is_none_where_a_test_put_its_own_in_the_place_of_fdatasync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Noting(Disk):
        def fdatasync(self, fd: int) -> None:
            super().fdatasync(fd)

    assert Noting().sync_queue() is None
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    assert Disk().sync_queue() is None


def test_there_is_none_on_a_machine_whose_calls_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    assert SyncQueue.open() is None


@pytest.mark.parametrize("refused", ["_SETUP", "_REGISTER", "_REGISTER_PROBE", "_REGISTER_EVENTFD"])
def test_there_is_none_where_a_sandbox_refuses_one_of_the_calls(
    monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    monkeypatch.setattr(sync_queue, refused, 100_000)
    before = len(os.listdir("/dev/fd"))
    assert SyncQueue.open() is None
    assert len(os.listdir("/dev/fd")) == before
