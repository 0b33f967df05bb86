"""A coroutine that is begun at once: its first part runs before `begin` returns, the rest as a task does."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tidelog.broker.beginning import begin


async def test_what_never_waits_is_done_at_once() -> None:
    async def answer() -> int:
        return 5

    async def refuse() -> int:
        raise ValueError("no")

    assert begin(answer()).result() == 5
    with pytest.raises(ValueError, match="no"):
        begin(refuse()).result()


async def test_the_rest_goes_on_with_what_was_awaited() -> None:
    order: list[str] = []
    given: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    refused: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> int:
        order.append("begun")
        number = await given
        await asyncio.sleep(0)
        try:
            await refused
        except ValueError:
            order.append("refused")
        return number

    begun = [begin(work()), begin(work())]  # Both wait for one future.
    assert order == ["begun", "begun"]
    given.set_result(7)
    await asyncio.sleep(0)
    refused.set_exception(ValueError("no"))
    assert await asyncio.gather(*begun) == [7, 7]
    assert order[2:] == ["refused", "refused"]


@pytest.mark.parametrize("first", [lambda: asyncio.sleep(0), lambda: asyncio.Event().wait()])
async def test_it_can_be_cancelled_where_it_first_waits(first: Callable[[], Awaitable[object]]) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await first()
        except asyncio.CancelledError:
            ended.append("cancelled")
            await asyncio.sleep(0)
            raise

    begun = begin(work())
    await asyncio.sleep(0)
    begun.cancel()
    with pytest.raises(asyncio.CancelledError):
        await begun
    assert ended == ["cancelled"]


async def test_who_catches_the_cancellation_goes_on() -> None:
    async def work() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "went on"
        return ""

    begun = begin(work())
    await asyncio.sleep(0)
    begun.cancel()
    assert await begun == "went on"
