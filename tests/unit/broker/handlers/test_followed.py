"""A follower's request looks at what was written since the one before, and misses nothing of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tidelog.broker.handlers.followed import Followed
from tidelog.broker.replicas.replica_log import Watcher

ONE, TWO, THREE = (("t", index) for index in range(3))
NEVER_MS = 1 << 30


class Watched:
    """What a replica does for its watchers."""

    def __init__(self) -> None:
        self.watchers: list[Watcher[Any]] = []

    def watch(self, watcher: Watcher[Any], _: int) -> None:
        self.watchers.append(watcher)

    def unwatch(self, watcher: Watcher[Any]) -> None:
        self.watchers.remove(watcher)

    def write(self) -> None:
        for watcher in self.watchers:
            watcher.replica_changed(self)


@asynccontextmanager
async def followed(*replicas: Any) -> AsyncIterator[Followed]:
    session = Followed(NEVER_MS, NEVER_MS)
    for key, replica in zip((ONE, TWO, THREE), replicas, strict=False):
        session.watch(key, replica)
    yield session
    session.close()
    assert [each.watchers for each in replicas] == [[] for _ in replicas]


async def test_what_is_written_between_two_requests_is_looked_at_once() -> None:
    one, two = Watched(), Watched()
    async with followed(one, two) as session:
        two.write()
        two.write()
        assert session.take([], []) == [TWO]
        assert session.take([], []) == []


async def test_partitions_that_did_not_fit_into_an_answer_come_first_in_the_next() -> None:
    async with followed(Watched(), Watched()) as session:
        session.come_again(TWO)
        assert session.take([ONE, TWO], []) == [TWO, ONE]


async def test_a_partition_that_is_followed_no_more_is_not_looked_at() -> None:
    one = Watched()
    async with followed(one) as session:
        one.write()
        assert session.take([], [ONE]) == []
        one.write()
        assert session.take([], []) == []


async def test_another_replica_of_a_partition_takes_the_place_of_the_one_before() -> None:
    one, again = Watched(), Watched()
    async with followed(one) as session:
        session.watch(ONE, again)  # type: ignore[arg-type]
        one.write()
        assert session.take([], []) == []
        again.write()
        assert session.take([], []) == [ONE]


async def test_a_session_that_has_ended_watches_nothing_again() -> None:
    one = Watched()
    async with followed() as session:
        session.close()
        session.watch(ONE, one)  # type: ignore[arg-type]
    assert not one.watchers


@pytest.mark.parametrize("is_earlier", [True, False])
async def test_who_waits_is_woken_by_what_is_written_also_just_before(is_earlier: bool) -> None:
    one = Watched()
    async with followed(one) as session:
        if is_earlier:
            one.write()
        else:
            asyncio.get_running_loop().call_soon(one.write)
        await session.wait(asyncio.get_running_loop().time() + NEVER_MS)
        assert session.take([], []) == [ONE]


def test_all_are_looked_at_in_each_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, times = asyncio.new_event_loop(), iter((0.0, 0.9, 1.0, 1.9, 2.0))
    monkeypatch.setattr(loop, "time", lambda: next(times))
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    session = Followed(NEVER_MS, 8_000)
    assert [session.is_look_due for _ in range(4)] == [False, True, False, True]
    loop.close()
