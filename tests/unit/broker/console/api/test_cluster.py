"""Brokers and partitions as the catalog has them: several brokers, missing replicas, partitions offline."""

from types import SimpleNamespace
from typing import Any

from tests.unit.broker.console.asking import answer, stand_in
from tidelog.broker.cluster.catalog import NO_LEADER, BrokerRegistration, Listener, PartitionAssignment
from tidelog.broker.console.api import cluster


def partition(leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionAssignment:
    return PartitionAssignment(leader, 4, replicas, isr)


def console() -> Any:
    topics = [
        SimpleNamespace(
            name="a",
            partitions=[partition(1, (1, 2), (1, 2)), partition(2, (2, 1), (2,)), partition(1, (1,), (1,))],
        ),
        SimpleNamespace(name="secret", partitions=[partition(1, (1,), (1,))]),
    ]
    brokers = {
        node: BrokerRegistration(node, (Listener("PLAINTEXT", f"host-{node}", 9092),)) for node in (1, 2)
    }
    served = {("a", 0): 1, ("secret", 0): 1}
    catalog = SimpleNamespace(cluster_id="c", revision=9, brokers=brokers, topics=lambda: iter(topics))
    return stand_in(
        {
            "node_id": 1,
            "catalog": catalog,
            "leader_of": lambda topic, index: served.get((topic, index), NO_LEADER),
            "is_live": lambda node_id: node_id == 1,
        }
    )


async def states(**asked: Any) -> Any:
    caller = SimpleNamespace(may=lambda right, topic: topic != "secret")
    return await answer(cluster.partitions, console(), caller, **asked)


async def test_each_broker_has_its_counts() -> None:
    facts = await answer(cluster.cluster, console())
    assert [(each["node_id"], each["is_this"]) for each in facts["brokers"]] == [(1, True), (2, False)]
    assert [(each["leads"], each["holds"], each["in_sync"]) for each in facts["brokers"]] == [
        (3, 4, 3),
        (1, 2, 2),
    ]
    assert [each["is_live"] for each in facts["brokers"]] == [True, False]
    assert facts["brokers"][1]["listeners"] == ["PLAINTEXT://host-2:9092"]
    assert (facts["partitions"], facts["out_of_sync"], facts["offline"]) == (4, 1, 2)


async def test_partitions_come_by_pages_without_topics_that_the_user_may_not_see() -> None:
    every = (await states())["rows"]
    assert [(each["topic"], each["partition"]) for each in every] == [("a", 0), ("a", 1), ("a", 2)]
    part = await states(offset=1, limit=1)
    assert ([each["partition"] for each in part["rows"]], part["total"]) == ([1], 3)


async def test_the_troubled_ones_are_offline_or_lack_a_replica() -> None:
    found = await states(is_troubled=True)
    assert [(each["partition"], each["is_served"], each["in_sync_replicas"]) for each in found["rows"]] == [
        (1, False, [2]),
        (2, False, [1]),
    ]
    assert found["total"] == 2
