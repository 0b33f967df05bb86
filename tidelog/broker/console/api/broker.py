"""Which broker this is.

Owns the routes and pages of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import Console, Page, Parameters, route
from tidelog.broker.console.views.broker import BrokerFacts, broker_facts


@route("GET", "/api/v1/broker")
async def broker_facts_route(console: Console, caller: Caller, asked: Parameters) -> BrokerFacts:
    """Version, ids and uptime of this broker."""
    return broker_facts(console.services)


PAGES: Final[Sequence[Page]] = (
    Page("/console/broker", "Broker", "broker.html", {"broker": broker_facts_route}),
)
