"""The loop of these tests, and a broker that follows a script.

Their short timeouts do not pass while the machine runs something else: see `steady_loop`.
"""

from collections.abc import AsyncIterator, Callable

import pytest

from tests.steady_loop import SteadyLoop
from tests.unit.wire.scripted import ScriptedBroker


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], SteadyLoop]]:
    return {"steady": SteadyLoop}


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker() as running:
        yield running
