"""The brokers of the cluster, their leaders and in-sync replicas.

Owns the routes and the page. They count what all have, so they need DESCRIBE on the cluster; of topics, users
are shown those that they may describe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import ApiRoute, Console, Listing, Page, Parameters
from tidelog.broker.console.views.cluster import (
    ClusterFacts,
    PartitionStates,
    cluster_facts,
    partition_states,
)
from tidelog.broker.security.required_access import DESCRIBE_CLUSTER, DESCRIBE_TOPIC, whole


class AskedPartitions(Listing, frozen=True, kw_only=True):
    """Which partitions."""

    is_troubled: Annotated[bool, Meta(description="Only those not served, or without all replicas.")] = False


async def _cluster(console: Console, caller: Caller, asked: Parameters) -> ClusterFacts:
    return await console.services.turns.run(cluster_facts(console.services))


async def _partitions(console: Console, caller: Caller, asked: AskedPartitions) -> PartitionStates:
    return await console.services.turns.run(
        partition_states(
            console.services,
            lambda topic: caller.may(DESCRIBE_TOPIC, topic),
            is_troubled=asked.is_troubled,
            offset=asked.offset,
            limit=asked.limit,
        )
    )


_NEEDS: Final = (whole(DESCRIBE_CLUSTER),)
CLUSTER: Final = ApiRoute(
    "GET", "/api/v1/cluster", _cluster, Parameters, ClusterFacts, "The brokers of the cluster.", _NEEDS
)
PARTITIONS: Final = ApiRoute(
    *("GET", "/api/v1/partitions", _partitions, AskedPartitions, PartitionStates),
    "Leader and in-sync replicas of each partition.",
    _NEEDS,
)
ROUTES: Final[Sequence[ApiRoute]] = (CLUSTER, PARTITIONS)
PAGES: Final[Sequence[Page]] = (
    Page("/console/cluster", "Cluster", "cluster.html", {"cluster": CLUSTER, "partitions": PARTITIONS}),
)
