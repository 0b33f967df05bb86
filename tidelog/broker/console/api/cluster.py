"""Which broker this is, the brokers of the cluster, their leaders and in-sync replicas.

Owns the routes. Those of the cluster count what all have, so they need DESCRIBE on the cluster; of topics,
users are shown those that they may describe.
"""

from collections import Counter
from typing import Annotated, TypedDict

from msgspec import Meta

from tidelog.broker.cluster.catalog import NO_LEADER
from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import Console, route
from tidelog.broker.console.shapes import From, Listing, Parameters, Rows, row_of
from tidelog.broker.security.required_access import DESCRIBE_CLUSTER, DESCRIBE_TOPIC
from tidelog.broker.services import Services
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps
from tidelog.version import VERSION


class BrokerFacts(TypedDict):
    version: str
    node_id: int
    cluster_id: str
    uptime_ms: int
    now_ms: int
    """Milliseconds since the epoch, by the broker's clock."""


def broker_facts(services: Services) -> BrokerFacts:
    now_ms = services.clock_ms()
    uptime_ms = max(0, now_ms - services.start_ms)
    return row_of(
        BrokerFacts, services, services.catalog, version=VERSION, uptime_ms=uptime_ms, now_ms=now_ms
    )


@route("GET", "/broker")
async def broker(console: Console, caller: Caller, asked: Parameters) -> BrokerFacts:
    """Version, ids and uptime of this broker."""
    return broker_facts(console.services)


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
    in_sync_replicas: Annotated[list[int], From("isr")]
    is_served: bool
    """Whether it has a live leader and, if that is this broker, is served."""


class AskedPartitions(Listing, frozen=True, kw_only=True):
    is_troubled: Annotated[bool, Meta(description="Only those not served, or without all replicas.")] = False


@route("GET", "/cluster", needs=DESCRIBE_CLUSTER)
def cluster(console: Console, caller: Caller, asked: Parameters) -> Steps[ClusterFacts]:
    """The brokers of the cluster."""
    services, pace = console.services, Pace(CHECKS_PER_STEP)
    leads: Counter[int] = Counter()
    holds: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    out_of_sync = offline = 0
    for topic in list(services.catalog.topics()):  # It may change between two steps.
        for index, partition in enumerate(topic.partitions):
            leads[partition.leader_id] += 1
            holds.update(partition.replicas)
            in_sync.update(partition.isr)
            out_of_sync += len(partition.isr) < len(partition.replicas)
            offline += services.leader_of(topic.name, index) == NO_LEADER
            if pace.spent():
                yield
    counts = {"partitions": leads.total(), "out_of_sync": out_of_sync, "offline": offline}
    brokers = []
    for node_id, broker in sorted(services.catalog.brokers.items()):
        listeners = [f"{each.name}://{each.host}:{each.port}" for each in broker.listeners]
        state = {"is_this": node_id == services.node_id, "is_live": services.is_live(node_id)}
        numbers = {"leads": leads[node_id], "holds": holds[node_id], "in_sync": in_sync[node_id]}
        brokers.append(row_of(ClusterBroker, state, numbers, broker, listeners=listeners))
    return row_of(ClusterFacts, counts, services.catalog, brokers=brokers)


@route("GET", "/partitions", needs=DESCRIBE_CLUSTER)
def partitions(console: Console, caller: Caller, asked: AskedPartitions) -> Steps[Rows[PartitionState]]:
    """Leader and in-sync replicas of each partition, by topic in the order of the catalog."""
    services, pace = console.services, Pace(CHECKS_PER_STEP)
    total = 0
    rows: list[PartitionState] = []
    for topic in list(services.catalog.topics()):
        if not caller.may(DESCRIBE_TOPIC, topic.name):
            continue
        for index, partition in enumerate(topic.partitions):
            is_served = services.leader_of(topic.name, index) != NO_LEADER
            if asked.is_troubled and is_served and len(partition.isr) == len(partition.replicas):
                continue
            if asked.offset <= total < asked.offset + asked.limit:
                known = {"topic": topic.name, "partition": index, "is_served": is_served}
                rows.append(row_of(PartitionState, known, partition))
            total += 1
            if pace.spent():
                yield
    return {"total": total, "offset": asked.offset, "limit": asked.limit, "rows": rows}
