"""Shared set-up of the whole suite: Hypothesis profiles that print what is needed to replay a failure, a
deadline for every test and fixture, what comes first, what one process runs, what is left out, and a cheap
collection of so many tests."""

import fcntl
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests.deadline import deadline
from tests.left_out import leave_out, name_them
from tests.memory_folder import in_memory, memory_folder

_TOGETHER = ("tests/spark/", "tests/console/")
"""One process runs all tests of such a folder: each other one would start Spark, or a browser, again."""

# The same examples in each run: only a change of the code changes the result. "thorough" tries new ones.
settings.register_profile(
    "ci",
    max_examples=20,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# What is started in the background ignores it, and so would the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write the answers in scripts anew (tests/scripts.py)"
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("rewrite"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What one process runs takes longest: it comes first."""
    leave_out(config, items)
    items.sort(
        key=lambda item: next(
            (at for at, each in enumerate(_TOGETHER) if item.nodeid.startswith(each)), len(_TOGETHER)
        )
    )


class _ByFolder(LoadFileScheduling):  # type: ignore[misc]
    """Gives each process whole files, and one of them all of a folder of _TOGETHER."""

    def _split_scope(self, nodeid: str) -> str:
        folders = (each for each in _TOGETHER if nodeid.startswith(each))
        return next(folders, None) or super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return _ByFolder(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    name_them(terminalreporter, config.args)


def _wait_for_bytecode() -> int:
    """Wait while another worker, that came first, collects. Returns the descriptor that holds the lock."""
    descriptor = os.open(__file__, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """The first worker rewrites and compiles every test file alone: the others find its bytecode.

    What is collected lives until the end, so the garbage collector need not look at it, now or later.
    """
    lock = _wait_for_bytecode()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        os.close(lock)


@pytest.fixture(scope="session")
def memory() -> Iterator[Path | None]:
    """The folder in memory of this process; None where there is none."""
    folder = memory_folder()
    yield folder
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _files_in_memory(request: pytest.FixtureRequest, memory: Path | None) -> Iterator[None]:
    with in_memory(memory, request.node.nodeid):
        yield


@pytest.fixture
def tmp_path(tmp_path: Path, memory: Path | None) -> Iterator[Path]:
    """Of a test that may, a folder in memory."""
    if memory is None or tempfile.gettempdir() != str(memory):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp())
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _limited(item: pytest.Item) -> Iterator[Any]:
    with deadline(item.nodeid):
        return (yield)


pytest_runtest_setup = pytest.hookimpl(wrapper=True)(_limited)
pytest_runtest_call = pytest.hookimpl(wrapper=True)(_limited)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[Any]:
    with deadline(f"the end of {item.nodeid}"):
        return (yield)
