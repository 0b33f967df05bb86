"""Who may use the HTTP port of a broker with security: users by their password or their certificate.

Basic authentication takes the users of SCRAM; a certificate names its user as on the broker's other
listeners. With an authorizer, reading needs DESCRIBE on the cluster, and everything else (the faults) ALTER.

Invariants: a failed attempt is counted, logged without anything secret and answered after
`connection.failed.authentication.delay.ms`; one who may not learns nothing, not even which paths exist.

Event loop only. Source: RFC 7617.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from tidelog.broker.configuration.broker_config import HTTP_LISTENER
from tidelog.broker.net.writing import CLIENT_USER, FORWARDED_HOST, FORWARDED_USER
from tidelog.broker.services import Services
from tidelog.protocol.acls import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from aiohttp import web

    Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

_READING: Final = ("GET", "HEAD")
_MECHANISM: Final = "basic"


def is_local(host: str) -> bool:
    """Whether only this machine reaches an address to listen on."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _user_and_password(header: str) -> tuple[str, str]:
    """Both are empty if the header is none of basic authentication."""
    scheme, _, encoded = header.partition(" ")
    try:
        text = b64decode(encoded.strip(), validate=True).decode()
    except ValueError:
        text = ""
    user, _, password = text.partition(":")
    return (user, password) if scheme.lower() == _MECHANISM else ("", "")


class HttpAuthentication:
    """The check of one broker."""

    def __init__(self, services: Services, *, is_behind_front: bool = False) -> None:
        """`is_behind_front`: requests come from the HTTP port of several processes, on a private socket."""
        self._services = services
        self._is_behind_front = is_behind_front

    async def answer(self, request: web.Request, handler: Answer) -> web.StreamResponse:
        """What `handler` answers to those who may ask; 401 or 403 to others. For aiohttp: a middleware."""
        from aiohttp import web

        user = self._user_of_certificate(request) or await self._user_with_password(request)
        if not user:
            error = {"error": "this broker asks for a user and a password, or a client's certificate"}
            realm = {"WWW-Authenticate": 'Basic realm="tidelog", charset="UTF-8"'}
            return web.json_response(error, status=401, headers=realm)
        operation = Operation.DESCRIBE if request.method in _READING else Operation.ALTER
        if not self._may(user, self._host(request), operation):
            error = {"error": f"User:{user} needs {operation.name} on the cluster"}
            return web.json_response(error, status=403)
        return await handler(request)

    async def _user_with_password(self, request: web.Request) -> str:
        header = request.headers.get("Authorization")
        if header is None:
            return ""
        user, password = _user_and_password(header)
        if user and await self._services.users.verify_password(user, password):
            return user
        await self._failed(self._host(request))
        return ""

    def _user_of_certificate(self, request: web.Request) -> str:
        if self._is_behind_front:
            return request.headers.get(FORWARDED_USER, "")
        return request.get_extra_info(CLIENT_USER) or ""

    def _host(self, request: web.Request) -> str:
        return request.headers.get(FORWARDED_HOST, "") if self._is_behind_front else request.remote or ""

    async def _failed(self, host: str) -> None:
        services = self._services
        services.metrics.authentication_failed(HTTP_LISTENER, _MECHANISM, is_again=False)
        services.events.warning(
            "authentication_failed", host, peer=host, listener=HTTP_LISTENER, mechanism=_MECHANISM
        )
        await asyncio.sleep(services.settings.config.connection_failed_authentication_delay_ms / 1000)

    def _may(self, user: str, host: str, operation: Operation) -> bool:
        authorizer = self._services.acls.authorizer
        if authorizer is None:
            return True
        allowed = authorizer.access(f"User:{user}", host).allowed(ResourceType.CLUSTER, CLUSTER_NAME)
        return bool(allowed & 1 << operation)
