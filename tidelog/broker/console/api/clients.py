"""The clients that are connected: who they are, how much they ask, and which quotas hold for them.

Owns the routes. To see who is connected needs DESCRIBE on the cluster; quotas need what Kafka's requests for
them need. The protocol has no request for clients. The client id is that of ApiVersions, with which nearly
all clients begin.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from msgspec import Meta

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import ALL, Console, listing, route
from tidelog.broker.console.shapes import From, Listing, Parameters, Rows, chosen, part_of, row_of
from tidelog.broker.net.connection import Connection
from tidelog.broker.security import required_access as rights
from tidelog.broker.telemetry.client_instances import Instance
from tidelog.protocol.quotas import ALL_QUOTAS, CLIENT_ID, IP, USER, QuotaEntity
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import Steps

PUSHED: Final = (
    "request.latency.avg",
    "request.latency.max",
    "record.retry.total",
    "record.error.total",
    "record.error.rate",
    "records.lag.max",
)


class Client(TypedDict):
    """A connection of a client."""

    node_id: int
    """The broker to which it is connected."""
    connection_id: int
    """Counts the connections of this run of the broker."""
    peer: str
    """Its address and port."""
    listener: Annotated[str, From("state.listener.name")]
    user: Annotated[str, From("state.principal.name")]
    authentication: Annotated[str, From("state.authentication")]
    """The step: NOT_REQUIRED, AUTHENTICATED, …"""
    client_id: Annotated[str, From("state.client_id")]
    software: Annotated[str, From("state.client_software")]
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


class Quota(TypedDict):
    """A quota: of a user, a client id, both, or an address. "" stands for all who have none of their own."""

    user: str | None
    client_id: str | None
    ip: str | None
    values: dict[str, float]
    """Bytes per second, percent of the broker's event loop, or how many per second."""


class AskedClients(Listing, frozen=True, kw_only=True):
    search: (
        Annotated[str, Meta(max_length=1_000, description="Part of an address, a user, an id.")] | None
    ) = None


class ChangedQuota(Parameters, frozen=True, kw_only=True):
    """A quota: `user`, `client_id`, both, or `ip`. The name "" is the default of all who have none of their
    own. Without `value` the quota is removed."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None
    quota: Annotated[str, Meta(description=f"One of {', '.join(ALL_QUOTAS)}.")]
    value: float | None = None


@route("GET", "/clients", needs=rights.DESCRIBE_CLUSTER, spread=listing(lambda row: -row["connected_ms"]))
def clients(console: Console, caller: Caller, asked: AskedClients) -> Steps[Rows[Client]]:
    """The clients that are connected, the oldest connection first."""
    services, now = console.services, time.perf_counter()
    telemetry, sought = services.telemetry, (asked.search or "").lower()
    pushing = {} if telemetry is None else {each.connection_id: each for each in telemetry.clients()}
    held = list(console.server.connections)  # They change between two steps.
    found = yield from chosen(held, lambda each: sought in _names(each).lower())
    found.sort(key=lambda connection: connection.connection_id)

    def row(connection: Connection) -> Client:
        state = connection.state
        return row_of(
            *(Client, connection),
            node_id=services.node_id,
            connected_ms=_milliseconds(now - connection.opened),
            idle_ms=_milliseconds(now - connection.last_arrival),
            requests_per_second=console.request_rates.of(connection, now),
            quotas=services.quotas.of_clients.limits(state.principal.name, state.client_id),
            pushed=_pushed(pushing.get(connection.connection_id)),
        )

    return part_of(Rows[Client], found, asked, row)


def _names(connection: Connection) -> str:
    state = connection.state
    return "\n".join((connection.peer, state.principal.name, state.client_id, state.client_software))


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


@route("GET", "/quotas", needs=rights.DESCRIBE_CLUSTER_CONFIGS)
async def quotas(console: Console, caller: Caller, asked: Listing) -> Rows[Quota]:
    """All quotas, in the order in which they were made."""

    def row(held: tuple[QuotaEntity, Mapping[str, float]]) -> Quota:
        named = {kind: name or "" for kind, name in held[0]}
        of = {"user": named.get(USER), "client_id": named.get(CLIENT_ID), "ip": named.get(IP)}
        return row_of(Quota, of, values=dict(held[1]))

    return part_of(Rows[Quota], list(console.services.quotas.all.items()), asked, row)


@route("PUT", "/quotas", needs=rights.ALTER_CLUSTER_CONFIGS, logged=ALL)
async def change_quota(console: Console, caller: Caller, asked: ChangedQuota) -> None:
    """Set or remove a quota."""
    named = {USER: asked.user, CLIENT_ID: asked.client_id, IP: asked.ip}
    entity = [
        {"entity_type": kind, "entity_name": name or None} for kind, name in named.items() if name is not None
    ]
    change = {"key": asked.quota, "value": asked.value or 0.0, "remove": asked.value is None}
    entries = [{"entity": entity, "ops": [change]}]
    await caller.change(ApiKey.ALTER_CLIENT_QUOTAS, {"entries": entries, "validate_only": False})
