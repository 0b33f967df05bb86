"""A broker notices that the process of another one has ended."""

import asyncio
from uuid import UUID

import pytest

from tests.waiting import until
from tidelog.broker.cluster import exit_watcher
from tidelog.broker.cluster.catalog import BrokerRegistration
from tidelog.broker.cluster.exit_watcher import ExitWatcher
from tidelog.protocol.errors import ApiError, ErrorCode

FIRST, SECOND = (BrokerRegistration(each, (), UUID(int=each)) for each in (1, 2))


async def test_each_start_of_a_broker_that_is_watched_is_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exit_watcher, "GRACE_SECONDS", 0)
    monkeypatch.setattr(exit_watcher, "_RETRY_SECONDS", 0)
    refused: dict[int, asyncio.Event] = {1: asyncio.Event(), 2: asyncio.Event()}
    failures = [ApiError(ErrorCode.NETWORK_EXCEPTION)] * 3
    ended: list[BrokerRegistration] = []

    had_to_answer: list[tuple[int, bool]] = []

    async def until_refused(node_id: int, has_to_answer: bool) -> None:
        if failures:
            raise failures.pop()
        had_to_answer.append((node_id, has_to_answer))
        await refused[node_id].wait()

    async def has_ended(broker: BrokerRegistration) -> None:
        ended.append(broker)

    watching = ExitWatcher(until_refused, has_ended)
    watching.watch([FIRST, SECOND])
    refused[1].set()
    await until(lambda: ended == [FIRST])
    watching.watch([FIRST])
    refused[2].set()
    again = FIRST._replace(incarnation=UUID(int=9))
    watching.watch([again])
    await until(lambda: ended == [FIRST, again])
    watching.watch([again])
    assert not any(has_to_answer for _, has_to_answer in had_to_answer)

    # It lived, and is live again.
    watching.watch([])
    watching.watch([again])
    await until(lambda: len(ended) == 3)
    await watching.stop()
    assert had_to_answer[-1] == (1, True)
