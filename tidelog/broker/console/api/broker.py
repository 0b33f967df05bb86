"""Which broker this is.

Owns the routes and pages of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import Console, Page, Parameters, page, route
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


@route("GET", "/broker")
async def broker_facts_route(console: Console, caller: Caller, asked: Parameters) -> BrokerFacts:
    """Version, ids and uptime of this broker."""
    return broker_facts(console.services)


PAGES: Final[Sequence[Page]] = (page("/broker", "Broker", "broker", broker=broker_facts_route),)
