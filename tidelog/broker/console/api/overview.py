"""The broker at one look, and its charts.

Owns the routes. They show the whole broker, so they need DESCRIBE on the cluster, as /metrics
does.
"""

from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Final, Literal, TypedDict

from tidelog.broker.console.api.cluster import BrokerFacts, broker_facts
from tidelog.broker.console.api.events import LogEvent, last_events
from tidelog.broker.console.api.topics import existing_topic
from tidelog.broker.console.api.transactions import open_transactions
from tidelog.broker.console.caller import Caller
from tidelog.broker.console.problems import CurrentProblem, most_severe_first, problems
from tidelog.broker.console.route import EVENT_STREAM, Console, Spread, route
from tidelog.broker.console.shapes import From, OfCluster, OfTopic, Parameters, row_of
from tidelog.broker.observability.history import Series, resident_bytes
from tidelog.broker.observability.rates import Point
from tidelog.broker.security import required_access as rights
from tidelog.broker.services import Services

_EVENTS: Final = 20


class Holdings(TypedDict):
    """What the broker holds and uses."""

    topics: int
    partitions: Annotated[int, From("partitions.held")]
    offline_partitions: Annotated[int, From("partitions.offline.number")]
    log_bytes: Annotated[int, From("partitions.size_bytes")]
    producer_ids: Annotated[int, From("partitions.logs.producer_id_count")]
    connections: Annotated[int, From("metrics.connections")]
    resident_bytes: int | None
    """Memory of the process; None: unknown on this system."""
    queued_bytes: int
    """Memory of all connections, of at most `queued_max_bytes`."""
    queued_max_bytes: int
    disk_bytes: Annotated[int | None, From("disk.total")]
    """Of the file system of the data folder; None: it could not be read."""
    disk_free_bytes: Annotated[int | None, From("disk.free")]
    free_handles: int
    handle_limit: int


class Counted(TypedDict):
    """How often something was refused or failed since the start."""

    name: str
    text: str
    count: int


class BrokerHoldings(TypedDict):
    """What one broker of the cluster holds and uses."""

    broker: BrokerFacts
    holdings: Holdings


class Overview(OfCluster):
    broker: BrokerFacts
    holdings: Holdings
    brokers: list[BrokerHoldings]
    """Of each broker that answered, this one first."""
    problems: list[CurrentProblem]
    """Of all brokers, the critical ones first."""
    refused: list[Counted]
    """What was refused since the start."""
    events: list[LogEvent] | None
    """The last of the log, newest first; None: this user may not see them (they name everybody's topics)."""


_REFUSED: Final = {
    "failed_authentication": "Authentications that failed",
    "tidelog_tls_failures": "TLS handshakes that failed",
    "access_denied": "Operations that the authorizer refused",
    "tidelog_connections_refused": "Connections above a limit",
    "tidelog_connections_closed_bad_request": "Connections with another protocol",
    "tidelog_connections_cut_for_memory": "Connections closed because they used too much memory",
    "tidelog_out_of_order_batches": "Batches whose sequence did not follow",
    "tidelog_fenced_batches": "Batches of a producer that was replaced",
    "tidelog_partitions_failed": "Partitions that went offline",
}


class Mark(TypedDict):
    """Something that explains a change in the charts."""

    at_ms: int
    text: str


_MARKED: Final = {
    "broker_fenced": "broker fenced",
    "cluster_store_not_followed": "catalog not reached",
    "connection_cut_for_memory": "connection closed for memory",
    "in_sync_set_changed": "replicas in sync changed",
    "partition_offline": "partition offline",
    "partitions_moved": "partitions moved",
    "process_ended": "process ended",
    "replica_truncated": "replica truncated",
}
"""Name of an event -> what a chart says of it."""


def marks(services: Services, caller: Caller) -> list[Mark]:
    """The start, and for who may see events those of the log that explain a change in the charts."""
    found: list[Mark] = [{"at_ms": services.start_ms, "text": "broker started"}]
    for event in last_events() if caller.may(rights.ALTER_CLUSTER) else ():
        if (text := _MARKED.get(event["event"])) is not None:
            at = datetime.fromisoformat(event["timestamp"]).timestamp()
            found.append({"at_ms": round(at * 1000), "text": text})
    return found


def joined(answers: Mapping[int, Overview]) -> Overview:
    """The overviews of some brokers as one; the first is this broker's. A problem that all have is one."""
    problems: dict[tuple[str, str], tuple[CurrentProblem, list[int]]] = {}
    for node_id, answer in answers.items():
        for problem in answer["problems"]:
            problems.setdefault((problem["name"], problem["text"]), (problem, []))[1].append(node_id)
    found: list[CurrentProblem] = []
    for problem, node_ids in problems.values():
        if len(node_ids) < len(answers):
            whose = f"Broker{'s' if len(node_ids) > 1 else ''} {', '.join(map(str, sorted(node_ids)))}"
            found.append({**problem, "text": f"{whose}: {problem['text']}"})
        else:
            found.append(problem)
    return {
        **next(iter(answers.values())),
        "brokers": [each for answer in answers.values() for each in answer["brokers"]],
        "problems": most_severe_first(found),
    }


class SeriesAsked(Parameters, frozen=True, kw_only=True):
    """Which points: one per second, per ten seconds, or per minute."""

    span: Literal["10min", "2h", "24h"] = "10min"


class OfTopicAsked(OfTopic, frozen=True, kw_only=True):
    span: Literal["2h", "24h"] = "2h"


class MarkedSeries(Series, OfCluster):
    marks: list[Mark]


@route(
    "GET",
    "/overview",
    needs=rights.DESCRIBE_CLUSTER,
    spread=Spread(join=lambda _, answers, asked: joined(answers)),
)
async def overview(console: Console, caller: Caller, asked: Parameters) -> Overview:
    """Overview of the broker, and problems of the cluster."""
    services = console.services
    faults = None if console.faults is None else len(console.faults.rules.active)
    condition = await console.conditions.now(faults, partial(open_transactions, console, caller))
    counts, broker = services.metrics.reading().events, broker_facts(services)
    numbers = {"topics": len(services.catalog), "resident_bytes": resident_bytes()}
    holdings = row_of(Holdings, numbers, condition, services)
    sees_topic, sees_transaction = (
        partial(caller.may, each) for each in (rights.DESCRIBE_TOPIC, rights.DESCRIBE_TRANSACTION)
    )
    return {
        "broker": broker,
        "holdings": holdings,
        "brokers": [{"broker": broker, "holdings": holdings}],
        "problems": problems(condition, console.history.lately(), sees_topic, sees_transaction),
        "refused": [
            {"name": name, "text": text, "count": counts.get(name, 0)} for name, text in _REFUSED.items()
        ],
        "events": last_events()[:_EVENTS] if caller.may(rights.ALTER_CLUSTER) else None,
    }


def summed_series(answers: Mapping[int, MarkedSeries]) -> MarkedSeries:
    """The points of some brokers as one: sums, of percentiles the largest. A broker without a point at a time
    has that of the time before, because not all measure at once."""
    period_ms = next(iter(answers.values()))["period_ms"]
    points: dict[int, dict[str, float]] = {}
    for answer in answers.values():
        places = {at // period_ms: place for place, at in enumerate(answer["times"])}
        last = max(places, default=0)
        places = {at + 1: place for at, place in places.items() if at < last} | places
        for at, place in places.items():
            point = points.setdefault(at, {})
            for name, column in answer["columns"].items():
                if (value := column[place]) is not None:
                    before = point.get(name, 0.0)
                    point[name] = max(before, value) if "_ms." in name else before + value
    times = sorted(points)
    names = dict.fromkeys(name for answer in answers.values() for name in answer["columns"])
    return {
        "period_ms": period_ms,
        "times": [at * period_ms for at in times],
        "columns": {name: [points[at].get(name) for at in times] for name in names},
        "marks": [mark for answer in answers.values() for mark in answer["marks"]],
    }


_OF_ALL: Final = Spread(join=lambda _, answers, asked: summed_series(answers))


@route("GET", "/cluster/series", needs=rights.DESCRIBE_CLUSTER, spread=_OF_ALL)
async def series_of_cluster(console: Console, caller: Caller, asked: SeriesAsked) -> MarkedSeries:
    """The points of the charts of all brokers together."""
    return _marked(console, caller, asked.span)


@route("GET", "/overview/series", needs=rights.DESCRIBE_CLUSTER)
async def series(console: Console, caller: Caller, asked: SeriesAsked) -> MarkedSeries:
    """The points of the charts of this broker."""
    return _marked(console, caller, asked.span)


@route("GET", "/topics/{topic}/series", needs=rights.DESCRIBE_TOPIC, spread=_OF_ALL)
async def series_of_topic(console: Console, caller: Caller, asked: OfTopicAsked) -> MarkedSeries:
    """The points of the charts of a topic. Only topics with traffic have some."""
    existing_topic(console.services, asked.topic)
    return _marked(console, caller, asked.span, asked.topic)


def _marked(console: Console, caller: Caller, span: str, topic: str = "") -> MarkedSeries:
    return row_of(MarkedSeries, console.history.series(span, topic), marks=marks(console.services, caller))


@route("GET", "/events/overview", needs=rights.DESCRIBE_CLUSTER, stream=EVENT_STREAM)
async def live(console: Console, caller: Caller, asked: Parameters) -> AsyncGenerator[Point, None]:
    """Each new point of the charts."""
    while True:
        yield await console.history.next_point()
