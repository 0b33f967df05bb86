"""The command `tidelog` as tests type it: in this process, or in one that ends with the test."""

import selectors
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.waiting import DEADLINE_SECONDS
from tidelog.cli.main import main

Type = Callable[..., tuple[int, str, str]]
TIDELOG = (sys.executable, "-m", "tidelog.cli")
PATIENCE_S = DEADLINE_SECONDS


def typist(capfd: pytest.CaptureFixture[str]) -> Type:
    """Types a command, in this process; (exit code, standard output, standard error)."""

    def type_command(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(arguments)
        shown = capfd.readouterr()
        return code, shown.out, shown.err

    return type_command


@contextmanager
def typed(*arguments: str, **pipes: Any) -> Iterator["subprocess.Popen[str]"]:
    """A command in a process of its own, killed at the end of the block if it still runs."""
    process = subprocess.Popen([*TIDELOG, *arguments], text=True, **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                # What was not written yet has no reader any more.
                with suppress(BrokenPipeError):
                    pipe.close()


def next_line(process: "subprocess.Popen[str]") -> str:
    """The next line of its standard output, of which no other is waiting. TimeoutError when none comes."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        has_come = bool(selector.select(PATIENCE_S))
    if not has_come:
        raise TimeoutError(f"no line of {process.args!r} in {PATIENCE_S} s")
    return process.stdout.readline()
