"""The broker at one look, and its charts.

Owns the routes and the page. They show the whole broker, so they need DESCRIBE on the cluster, as /metrics
does.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Final, TypedDict

from tidelog.broker.console.api.transactions import open_transactions
from tidelog.broker.console.caller import Caller
from tidelog.broker.console.rates import Point
from tidelog.broker.console.route import EVENT_STREAM, Console, Page, Parameters, route
from tidelog.broker.console.spread import Spread
from tidelog.broker.console.views.overview import Overview, joined, overview
from tidelog.broker.console.watch import PERIOD_SECONDS
from tidelog.broker.security.required_access import DESCRIBE_CLUSTER, whole

_NEEDS: Final = (whole(DESCRIBE_CLUSTER),)


class Series(TypedDict):
    """The points of the charts, oldest first: those of a quarter of an hour, while a page was open."""

    period_ms: int
    """How far apart two points are; further apart while no page was open."""
    points: list[Point]


@route("GET", "/api/v1/overview", needs=_NEEDS, spread=Spread(join=lambda _, answers, asked: joined(answers)))
async def _overview(console: Console, caller: Caller, asked: Parameters) -> Overview:
    """Overview of the broker, and problems of the cluster."""
    faults = console.faults
    condition = await console.conditions.now(
        None if faults is None else len(faults.rules.active), partial(open_transactions, console, caller)
    )
    return overview(console.services, condition, console.watch.lately(), caller.may)


@route("GET", "/api/v1/overview/series", needs=_NEEDS)
async def _series(console: Console, caller: Caller, asked: Parameters) -> Series:
    """The points of the charts."""
    console.watch.look()
    return {"period_ms": int(PERIOD_SECONDS * 1000), "points": list(console.watch.points)}


@route("GET", "/api/v1/events/overview", needs=_NEEDS, stream=EVENT_STREAM)
async def _live(console: Console, caller: Caller, asked: Parameters) -> AsyncGenerator[Point, None]:
    """Each new point of the charts."""
    while True:
        yield await console.watch.next_point()


PAGES: Final[Sequence[Page]] = (
    Page("/console/overview", "Overview", "overview.html", {"overview": _overview}),
)
