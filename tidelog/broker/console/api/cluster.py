"""The brokers of the cluster, their leaders and in-sync replicas.

Owns the routes and the page. They count what all have, so they need DESCRIBE on the cluster; of topics, users
are shown those that they may describe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import Console, Listing, Page, Parameters, route
from tidelog.broker.console.views.cluster import (
    ClusterFacts,
    PartitionStates,
    cluster_facts,
    partition_states,
)
from tidelog.broker.security.required_access import DESCRIBE_CLUSTER, DESCRIBE_TOPIC, whole

_NEEDS: Final = (whole(DESCRIBE_CLUSTER),)


class AskedPartitions(Listing, frozen=True, kw_only=True):
    """Which partitions are listed."""

    is_troubled: Annotated[bool, Meta(description="Only those not served, or without all replicas.")] = False


@route("GET", "/api/v1/cluster", needs=_NEEDS)
async def _cluster(console: Console, caller: Caller, asked: Parameters) -> ClusterFacts:
    """The brokers of the cluster."""
    return await console.services.turns.run(cluster_facts(console.services))


@route("GET", "/api/v1/partitions", needs=_NEEDS)
async def _partitions(console: Console, caller: Caller, asked: AskedPartitions) -> PartitionStates:
    """Leader and in-sync replicas of each partition."""
    return await console.services.turns.run(
        partition_states(
            console.services,
            lambda topic: caller.may(DESCRIBE_TOPIC, topic),
            is_troubled=asked.is_troubled,
            offset=asked.offset,
            limit=asked.limit,
        )
    )


PAGES: Final[Sequence[Page]] = (
    Page("/console/cluster", "Cluster", "cluster.html", {"cluster": _cluster, "partitions": _partitions}),
)
