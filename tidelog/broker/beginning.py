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
        # Without this frame, which has the future: a cycle would wait for the collector.
        done.set_exception(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
        return done
    if awaited is not None:
        awaited._asyncio_future_blocking = False  # Until the task takes it over others may await it too.
    return loop.create_task(_rest(work, [awaited]))


async def _rest(work: Coroutine[Any, Any, T], awaited: list[Any]) -> T:
    return await _steps(work, awaited)


@coroutine
def _steps(work: Coroutine[Any, Any, T], awaited: list[Any]) -> Generator[Any, None, T]:
    """`awaited` has what is awaited next until it is: an error that it raises must not find it in a frame."""
    while True:
        try:
            if awaited[0] is not None:
                awaited[0]._asyncio_future_blocking = True
            yield awaited.pop()
        except BaseException as error:
            try:
                awaited.append(work.throw(error))
            except StopIteration as end:
                result: T = end.value
                return result
        else:
            result = yield from work
            return result
