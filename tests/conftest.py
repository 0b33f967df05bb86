"""Shared set-up of the whole suite: Hypothesis profiles that print what is needed to replay a failure, a
deadline for every test and fixture, and what belongs together when two processes share the tests."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.deadline import deadline

settings.register_profile(
    "ci", max_examples=60, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


# The two processes look at the groups in a hook of their own.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests share its fixtures, all of Spark's one session, and that takes longest, so first."""
    for item in items:
        file = item.nodeid.partition("::")[0]
        group = "spark" if file.startswith("tests/spark/") else file
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: not item.nodeid.startswith("tests/spark/"))


def _limited(item: pytest.Item) -> Iterator[Any]:
    with deadline(item.nodeid):
        return (yield)


pytest_runtest_setup = pytest.hookimpl(wrapper=True)(_limited)
pytest_runtest_call = pytest.hookimpl(wrapper=True)(_limited)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[Any]:
    with deadline(f"the end of {item.nodeid}"):
        return (yield)
