"""What is the same for each answer: headers, and which requests other sites may not cause.

Owns the Content-Security-Policy, the check of where a change comes from, and the check of the name by which a
browser reached a port without security.

Invariants: no answer lets a browser run or load what is not ours; a change is refused unless a browser says
that its own page asks for it, and unless its body is `application/json`, which no form and no link of another
site can send; without security a foreign name of this host is refused, so that no site whose name leads here
(DNS rebinding) reads what only this machine may.

Source: W3C's Content Security Policy 3 and Fetch Metadata; OWASP's page on Cross-Site Request Forgery.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from tidelog.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from aiohttp import web

    from tidelog.broker.services import Services

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
NO_STORE: Final[Mapping[str, str]] = {"Cache-Control": "no-store"}
"""For what depends on who asks: no cache keeps it, and none is shown after the user signed out."""
JSON: Final = "application/json"
_OWN_SITES: Final = ("same-origin", "none")
"""What a browser says of a request of our own page, and of one that the user typed."""


def check_origin(request: web.Request) -> None:
    """Raise ApiError for a change that the page of another site may have caused."""
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    origin = request.headers.get("Origin")
    if site not in _OWN_SITES or (origin is not None and origin != f"{request.scheme}://{request.host}"):
        raise ApiError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "a page of another site may change nothing here"
        )


def check_change(request: web.Request) -> None:
    """Raise ApiError for a change that is of another site, or could be."""
    check_origin(request)
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
    if name not in {each.lower() for each in known | {config.http_host, socket.gethostname()}}:
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
