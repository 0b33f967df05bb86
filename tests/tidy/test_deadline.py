"""The deadline of every test, and the search for processes that a test left behind."""

import asyncio
import subprocess
import sys
import threading

import pytest

from tests.deadline import Hanging, deadline
from tests.processes import children, none_left

FOR_EVER = "import time; print(1, flush=True); time.sleep(600)"


def test_a_wait_without_an_end_is_interrupted() -> None:
    with pytest.raises(Hanging, match=r"it took longer than 0\.05 s"), deadline("it", 0.05):
        threading.Event().wait()


def test_a_waiting_event_loop_is_interrupted_too() -> None:
    with pytest.raises(Hanging), deadline("it", 0.05):
        asyncio.run(asyncio.Event().wait())


def test_a_fast_test_is_not_interrupted_and_the_outer_deadline_applies() -> None:
    def wait() -> None:
        with deadline("the inner", 60):
            pass
        threading.Event().wait()

    with pytest.raises(Hanging, match="the outer"), deadline("the outer", 0.2):
        wait()


def test_a_process_that_was_left_behind_is_killed_and_named() -> None:
    left: list[subprocess.Popen[bytes]] = []

    def leave() -> None:
        process = subprocess.Popen([sys.executable, "-c", FOR_EVER], stdout=subprocess.PIPE)
        left.append(process)
        assert process.stdout is not None
        with process.stdout:
            process.stdout.readline()

    with pytest.raises(AssertionError, match=r"time\.sleep\(600\)"), none_left():
        leave()
    assert left[0].pid not in children()
    assert left[0].wait() in (0, -9)  # The kill took it from this object, which then knows no better than 0.
