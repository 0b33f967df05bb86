"""The brokers of the cluster, their leaders and in-sync replicas.

Owns the routes and the page. They count what all have, so they need DESCRIBE on the cluster; of topics, users
are shown those that they may describe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, TypedDict

from msgspec import Meta

from tidelog.broker.cluster.catalog import NO_LEADER
from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import Console, Listing, Page, Parameters, page, route
from tidelog.broker.console.views.of_cluster import Listed
from tidelog.broker.security.required_access import DESCRIBE_CLUSTER, DESCRIBE_TOPIC, whole
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps

if TYPE_CHECKING:
    from tidelog.broker.services import Services


class ClusterBroker(TypedDict):
    """A broker that the catalog knows."""

    node_id: int
    is_this: bool
    """Whether this page is of this broker."""
    is_live: bool
    """Whether it is there; one whose session has ended leads nothing."""
    rack: str | None
    listeners: list[str]
    """As clients see it: NAME://host:port."""
    leads: int
    """Partitions that it leads."""
    holds: int
    """Partitions of which it has a replica."""
    in_sync: int
    """Replicas of those that are in sync."""


class ClusterFacts(TypedDict):
    """The brokers of the cluster, and how many partitions are out of sync or offline."""

    cluster_id: str
    revision: int
    """Of the catalog: counts its changes."""
    brokers: list[ClusterBroker]
    partitions: int
    out_of_sync: int
    """Partitions of which some replica is not in sync."""
    offline: int
    """Partitions that no broker serves, as far as this one knows."""


class PartitionState(TypedDict):
    """Which brokers lead and replicate a partition."""

    topic: str
    partition: int
    leader_id: int
    leader_epoch: int
    replicas: list[int]
    in_sync_replicas: list[int]
    is_served: bool
    """Whether it has a live leader and, if that is this broker, is served."""


class PartitionStates(Listed):
    """Partitions, by topic in the order of the catalog."""

    rows: list[PartitionState]


def cluster_facts(services: Services) -> Steps[ClusterFacts]:
    """The state of all brokers in the catalog."""
    pace = Pace(CHECKS_PER_STEP)
    leads: Counter[int] = Counter()
    holds: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    partitions = out_of_sync = offline = 0
    for topic in list(services.catalog.topics()):  # It may change between two steps.
        for index, partition in enumerate(topic.partitions):
            partitions += 1
            leads[partition.leader_id] += 1
            for node_id in partition.replicas:
                holds[node_id] += 1
            for node_id in partition.isr:
                in_sync[node_id] += 1
            out_of_sync += len(partition.isr) < len(partition.replicas)
            offline += services.leader_of(topic.name, index) == NO_LEADER
            if pace.spent():
                yield
    brokers: list[ClusterBroker] = [
        {
            "node_id": broker.node_id,
            "is_this": broker.node_id == services.node_id,
            "is_live": services.is_live(broker.node_id),
            "rack": broker.rack,
            "listeners": [f"{each.name}://{each.host}:{each.port}" for each in broker.listeners],
            "leads": leads[broker.node_id],
            "holds": holds[broker.node_id],
            "in_sync": in_sync[broker.node_id],
        }
        for _, broker in sorted(services.catalog.brokers.items())
    ]
    return {
        "cluster_id": services.catalog.cluster_id,
        "revision": services.catalog.revision,
        "brokers": brokers,
        "partitions": partitions,
        "out_of_sync": out_of_sync,
        "offline": offline,
    }


def partition_states(
    services: Services, sees: Callable[[str], bool], asked: AskedPartitions
) -> Steps[PartitionStates]:
    """The partitions of topics that `sees` allows; with `is_troubled` only those that are not served, or of
    which a replica is not in sync.
    """
    pace = Pace(CHECKS_PER_STEP)
    total = 0
    rows: list[PartitionState] = []
    for topic in list(services.catalog.topics()):
        if not sees(topic.name):
            continue
        for index, partition in enumerate(topic.partitions):
            is_served = services.leader_of(topic.name, index) != NO_LEADER
            if asked.is_troubled and is_served and len(partition.isr) == len(partition.replicas):
                continue
            if asked.offset <= total < asked.offset + asked.limit:
                rows.append(
                    {
                        "topic": topic.name,
                        "partition": index,
                        "leader_id": partition.leader_id,
                        "leader_epoch": partition.leader_epoch,
                        "replicas": list(partition.replicas),
                        "in_sync_replicas": list(partition.isr),
                        "is_served": is_served,
                    }
                )
            total += 1
            if pace.spent():
                yield
    return {"total": total, "offset": asked.offset, "limit": asked.limit, "rows": rows}


_NEEDS: Final = whole(DESCRIBE_CLUSTER)


class AskedPartitions(Listing, frozen=True, kw_only=True):
    """Which partitions are listed."""

    is_troubled: Annotated[bool, Meta(description="Only those not served, or without all replicas.")] = False


@route("GET", "/cluster", needs=_NEEDS)
def _cluster(console: Console, caller: Caller, asked: Parameters) -> Steps[ClusterFacts]:
    """The brokers of the cluster."""
    return cluster_facts(console.services)


@route("GET", "/partitions", needs=_NEEDS)
def _partitions(console: Console, caller: Caller, asked: AskedPartitions) -> Steps[PartitionStates]:
    """Leader and in-sync replicas of each partition."""
    return partition_states(console.services, partial(caller.may, DESCRIBE_TOPIC), asked)


PAGES: Final[Sequence[Page]] = (
    page("/cluster", "Cluster", "cluster", cluster=_cluster, partitions=_partitions),
)
