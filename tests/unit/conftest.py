"""The short timeouts of these tests do not pass while the machine runs something else: see `steady_loop`."""

from collections.abc import Callable

from tests.steady_loop import SteadyLoop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], SteadyLoop]]:
    return {"steady": SteadyLoop}
