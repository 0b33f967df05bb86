"""Waiting for what is not the test's to signal: a condition, asked until it holds, and a deadline."""

import asyncio
from collections.abc import Callable

DEADLINE_SECONDS = 10.0


async def until(condition: Callable[[], object], seconds: float = DEADLINE_SECONDS) -> None:
    """Return once the condition holds; TimeoutError past `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (what is waited for is not ours to signal)
            await asyncio.sleep(0.001)
