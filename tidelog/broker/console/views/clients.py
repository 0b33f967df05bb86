"""The clients that are connected: who they are, how much they ask, and which quotas hold for them.

Owns the rate of requests between two looks at a connection. Invariants: a look takes the connections that are
shown, and the names of all; the counts of at most `MOST_REMEMBERED` connections are remembered.

The protocol has no request for this. The client id is that of ApiVersions, with which nearly all clients
begin.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict

from tidelog.broker.console.views.of_cluster import Listed, OfCluster
from tidelog.protocol.quotas import CLIENT_ID, IP, USER, QuotaEntity
from tidelog.protocol.steps import CHECKS_PER_STEP, Pace, Steps

if TYPE_CHECKING:
    from tidelog.broker.limits.quotas import QuotaStore
    from tidelog.broker.net.connection import Connection
    from tidelog.broker.telemetry.client_instances import Instance

MOST_REMEMBERED: Final = 1_000
PUSHED: Final = (
    "request.latency.avg",
    "request.latency.max",
    "record.retry.total",
    "record.error.total",
    "record.error.rate",
    "records.lag.max",
)
_LEAST_SECONDS: Final = 1.0
"""Looks that are closer together show the same rate."""


class Client(TypedDict):
    """A connection of a client."""

    node_id: int
    """The broker to which it is connected."""
    connection_id: int
    """Counts the connections of this run of the broker."""
    peer: str
    """Its address and port."""
    listener: str
    user: str
    authentication: str
    """The step: NOT_REQUIRED, AUTHENTICATED, …"""
    client_id: str
    software: str
    """Name and version that the client gives itself (KIP-511); empty if it gives none."""
    connected_ms: int
    """For how long."""
    idle_ms: int
    """Since its last bytes."""
    requests: int
    requests_per_second: float
    """Since the look before, at most some minutes ago; else since it connected."""
    quotas: dict[str, float]
    """Name of each quota that holds for it -> its value."""
    pushed: dict[str, float]
    """Of the metrics that it pushes by this connection (KIP-714): latency, retries, errors and lag, by
    the ends of their names."""


class Clients(OfCluster, Listed):
    """A page of connections, the oldest first."""

    rows: list[Client]


class Quota(TypedDict):
    """A quota: of a user, a client id, both, or an address. "" stands for all who have none of their own."""

    user: str | None
    client_id: str | None
    ip: str | None
    values: dict[str, float]
    """Bytes per second, percent of the broker's event loop, or how many per second."""


class Quotas(Listed):
    """Quotas, in the order in which they were made."""

    rows: list[Quota]


class _Seen(NamedTuple):
    at: float
    requests: int
    rate: float


class RequestRates:
    """The rates of the connections on an open page."""

    def __init__(self) -> None:
        self._seen: OrderedDict[int, _Seen] = OrderedDict()

    def of(self, connection: Connection, now: float) -> float:
        """Requests per second of a connection; `now` is of time.perf_counter."""
        before = self._seen.get(connection.connection_id) or _Seen(connection.opened, 0, 0.0)
        seconds = now - before.at
        if seconds < _LEAST_SECONDS and connection.connection_id in self._seen:
            return before.rate
        rate = round((connection.requests - before.requests) / max(seconds, _LEAST_SECONDS), 2)
        self._seen[connection.connection_id] = _Seen(now, connection.requests, rate)
        self._seen.move_to_end(connection.connection_id)
        if len(self._seen) > MOST_REMEMBERED:
            self._seen.popitem(last=False)
        return rate


def clients(
    node_id: int,
    connections: Collection[Connection],
    rates: RequestRates,
    quotas: QuotaStore,
    pushing: Mapping[int, Instance],
    search: str | None,
    offset: int,
    limit: int,
) -> Steps[Clients]:
    """The rows from `offset` on of the connections in which a name or an address contains `search`.
    `pushing`: by the id of its connection, each client that pushes its metrics."""
    pace = Pace(CHECKS_PER_STEP)
    now = time.perf_counter()
    found = []
    for connection in list(connections):  # It changes between two steps.
        if search is None or search.lower() in _names(connection).lower():
            found.append(connection)
        if pace.spent():
            yield
    found.sort(key=lambda connection: connection.connection_id)
    rows = [_client(node_id, each, rates, quotas, pushing, now) for each in found[offset : offset + limit]]
    return {"total": len(found), "offset": offset, "limit": limit, "rows": rows}


def _names(connection: Connection) -> str:
    state = connection.state
    return "\n".join((connection.peer, state.principal.name, state.client_id, state.client_software))


def _client(
    node_id: int,
    connection: Connection,
    rates: RequestRates,
    quotas: QuotaStore,
    pushing: Mapping[int, Instance],
    now: float,
) -> Client:
    state = connection.state
    return {
        "node_id": node_id,
        "connection_id": connection.connection_id,
        "peer": connection.peer,
        "listener": state.listener.name,
        "user": state.principal.name,
        "authentication": state.authentication.name,
        "client_id": state.client_id,
        "software": state.client_software,
        "connected_ms": _milliseconds(now - connection.opened),
        "idle_ms": _milliseconds(now - connection.last_arrival),
        "requests": connection.requests,
        "requests_per_second": rates.of(connection, now),
        "quotas": quotas.of_clients.limits(state.principal.name, state.client_id),
        "pushed": _pushed(pushing.get(connection.connection_id)),
    }


def _pushed(instance: Instance | None) -> dict[str, float]:
    """The largest value of each of PUSHED that a client pushed last."""
    shown: dict[str, float] = {}
    for series, value in () if instance is None else instance.series.items():
        name = next((end for end in PUSHED if series.name.endswith(f".{end}")), None)
        if name is not None:
            shown[name] = round(max(value.number, shown.get(name, value.number)), 3)
    return {name: shown[name] for name in PUSHED if name in shown}


def _milliseconds(seconds: float) -> int:
    return max(0, int(seconds * 1000))


def quotas_of(store: QuotaStore, offset: int, limit: int) -> Quotas:
    """The quotas that were set, from number `offset` on."""
    entities = list(store.all)
    return {
        "total": len(entities),
        "offset": offset,
        "limit": limit,
        "rows": [_quota(entity, store.all[entity]) for entity in entities[offset : offset + limit]],
    }


def _quota(entity: QuotaEntity, values: Mapping[str, float]) -> Quota:
    named = {kind: "" if name is None else name for kind, name in entity}
    return {
        "user": named.get(USER),
        "client_id": named.get(CLIENT_ID),
        "ip": named.get(IP),
        "values": dict(values),
    }
