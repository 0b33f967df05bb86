"""The fetcher of one leader: when it gives up a request that waits, as another partition is wanted."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from tests.waiting import until
from tidelog.broker.replicas.fetcher import (
    INTERRUPT_SECONDS,
    INTERRUPT_SECONDS_PER_PARTITION,
    Fetcher,
)
from tidelog.broker.replicas.fetching import Fetching, FetchLimits
from tidelog.broker.replicas.replication_quota import ReplicationQuota
from tidelog.protocol.hot import FetchRequest, FetchResponse

LIMITS = FetchLimits(max_wait_ms=500, min_bytes=1, max_bytes=1000, longest_delay_ms=100)
TOPIC_ID = uuid4()


def replica(index: int) -> Any:
    config = SimpleNamespace(follower_replication_throttled_replicas=())
    log = SimpleNamespace(end_offset=0, flushed_end_offset=0, leader_epoch=-1, start_offset=0, config=config)
    return SimpleNamespace(topic_id=TOPIC_ID, partition=index, leader_epoch=0, log=log)


async def test_requests_that_wait_are_given_up_the_less_often_the_more_partitions_the_next_one_names() -> (
    None
):
    asked: list[FetchRequest] = []

    async def fetch(_: int, request: FetchRequest) -> FetchResponse:
        asked.append(request)
        await asyncio.Event().wait()
        raise AssertionError

    nothing: Any = None
    fetcher = Fetcher(
        2,
        Fetching(1, 7, LIMITS),
        fetch,
        nothing,
        lambda: 0,
        nothing,
        ReplicationQuota(1, lambda: 0.0),
        lambda _: True,
        partition_max_bytes=100,
        longest_backoff_ms=100,
    )
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
