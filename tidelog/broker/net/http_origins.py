"""Which requests the HTTP port refuses because of the page that causes them.

Owns the check of the name by which a browser reached a port without security, and of the site whose page asks
for a change. Both are before all paths but the health checks, which show only that the broker runs.

Invariants: without security a foreign name of this host is refused, so that no site whose name leads here
(DNS rebinding) reads what only this machine may; a request that may change something is refused if a browser
says that a page of another site causes it. Other programs name no page, and may leave out the host.

Source: W3C's Fetch Metadata; OWASP's page on Cross-Site Request Forgery.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from tidelog.broker.configuration.address_overrides import is_address
from tidelog.broker.net.http_console import API, HEADERS, is_of_console
from tidelog.broker.services import Services
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from aiohttp import web

    from tidelog.broker.net.http import Answer

READING: Final = ("GET", "HEAD")
_OWN_SITES: Final = ("same-origin", "none")
"""The header values of browsers for a request of our own page, and for one that the user typed."""


def is_of_other_site(request: web.Request) -> bool:
    """Whether a browser says that a page of another site causes this request.

    Only hosts are compared: a proxy in front of the broker may have TLS where the broker has none.
    """
    origin = request.headers.get("Origin")
    is_foreign = origin is not None and origin.partition("://")[2] != request.headers.get("Host")
    return is_foreign or request.headers.get("Sec-Fetch-Site", "none") not in _OWN_SITES


class OriginCheck:
    """Refuses requests to one broker's HTTP port because of the page that causes them."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def answer(self, request: web.Request, handler: Answer) -> web.StreamResponse:
        """What `handler` answers; 403 to a page that may not ask. For aiohttp: a middleware."""
        refusal = self._refusal(request)
        if refusal is None:
            return await handler(request)
        from aiohttp import web

        problem = {"error": refusal}
        if request.path.startswith(API):
            problem = {"code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED.name, "message": refusal}
        return web.json_response(problem, status=403, headers=HEADERS)

    def _refusal(self, request: web.Request) -> str | None:
        if not self._services.config.is_secured:
            name = _name_of(request.headers.get("Host", "localhost"))
            if not self._is_known(name):
                return (
                    f"{name!a} is not a name of this broker: ask by its address, or put the name into "
                    "http.allowed.hosts or advertised.listeners, or let users sign in"
                )
        # The console checks its own changes, and logs those that it refuses.
        is_change = request.method not in READING and not is_of_console(request.path)
        if is_change and is_of_other_site(request):
            return "a page of another site may not change anything"
        return None

    def _is_known(self, name: str) -> bool:
        if is_address(name) or name == "localhost" or name.endswith(".localhost"):
            return True
        config, brokers = self._services.config, self._services.catalog.brokers.values()
        known = {each.host for broker in brokers for each in broker.listeners}
        known |= {config.http_host, socket.gethostname(), *config.http_allowed_hosts}
        return bool(name) and name in {each.lower() for each in known}


def _name_of(host: str) -> str:
    """The name in a Host header, without the port."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name.strip("[]").rstrip(".").lower()
