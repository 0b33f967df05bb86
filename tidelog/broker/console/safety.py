"""Which requests the console refuses because of where they come from.

Owns the check of changes, and the check of the name by which a browser reached a port without security.

Invariants: a change is refused if a browser says that a page of another site asks for it, and unless its body
is `application/json`, which no form and no link of another site can send; without security a foreign name of
this host is refused, so that no site whose name leads here (DNS rebinding) reads what only this machine may.

Source: W3C's Fetch Metadata; OWASP's page on Cross-Site Request Forgery.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from tidelog.broker.net.http_console import is_of_other_site
from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from aiohttp import web

    from tidelog.broker.services import Services

JSON: Final = "application/json"


def check_change(request: web.Request) -> None:
    """Raise ApiError for a change that is of another site, or could be."""
    if is_of_other_site(request):
        raise ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "a page of another site may not change anything"
        )
    if request.content_type != JSON:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"send a JSON object with Content-Type: {JSON}, got {request.content_type}",
        )


def check_name(request: web.Request, services: Services) -> None:
    """Raise ApiError if a port without security was reached by a name that is not this broker's."""
    name = _name_of(request.host)
    if _is_address(name) or name == "localhost" or name.endswith(".localhost"):
        return
    config = services.config
    known = {each.host for broker in services.catalog.brokers.values() for each in broker.listeners}
    if not name or name not in {each.lower() for each in known | {config.http_host, socket.gethostname()}}:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{name!a} is not a name of this broker: ask by its address, or put the name into "
            "advertised.listeners, or let users sign in",
        )


def _name_of(host: str) -> str:
    """The name in a Host header, without the port."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name.strip("[]").rstrip(".").lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
