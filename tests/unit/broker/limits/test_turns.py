"""Whose turn it is: one step in each turn of the loop, whoever and however many have work."""

import asyncio
from collections.abc import Callable

import pytest

from tidelog.broker.limits.turns import Turns
from tidelog.protocol.steps import Steps


def work(done: list[str], name: str, steps: int) -> Steps[str]:
    for _ in range(steps):
        done.append(name)
        yield
    return name


async def counted_by_turn(done: list[str], is_over: Callable[[], bool]) -> list[int]:
    """How many steps were done in each turn of the loop."""
    counts = []
    while not is_over():
        before = len(done)
        await asyncio.sleep(0)
        counts.append(len(done) - before)
    return counts


async def test_in_a_turn_of_the_loop_one_of_many_does_one_step() -> None:
    turns, done = Turns(), list[str]()
    tasks = []
    for number in range(20):
        await turns.next()  # Each begins with a step of its own, in a turn of its own.
        tasks.append(asyncio.create_task(turns.run(work(done, str(number), 10))))
    counts = await counted_by_turn(done, lambda: all(task.done() for task in tasks))
    assert max(counts) <= 2  # One that begins, and one whose turn it is.
    assert len(done) == 200
    assert [task.result() for task in tasks] == [str(number) for number in range(20)]


async def test_all_come_to_their_turn_in_order() -> None:
    turns, done = Turns(), list[str]()
    await asyncio.gather(*(turns.run(work(done, name, 3)) for name in "abc"))
    assert "".join(done) == "abcabcabc"


async def test_short_work_among_long_is_done_after_its_own_number_of_rounds() -> None:
    turns, done = Turns(), list[str]()
    long = [asyncio.create_task(turns.run(work(done, "long", 1_000))) for _ in range(3)]
    await asyncio.sleep(0)
    await turns.run(work(done, "short", 2))
    assert len(done) < 20
    for task in long:
        task.cancel()
    await asyncio.gather(*long, return_exceptions=True)


async def test_what_is_cancelled_takes_no_turn_and_its_steps_are_closed() -> None:
    turns, done = Turns(), list[str]()
    steps = work(done, "gone", 5)
    task = asyncio.create_task(turns.run(steps))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await turns.run(work(done, "next", 2)) == "next"
    assert done == ["gone", "next", "next"]
    with pytest.raises(StopIteration):
        next(steps)


async def test_an_exception_in_a_step_is_the_callers() -> None:
    def failing() -> Steps[None]:
        yield
        raise ValueError("in the second step")

    with pytest.raises(ValueError, match="second step"):
        await Turns().run(failing())
