"""Who may use the HTTP port of a broker with security: users by password, token, certificate or session.

Basic authentication takes the users of SCRAM, a bearer token is one of OAUTHBEARER, and a certificate names
its user as on the broker's other listeners. In the console a user may sign in with password or token, and has
a cookie from then on. With an authorizer, the routes of the console declare their permissions; of the other
paths reading needs DESCRIBE on the cluster, and everything else (the faults) ALTER.

Invariants: a failed attempt is counted, logged without anything secret and answered after
`connection.failed.authentication.delay.ms`, and one of who failed too often (`security.guesses`) by 429; an
answer without permission shows nothing, not even which paths exist. A cookie counts in the console only,
whose changes are checked for the site that they come from.

Event loop only. Source: RFC 7617, RFC 6750, RFC 6265bis.
"""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64decode
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import quote, urlencode

from tidelog.broker.configuration.broker_config import HTTP_LISTENER
from tidelog.broker.net.http_console import (
    API,
    HEADERS,
    SIGN_IN_PATH,
    SIGN_OUT_PATH,
    STATIC_PATH,
    Known,
    is_of_console,
)
from tidelog.broker.net.http_origins import READING, is_of_other_site
from tidelog.broker.net.http_sessions import LONGEST_SECONDS, Identity, Sessions
from tidelog.broker.net.writing import CHECK_ONLY, CLIENT_USER, FORWARDED_HOST, FORWARDED_USER
from tidelog.broker.security.authentication import TooManyGuesses
from tidelog.broker.security.sasl import Refused
from tidelog.broker.services import Services
from tidelog.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from aiohttp import web

    from tidelog.broker.net.http import Answer
    from tidelog.broker.net.http_places import HttpConnection

_BASIC: Final = "basic"
_BEARER: Final = "bearer"
_FORM: Final = "application/x-www-form-urlencoded"
_MOST_FORM_BYTES: Final = 16 * 1024
_FORM_SECONDS: Final = 20.0
_NEXT: Final = re.compile(r"/console/[\x21-\x7e]*")
_UNKNOWN: Final = "this broker asks for a user and a password, a token, or a client's certificate"


def is_local(host: str) -> bool:
    """Whether only this machine reaches an address to listen on."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _user_and_password(encoded: str) -> tuple[str, str]:
    """Both are empty if these are no credentials of basic authentication."""
    try:
        text = b64decode(encoded.strip(), validate=True).decode()
    except ValueError:
        text = ""
    user, _, password = text.partition(":")
    return user, password


class HttpAuthentication:
    """The check of one broker. `is_tls` says whether its HTTP port has TLS."""

    def __init__(self, services: Services, *, is_tls: bool, is_behind_proxy: bool = False) -> None:
        """`is_behind_proxy`: requests come from the HTTP port of several processes, on a private socket."""
        self._services = services
        self._users = services.users
        self._now_seconds = asyncio.get_running_loop().time
        self._sessions = Sessions(services.users, self._now_seconds)
        self._is_tls = is_tls
        self._is_behind_proxy = is_behind_proxy
        # Browsers give a cookie to every port of a host: each broker has its own name.
        self._cookie = f"{'__Host-' if is_tls else ''}tidelog-{services.config.http_port}"

    async def answer(self, request: web.Request, handler: Answer) -> web.StreamResponse:
        """What `handler` answers to those who may ask; 401 or 403 to others. For aiohttp: a middleware."""
        if self._is_behind_proxy:
            request = request.clone(remote=request.headers.get(FORWARDED_HOST, ""))
            if CHECK_ONLY in request.headers:
                handler = _say_that_it_passed
        if is_of_console(request.path) and self._services.config.console_enable:
            try:
                response = await self._of_console(request, handler)
            except TooManyGuesses as refused:
                code = ErrorCode.SASL_AUTHENTICATION_FAILED.name
                response = _slowed_down(refused, {"code": code, "message": refused.message})
            if not response.prepared:
                response.headers.update(HEADERS)
            return response
        from aiohttp import web

        try:
            identity = await self._identity(request)
        except TooManyGuesses as refused:
            return _slowed_down(refused, {"error": refused.message})
        if identity is None:
            return self._unknown(request, {"error": _UNKNOWN})
        operation = Operation.DESCRIBE if request.method in READING else Operation.ALTER
        if not self._may(identity.user, request.remote or "", operation):
            error = {"error": f"User:{identity.user} needs {operation.name} on the cluster"}
            return web.json_response(error, status=403)
        return await handler(request)

    async def _of_console(self, request: web.Request, handler: Answer) -> web.StreamResponse:
        _know(request, None)
        is_reading = request.method in READING
        if is_reading and (request.path == SIGN_IN_PATH or request.path.startswith(STATIC_PATH)):
            return await handler(request)
        if request.path == SIGN_IN_PATH:
            return await self._sign_in(request)
        secret = request.cookies.get(self._cookie, "")
        if request.path == SIGN_OUT_PATH:
            return self._sign_out(request, secret)
        identity = self._sessions.find(secret) if secret else None
        if identity is not None:

            def is_still() -> bool:
                return self._sessions.find(secret, is_used=False) is not None

            _know(request, Known(identity.user, True, is_still))
        else:
            identity = await self._identity(request)
            if identity is None:
                return self._unknown_visitor(request, is_reading=is_reading)
            _know(request, Known(identity.user, False, partial(self._sessions.holds, identity)))
        return await handler(request)

    async def _sign_in(self, request: web.Request) -> web.Response:
        """A redirect: to where the visitor wanted to go, or back to the form."""
        from aiohttp import web

        if request.method != "POST" or is_of_other_site(request) or request.content_type != _FORM:
            return web.Response(status=403, text="sign in by the form of this broker\n")
        if (request.content_length or 0) > _MOST_FORM_BYTES:
            return web.Response(status=413, text=f"expected at most {_MOST_FORM_BYTES} bytes\n")
        try:
            async with asyncio.timeout(_FORM_SECONDS):
                form = await request.post()
        except TimeoutError:
            raise web.HTTPRequestTimeout(
                text=f"the form has to arrive within {_FORM_SECONDS:g} seconds\n"
            ) from None
        user, password, token, following = (
            str(form.get(each, "")) for each in ("user", "password", "token", "next")
        )
        wanted = following if _NEXT.fullmatch(following) else "/"
        mechanism = _BEARER if token else _BASIC
        peer = request.remote or ""
        try:
            identity = self._with_token(token) if token else await self._with_password(user, password, peer)
        except TooManyGuesses as refused:
            return _see_other(f"{SIGN_IN_PATH}?{urlencode({'wait': refused.seconds, 'next': wanted})}")
        if identity is None:
            await self._failed(peer, mechanism)
            return _see_other(f"{SIGN_IN_PATH}?{urlencode({'failed': 'true', 'next': wanted})}")
        self._services.metrics.authenticated(HTTP_LISTENER, mechanism, is_again=False)
        self._services.events.info(
            "console_signed_in", peer, user=identity.user, peer=peer, mechanism=mechanism
        )
        response = _see_other(wanted)
        secret = self._sessions.begin(identity)
        self._set_cookie(response, secret, identity.ends_seconds - self._now_seconds())
        return response

    def _sign_out(self, request: web.Request, secret: str) -> web.Response:
        from aiohttp import web

        if request.method != "POST" or is_of_other_site(request):
            return web.Response(status=403, text="sign out by the button of this broker's pages\n")
        identity = self._sessions.end(secret)
        if identity is not None:
            peer = request.remote or ""
            self._services.events.info("console_signed_out", peer, user=identity.user, peer=peer)
        response = _see_other(SIGN_IN_PATH)
        self._set_cookie(response, "", 0)
        return response

    def _set_cookie(self, response: web.Response, secret: str, seconds: float) -> None:
        response.set_cookie(
            self._cookie,
            secret,
            max_age=min(int(seconds), int(LONGEST_SECONDS)),
            path="/",
            secure=self._is_tls,
            httponly=True,
            samesite="Strict",
        )

    def _unknown_visitor(self, request: web.Request, *, is_reading: bool) -> web.Response:
        from aiohttp import web

        if request.path.startswith(API) or not is_reading:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED.name
            return self._unknown(request, {"code": code, "message": _UNKNOWN})
        if request.headers.get("Sec-Fetch-Site") == "cross-site":
            # A link of another site comes without the cookie. This page's own request has it.
            return web.Response(content_type="text/html", headers={"Refresh": "0"})
        form = f"{SIGN_IN_PATH}?next={quote(str(request.rel_url), safe='/')}"
        if "HX-Request" in request.headers:
            return web.Response(status=401, headers={"HX-Redirect": SIGN_IN_PATH})
        return _see_other(form)

    def _unknown(self, request: web.Request, error: dict[str, str]) -> web.Response:
        from aiohttp import web

        # A browser would answer `Basic` by a dialog, and would keep the password until it is closed.
        has_form = "Sec-Fetch-Mode" in request.headers and is_of_console(request.path)
        scheme = "Bearer" if has_form else 'Basic realm="tidelog", charset="UTF-8"'
        body = json.dumps(error)
        return web.Response(
            text=body, content_type="application/json", status=401, headers={"WWW-Authenticate": scheme}
        )

    async def _identity(self, request: web.Request) -> Identity | None:
        """Of the certificate or the header of a request; None for nobody."""
        if user := self._user_of_certificate(request):
            return Identity(user, self._users.get(user))
        header = request.headers.get("Authorization")
        if header is None:
            return None
        scheme, _, shown = header.partition(" ")
        mechanism = scheme.lower()
        identity = None
        if mechanism == _BEARER:
            identity = self._with_token(shown.strip())
        elif mechanism == _BASIC:
            identity = await self._with_password(*_user_and_password(shown), request.remote or "")
        if identity is None:
            await self._failed(request.remote or "", _BEARER if mechanism == _BEARER else _BASIC)
        return identity

    async def _with_password(self, user: str, password: str, host: str) -> Identity | None:
        """None for wrong ones. Raises TooManyGuesses, which is counted and answered as late as these."""
        held = self._users.get(user)
        try:
            fits = bool(user) and await self._services.authentication.verify_password(user, password, host)
        except TooManyGuesses:
            await self._failed(host, _BASIC)
            raise
        return Identity(user, held) if fits else None

    def _with_token(self, token: str) -> Identity | None:
        try:
            claims = self._services.authentication.verified(token)
        except Refused:
            return None
        left_ms = claims.expires_at_ms - self._services.clock_ms()
        return Identity(claims.user, self._users.get(claims.user), self._now_seconds() + left_ms / 1000)

    def _user_of_certificate(self, request: web.Request) -> str:
        if self._is_behind_proxy:
            return request.headers.get(FORWARDED_USER, "")
        return request.get_extra_info(CLIENT_USER) or ""

    async def _failed(self, host: str, mechanism: str) -> None:
        services = self._services
        services.metrics.authentication_failed(HTTP_LISTENER, mechanism, is_again=False)
        services.events.warning(
            "authentication_failed", host, peer=host, listener=HTTP_LISTENER, mechanism=mechanism
        )
        await asyncio.sleep(services.settings.config.connection_failed_authentication_delay_ms / 1000)

    def _may(self, user: str, host: str, operation: Operation) -> bool:
        authorizer = self._services.acls.authorizer
        if authorizer is None:
            return True
        allowed = authorizer.access(f"User:{user}", host).allowed(ResourceType.CLUSTER, CLUSTER_NAME)
        return bool(allowed & 1 << operation)


def _slowed_down(refused: TooManyGuesses, problem: dict[str, str]) -> web.Response:
    from aiohttp import web

    return web.json_response(problem, status=429, headers={"Retry-After": str(refused.seconds)})


async def _say_that_it_passed(_: web.Request) -> web.Response:
    from aiohttp import web

    return web.Response(status=204, headers={CHECK_ONLY: "passed"})


def _know(request: web.Request, known: Known | None) -> None:
    cast("HttpConnection", request.protocol).known = known


def _see_other(path: str) -> web.Response:
    from aiohttp import web

    return web.Response(status=303, headers={"Location": path, "Cache-Control": "no-store"})
