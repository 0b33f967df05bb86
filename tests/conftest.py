"""Shared set-up of the whole suite: Hypothesis profiles that print what is needed to replay a failure, a
deadline for every test and fixture, and what belongs together when two processes share the tests."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.deadline import deadline

_SPARK = "tests/spark/"
# These start Sparks of their own, so they may as well run in the other process.
_SPARK_APART = tuple(f"tests/spark/test_{name}.py" for name in ("examples", "java_from_pypi", "kills"))

settings.register_profile(
    "ci", max_examples=60, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# What is started in the background ignores it, and so would the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


class Shares(LoadScopeScheduling):  # type: ignore[misc]
    """What runs in one process of several: a file's tests, which share fixtures, and most of Spark's, which
    share a session."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "spark" if file.startswith(_SPARK) and file not in _SPARK_APART else file


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Shares:
    return Shares(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's tests take longest: they come first."""
    items.sort(key=lambda item: not item.nodeid.startswith(_SPARK))


def _limited(item: pytest.Item) -> Iterator[Any]:
    with deadline(item.nodeid):
        return (yield)


pytest_runtest_setup = pytest.hookimpl(wrapper=True)(_limited)
pytest_runtest_call = pytest.hookimpl(wrapper=True)(_limited)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[Any]:
    with deadline(f"the end of {item.nodeid}"):
        return (yield)
