"""Waiting for what is not the test's to signal: a condition, asked until it holds, and a deadline."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from inspect import iscoroutine
from typing import Any, TypeVar

DEADLINE_SECONDS = 120.0
"""No machine that works takes so long for anything that a test waits for; it ends what would hang."""
_Value = TypeVar("_Value")


async def until(condition: Callable[[], Any], seconds: float = DEADLINE_SECONDS) -> Any:
    """What the condition gives, awaited where that is a coroutine, once it is true. TimeoutError later."""
    async with asyncio.timeout(seconds):
        # What is waited for is not ours to signal.
        while not (value := await found if iscoroutine(found := condition()) else found):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        return value


async def pause(seconds: float) -> None:
    """So that what comes next happens at another moment in each run; nothing relies on it."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


def wait_for(condition: Callable[[], _Value], what: str, seconds: float) -> _Value:
    """Without a loop: what the condition gave once that is true. TimeoutError past `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.05)
    return value
