"""The clients that are connected, and quotas.

Owns the routes and pages. To see who is connected needs DESCRIBE on the cluster; quotas need what Kafka's
requests for them need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta

from tidelog.broker.console.caller import Caller, check_code
from tidelog.broker.console.route import Console, Listing, Page, Parameters, page, route
from tidelog.broker.console.spread import listing
from tidelog.broker.console.views.clients import Clients, Quotas, clients, quotas_of
from tidelog.broker.security import required_access as rights
from tidelog.broker.security.required_access import whole
from tidelog.protocol.quotas import ALL_QUOTAS, CLIENT_ID, IP, USER
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import Steps


class AskedClients(Listing, frozen=True, kw_only=True):
    """Which connections are listed."""

    search: (
        Annotated[str, Meta(max_length=1_000, description="Part of an address, a user, an id.")] | None
    ) = None


class ChangedQuota(Parameters, frozen=True, kw_only=True):
    """A quota: `user`, `client_id`, both, or `ip`. The name "" is the default of all who have none of their
    own. Without `value` the quota is removed.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None
    quota: Annotated[str, Meta(description=f"One of {', '.join(ALL_QUOTAS)}.")]
    value: float | None = None


@route(
    "GET",
    "/clients",
    needs=whole(rights.DESCRIBE_CLUSTER),
    spread=listing(lambda row: -row["connected_ms"]),
)
def clients_route(console: Console, caller: Caller, asked: AskedClients) -> Steps[Clients]:
    """The clients that are connected."""
    services = console.services
    telemetry = services.telemetry
    pushing = {} if telemetry is None else {each.connection_id: each for each in telemetry.clients()}
    return clients(
        *(services.node_id, console.server.connections, console.request_rates, services.quotas),
        *(pushing, asked.search, asked.offset, asked.limit),
    )


@route("GET", "/quotas", needs=whole(rights.DESCRIBE_CLUSTER_CONFIGS))
async def _quotas(console: Console, caller: Caller, asked: Listing) -> Quotas:
    """All quotas."""
    return quotas_of(console.services.quotas, asked.offset, asked.limit)


@route(
    "PUT",
    "/quotas",
    needs=whole(rights.ALTER_CLUSTER_CONFIGS),
    logged=("user", "client_id", "ip", "quota", "value"),
)
async def _change_quota(console: Console, caller: Caller, asked: ChangedQuota) -> None:
    """Set or remove a quota."""
    named = {USER: asked.user, CLIENT_ID: asked.client_id, IP: asked.ip}
    entity = [
        {"entity_type": kind, "entity_name": name or None} for kind, name in named.items() if name is not None
    ]
    change = {"key": asked.quota, "value": asked.value or 0.0, "remove": asked.value is None}
    answer = await caller.ask(
        ApiKey.ALTER_CLIENT_QUOTAS, {"entries": [{"entity": entity, "ops": [change]}], "validate_only": False}
    )
    for entry in answer["entries"]:
        check_code(entry["error_code"], entry["error_message"])


PAGES: Final[Sequence[Page]] = (
    page("/clients", "Clients", "clients", clients=clients_route),
    page("/clients/quotas", "Quotas", "quotas", is_detail=True, quotas=_quotas),
)
