"""The honest disk notes what the kernel synced for the broker, when the broker hears of it and not before."""

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from faults.honest_disk import Journal, NotingQueue, named_files, synced_sizes
from faults.power import cut_power
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.storage.sync_queue import SyncQueue


def made(journal: Path, *, delay_ms: float = 0, thread_share: float = 0) -> NotingQueue:
    queue = SyncQueue.open()
    if queue is None:
        pytest.fail(
            "Linux on x86_64 is expected to have io_uring: a container needs seccomp=unconfined for it"
        )
    return NotingQueue(queue, Journal(journal), delay_ms, thread_share)


async def test_a_sync_of_the_kernel_is_applied_when_it_is_reported(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    queue = made(journal, delay_ms=20)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    told: list[tuple[int, OSError | None]] = []

    def hear() -> None:
        assert synced_sizes(journal) == {}
        told.extend(queue.finished())
        if told:
            done.set_result(None)

    with (tmp_path / "log").open("wb", buffering=0) as file:
        file.write(bytes(1000))
        ticket = queue.submit(file.fileno())
        file.write(bytes(500))
        loop.add_reader(queue.fileno(), hear)
        async with asyncio.timeout(DEADLINE_SECONDS):
            await done
        loop.remove_reader(queue.fileno())
        assert told == [(ticket, None)]
        assert synced_sizes(journal) == {os.fstat(file.fileno()).st_ino: 1000}
    queue.close()


async def test_what_is_left_to_threads_the_queue_does_not_take(tmp_path: Path) -> None:
    queue = made(tmp_path / "journal", thread_share=1)
    with (tmp_path / "log").open("wb", buffering=0) as file:
        assert queue.submit(file.fileno()) is None
    queue.close()


def test_a_power_cut_takes_files_whose_folder_was_not_synced_and_no_others(tmp_path: Path) -> None:
    journal, folder = tmp_path / "journal", tmp_path / "t-0"
    folder.mkdir()
    note = Journal(journal).noting(os.fsync, 0)

    def made(name: str) -> None:
        (folder / name).write_bytes(bytes(100))
        fd = os.open(folder / name, os.O_RDONLY)
        note(fd)
        os.close(fd)

    for number in range(20):
        made(f"{number}.log")
    fd = os.open(folder, os.O_RDONLY)
    note(fd)
    os.close(fd)
    for number in range(20, 40):
        made(f"{number}.log")
    assert cut_power(folder, synced_sizes(journal), named_files(journal), random.Random(1)) > 0
    left = {int(path.stem) for path in folder.iterdir()}
    assert left >= set(range(20))
    assert 20 <= len(left) < 40
    assert {path.stat().st_size for path in folder.iterdir()} == {100}


def test_the_clock_of_a_process_is_stepped_while_it_runs(tmp_path: Path) -> None:
    program = f"""
import time
from pathlib import Path
from faults.honest_disk import follow_clock, step_clock
journal = Path({str(tmp_path / "synced")!r})
follow_clock(journal)
before, steady = time.time_ns(), time.monotonic_ns()
step_clock(journal, -3_600_000)
print(time.time_ns() - before - (time.monotonic_ns() - steady))
"""
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout
    assert round(int(printed) / 60e9) == -60
