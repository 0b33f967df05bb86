"""Repairs of logs that cannot follow: an error that nobody expects ends none of them for good."""

import asyncio
from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.conftest import OpenServices
from tests.unit.broker.test_services import stored
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.replicas.fetchers import Fetchers
from tidelog.broker.replicas.fetching import FetchLimits
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.replicas.replication_quota import ReplicationQuota
from tidelog.broker.services import Services
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.hot import FetchRequest, FetchResponse

LIMITS = FetchLimits(max_wait_ms=500, min_bytes=1, max_bytes=1000, longest_delay_ms=20)


class Leader:
    """Broker 7, which answers no Fetch, and whose other answers fail by a fault of ours."""

    def __init__(self) -> None:
        self.asked: list[FetchRequest] = []

    async def fetch(self, _: int, request: FetchRequest) -> FetchResponse:
        self.asked.append(request)
        await asyncio.Event().wait()
        raise AssertionError

    async def broken(self, *_: Any) -> Any:
        raise RuntimeError("a fault of ours")

    async def refused(self, *_: Any) -> Any:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leads")


def fetchers_of(services: Services, leader: Leader, **others: Any) -> Fetchers:
    topic: Any = services.catalog.topic("t")
    own = topic.partitions[0]
    copied = own._replace(leader_id=7, leader_epoch=2, replicas=(7, own.leader_id), isr=(7, own.leader_id))
    catalog: Any = SimpleNamespace(topic_by_id=lambda _: replace(topic, partitions=(copied,)))
    return Fetchers(
        services.partitions,
        catalog,
        leader.fetch,
        others.get("fetch_snapshot", leader.broken),
        leader.broken,
        services.clock_ms,
        services.events,
        ReplicationQuota(1, lambda: 0.0),
        replica_epoch=7,
        limits=others.get("limits", LIMITS),
        partition_max_bytes=100,
    )


async def following(services: Services) -> Replica:
    await services.topics.create("t")
    await stored(services, b"v")
    replica = services.replicas["t", 0]
    replica.follow(2, 7)
    return replica


def failed_in(events: Sequence[MutableMapping[str, Any]]) -> list[str]:
    return [event["event"] for event in events if event["log_level"] == "error"]


@pytest.mark.parametrize("how", ["start over", "learn epochs"])
async def test_a_repair_that_fails_by_a_fault_is_tried_again(open_here: OpenServices, how: str) -> None:
    services, leader = await open_here(), Leader()
    replica, fetchers = await following(services), fetchers_of(services, leader)
    with capture_logs() as events:
        if how == "start over":
            fetchers.out_of_range(replica)
        else:
            fetchers.epochs_unknown(replica, 5)
        await until(lambda: leader.asked)
    assert failed_in(events) == ["replica_not_repaired"]
    await fetchers.close()


async def test_a_log_whose_cut_fails_by_a_fault_is_not_lost(
    open_here: OpenServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    services, leader = await open_here(), Leader()
    replica, fetchers = await following(services), fetchers_of(services, leader)
    replica.may_lose_committed = True

    def broken(*_: Any) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(services.partitions.logs, "truncate_to", broken)
    with capture_logs() as events:
        fetchers.diverged(replica, (0, 0))
        await until(lambda: leader.asked)
    assert services.replicas["t", 0] is not replica
    assert failed_in(events) == ["replica_not_repaired"]
    await fetchers.close()


async def test_a_repair_that_the_leader_refuses_does_not_delay_the_end(open_here: OpenServices) -> None:
    services, leader = await open_here(), Leader()
    hour = LIMITS._replace(longest_delay_ms=3_600_000)
    replica = await following(services)
    fetchers = fetchers_of(services, leader, fetch_snapshot=leader.refused, limits=hour)
    with capture_logs() as events:
        fetchers.out_of_range(replica)
        await until(lambda: events)
    assert [event["event"] for event in events] == ["replica_not_started_over"]
    await asyncio.wait_for(fetchers.close(), DEADLINE_SECONDS)
    assert not leader.asked
