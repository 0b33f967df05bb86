"""Which broker this is.

Owns the routes and pages of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import ApiRoute, Console, Page, Parameters
from tidelog.broker.console.views.broker import BrokerFacts, broker_facts


async def _broker(console: Console, caller: Caller, asked: Parameters) -> BrokerFacts:
    return broker_facts(console.services)


BROKER: Final = ApiRoute(
    "GET", "/api/v1/broker", _broker, Parameters, BrokerFacts, "Version, ids and uptime of this broker."
)

ROUTES: Final[Sequence[ApiRoute]] = (BROKER,)
PAGES: Final[Sequence[Page]] = (Page("/console/broker", "Broker", "broker.html", {"broker": BROKER}),)
