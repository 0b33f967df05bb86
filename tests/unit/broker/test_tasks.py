"""What a broker does all the time goes on after an error that nobody expects."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from tidelog.broker import tasks
from tidelog.broker.tasks import kept


async def test_kept_work_begins_again_after_an_error_and_ends_with_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "_AGAIN_SECONDS", 0)
    errors: list[Exception] = [MemoryError(), KeyError("a")]
    begun: list[Any] = []

    async def work(argument: str) -> None:
        begun.append(argument)
        if errors:
            raise errors.pop()

    with capture_logs() as logs:
        await kept(work, "given")
    assert begun == ["given"] * 3
    told = [(each["event"], each["error"], "work" in each["task"]) for each in logs]
    assert told == [
        ("background_task_failed", "KeyError('a')", True),
        ("background_task_failed", "MemoryError()", True),
    ]


async def test_kept_work_can_be_cancelled() -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(kept(work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
