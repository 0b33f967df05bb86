"""Which broker this is: its version, its ids, and since when it runs.

Owns nothing; reads the catalog and the clock.
"""

from __future__ import annotations

from typing import TypedDict

from tidelog.broker.services import Services
from tidelog.version import VERSION


class BrokerFacts(TypedDict):
    """This broker's version, ids and uptime."""

    version: str
    node_id: int
    cluster_id: str
    uptime_ms: int
    now_ms: int
    """Milliseconds since the epoch, by the broker's clock."""


def broker_facts(services: Services) -> BrokerFacts:
    now_ms = services.clock_ms()
    return {
        "version": VERSION,
        "node_id": services.node_id,
        "cluster_id": services.catalog.cluster_id,
        "uptime_ms": max(0, now_ms - services.start_ms),
        "now_ms": now_ms,
    }
