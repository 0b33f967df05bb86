"""The fetcher of one leader: when it gives up a request that waits, as another partition is wanted; which
answers it writes, and when it fetches on before the disk has them."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from tests.unit.broker.conftest import OpenServices
from tests.unit.broker.handlers.test_after_appends import StillDisk
from tests.unit.broker.replicas.test_replica import NOW_MS, batch
from tests.waiting import until
from tidelog.broker.replicas.fetcher import (
    INTERRUPT_SECONDS,
    INTERRUPT_SECONDS_PER_PARTITION,
    Fetcher,
)
from tidelog.broker.replicas.fetching import Fetching, FetchLimits
from tidelog.broker.replicas.replication_quota import ReplicationQuota
from tidelog.broker.replicas.topics import NewTopic
from tidelog.protocol.hot import FetchPartitionResult, FetchRequest, FetchResponse
from tidelog.protocol.records import RecordBatchBuilder

LIMITS = FetchLimits(max_wait_ms=500, min_bytes=1, max_bytes=1000, longest_delay_ms=100)
TOPIC_ID = uuid4()
RECORDS = 3


def replica(index: int) -> Any:
    config = SimpleNamespace(follower_replication_throttled_replicas=())
    log = SimpleNamespace(end_offset=0, flushed_end_offset=0, leader_epoch=-1, start_offset=0, config=config)
    return SimpleNamespace(topic_id=TOPIC_ID, partition=index, leader_epoch=0, log=log, fetch_offset=0)


def fetcher_of(fetch: Callable[..., Any], clock_ms: Callable[[], int] = lambda: 0) -> Fetcher:
    nothing: Any = None
    return Fetcher(
        2,
        Fetching(1, 7, LIMITS),
        fetch,
        nothing,
        clock_ms,
        nothing,
        ReplicationQuota(1, lambda: 0.0),
        lambda _: True,
        partition_max_bytes=100,
        longest_backoff_ms=100,
    )


async def test_requests_that_wait_are_given_up_the_less_often_the_more_partitions_the_next_one_names() -> (
    None
):
    asked: list[FetchRequest] = []

    async def fetch(_: int, request: FetchRequest) -> FetchResponse:
        asked.append(request)
        await asyncio.Event().wait()
        raise AssertionError

    fetcher = fetcher_of(fetch)
    clock = asyncio.get_running_loop().time
    for index in range(100):
        fetcher.add(replica(index))
    await until(lambda: asked)
    for count, wait_s in ((101, INTERRUPT_SECONDS), (102, INTERRUPT_SECONDS_PER_PARTITION * 102)):
        given_up = fetcher._interrupted_at if count > 101 else clock()
        fetcher.add(replica(count))
        assert fetcher._interruption is not None
        assert fetcher._interruption.when() >= given_up + wait_s
        assert count > 101 or fetcher._interruption.when() <= clock() + wait_s
        await until(lambda: len(asked) == count - 99)  # noqa: B023
        assert len(asked[-1].topics[0][1]) == count
    await fetcher.close()


async def test_what_was_asked_for_before_another_epoch_began_is_not_written(open_here: OpenServices) -> None:
    services = await open_here()
    await services.topics.create("t", NewTopic(2))
    first, second = (services.replicas["t", index] for index in range(2))
    asked: list[FetchRequest] = []
    is_due = asyncio.Event()

    async def fetch(_: int, request: FetchRequest) -> FetchResponse:
        asked.append(request)
        if len(asked) > 1:
            is_due.set()
            await asyncio.Event().wait()
        answers = [(0, batch(bytes(1 << 20))), (1, batch(b"of the first epoch"))]
        results = [FetchPartitionResult(index, 0, 0, 0, 0, records=records) for index, records in answers]
        return FetchResponse(0, 0, 1, [(first.topic_id, results)])

    def begin_epoch() -> None:
        fetcher.remove(second)
        second.follow(2, 2)
        fetcher.add(second)

    def now_ms() -> int:
        """While the first partition is written: then other work has its turn."""
        asyncio.get_running_loop().call_soon(begin_epoch)
        return NOW_MS

    fetcher = fetcher_of(fetch, now_ms)
    for each in (first, second):
        each.follow(1, 2)
        fetcher.add(each)
    await is_due.wait()
    assert (first.log.end_offset, second.log.end_offset) == (1, 0)
    await fetcher.close()


@pytest.mark.parametrize(
    ("high_watermark", "unflushed", "durable"),
    [(1, 1, [0, 1, 2, 3]), (2, 2, [0, 0, 2, 3]), (9, 2, [0, 0, 1])],
    ids=["in sync", "until it is in sync", "one answer ahead of its disk"],
)
async def test_a_follower_that_lacks_what_is_committed_fetches_on_while_its_disk_works(
    open_here: OpenServices, high_watermark: int, unflushed: int, durable: list[int]
) -> None:
    disk = StillDisk()
    services = await open_here(disk=disk)
    await services.topics.create("t")
    following, asked = services.replicas["t", 0], list[tuple[int, int]]()
    following.follow(1, 2)
    disk.goes_on.clear()

    async def fetch(_: int, request: FetchRequest) -> FetchResponse:
        offset = request.topics[0][1][0].fetch_offset
        asked.append((offset, following.log.flushed_end_offset))
        if offset == RECORDS:
            await asyncio.Event().wait()
        builder = RecordBatchBuilder()
        builder.append(0, None, b"v")
        records = builder.build(base_offset=offset, leader_epoch=1)
        result = FetchPartitionResult(0, 0, high_watermark, log_start_offset=0, records=records)
        return FetchResponse(0, 0, 9, [(following.topic_id, [result])])

    fetcher = fetcher_of(fetch)
    fetcher.add(following)
    await until(lambda: following.log.end_offset == unflushed)
    disk.goes_on.set()
    await until(lambda: following.log.flushed_end_offset == RECORDS)
    await until(lambda: asked[-1][0] == RECORDS)
    await fetcher.close()
    assert [offset for offset, _ in asked] == list(range(RECORDS + 1))
    assert all(flushed >= least for (_, flushed), least in zip(asked, durable, strict=False))
