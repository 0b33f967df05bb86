"""Begins a coroutine at once, where a task would begin with the next turn of the loop.

Owns `begin`. Event loop only. Python 3.12 has eager tasks, this is for 3.11 too.
"""

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def begin(work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    """Run it now up to where it first waits, and the rest as a task. If it never waits, the result is done.

    Until it first waits it has no current task: `asyncio.timeout` and `TaskGroup` may be used only later.
    """
    loop = asyncio.get_running_loop()
    try:
        awaited = work.send(None)
    except StopIteration as end:
        done: asyncio.Future[T] = loop.create_future()
        done.set_result(end.value)
        return done
    except Exception as error:
        done = loop.create_future()
        done.set_exception(error)
        return done
    if awaited is not None:
        awaited._asyncio_future_blocking = False  # Until the task takes it over others may await it too.
    return loop.create_task(_rest(work, awaited))


async def _rest(work: Coroutine[Any, Any, T], awaited: Any) -> T:
    return await _steps(work, awaited)


@coroutine
def _steps(work: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, None, T]:
    while True:
        try:
            if awaited is not None:
                awaited._asyncio_future_blocking = True
            yield awaited
        except BaseException as error:
            try:
                awaited = work.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
        else:
            result = yield from work
            return result
