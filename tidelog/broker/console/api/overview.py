"""The broker at one look, and its charts.

Owns the routes and the page. They show the whole broker, so they need DESCRIBE on the cluster, as /metrics
does.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Final, Literal

from tidelog.broker.console.api.topics import TopicName
from tidelog.broker.console.api.transactions import open_transactions
from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import EVENT_STREAM, Console, Page, Parameters, route
from tidelog.broker.console.spread import Spread
from tidelog.broker.console.views.overview import Mark, Overview, joined, marks, overview
from tidelog.broker.console.views.topics import existing_topic
from tidelog.broker.observability.history import Series
from tidelog.broker.observability.rates import Point
from tidelog.broker.security.required_access import DESCRIBE_CLUSTER, DESCRIBE_TOPIC, whole

_NEEDS: Final = (whole(DESCRIBE_CLUSTER),)


class SeriesAsked(Parameters, frozen=True, kw_only=True):
    """Which points: one per second, per ten seconds, or per minute."""

    span: Literal["10min", "2h", "24h"] = "10min"


class OfTopicAsked(Parameters, frozen=True, kw_only=True):
    topic: TopicName
    span: Literal["2h", "24h"] = "2h"


class MarkedSeries(Series):
    """Points of charts, oldest first, and what happened."""

    marks: list[Mark]


@route("GET", "/api/v1/overview", needs=_NEEDS, spread=Spread(join=lambda _, answers, asked: joined(answers)))
async def _overview(console: Console, caller: Caller, asked: Parameters) -> Overview:
    """Overview of the broker, and problems of the cluster."""
    faults = console.faults
    condition = await console.conditions.now(
        None if faults is None else len(faults.rules.active), partial(open_transactions, console, caller)
    )
    return overview(console.services, condition, console.history.lately(), caller.may)


@route("GET", "/api/v1/overview/series", needs=_NEEDS)
async def _series(console: Console, caller: Caller, asked: SeriesAsked) -> MarkedSeries:
    """The points of the charts of this broker."""
    return {**console.history.series(asked.span), "marks": marks(console.services, caller.may)}


@route("GET", "/api/v1/topics/{topic}/series", needs=(whole(DESCRIBE_TOPIC, field="topic"),))
async def _series_of_topic(console: Console, caller: Caller, asked: OfTopicAsked) -> MarkedSeries:
    """The points of the charts of a topic, at this broker. Only topics with traffic have some."""
    existing_topic(console.services, asked.topic)
    series = console.history.series(asked.span, asked.topic)
    return {**series, "marks": marks(console.services, caller.may)}


@route("GET", "/api/v1/events/overview", needs=_NEEDS, stream=EVENT_STREAM)
async def _live(console: Console, caller: Caller, asked: Parameters) -> AsyncGenerator[Point, None]:
    """Each new point of the charts."""
    while True:
        yield await console.history.next_point()


PAGES: Final[Sequence[Page]] = (
    Page("/console/overview", "Overview", "overview.html", {"overview": _overview}),
)
