"""One HTTP port for a broker of several processes: `http.port`, in front of the HTTP of each.

Owns the requests to all: /metrics is one text with the label `process`; /readyz answers 200 only while each
process serves; an order to /faults goes to all. /processes/K/PATH is PATH of process K, and any other path is
that of process 0.

Invariants: a process that does not answer is left out of /metrics, where `tidelog_process_up` shows it; who
may ask is decided by the processes, to which only this port names the user of a certificate and the address;
with security a request takes a place among those in progress after a process let its visitor in; nothing of
one request, such as a cookie, is kept for another.

Event loop only.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.broker.configuration.broker_config import HTTP_LISTENER, BrokerConfig
from tidelog.broker.configuration.listener_settings import SecurityProtocol
from tidelog.broker.limits.peer_events import PeerEvents
from tidelog.broker.net.http import METRICS_CONTENT_TYPE, HttpServer
from tidelog.broker.net.writing import CHECK_ONLY, CLIENT_USER, FORWARDED_HOST, FORWARDED_USER
from tidelog.broker.observability.metrics import Metrics
from tidelog.broker.processes.expositions import merged
from tidelog.broker.security.tls import ListenerTls
from tidelog.broker.storage.process_folders import http_socket

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession, web

    from tidelog.broker.net.http import Answer, Middleware

SECONDS: Final = 3.0
"""How long a process may take to answer a request to all: less than a scraper of the others waits."""
_DROPPED: Final = frozenset(
    ("connection", "keep-alive", "transfer-encoding", "content-length", "server", "date")
) | {each.lower() for each in (CHECK_ONLY, FORWARDED_HOST, FORWARDED_USER)}
_CHECK_SECONDS: Final = 1.0
"""How long a process may take to let a visitor in, where another one can do so. With `SECONDS` it is less
than a scraper waits."""
_ORIGIN: Final = "http://tidelog"
_OF_ALL: Final = ("/metrics", "/faults")
UP: Final = "tidelog_process_up"


class _Answer(NamedTuple):
    process: int
    status: int
    body: bytes
    content_type: str
    headers: Mapping[str, str]
    """Those that belong to a refusal."""

    @property
    def is_success(self) -> bool:
        return self.status < 300


class HttpProxy(HttpServer):
    """Serves one HTTP port for all processes of a broker, and passes requests on to them."""

    def __init__(self, config: BrokerConfig, count: int, listening: socket.socket) -> None:
        """Raises ConfigError for certificates that cannot be used."""
        tls = None
        if config.http_security_protocol == SecurityProtocol.SSL:
            tls = ListenerTls(config.of_listener(HTTP_LISTENER), HTTP_LISTENER)
        checks: list[Middleware] = [self._let_in] if config.is_secured else []
        super().__init__(
            listening, Metrics(), lambda: True, PeerEvents(), self._add_own_routes, tls=tls, checks=checks
        )
        self._count = count
        self._refusal_seconds = config.connection_failed_authentication_delay_ms / 1000
        self._folder = http_socket(config.data_dir, 0).parent
        self._folder_fd = -1
        self._sessions: list[ClientSession] = []

    def _add_own_routes(self, application: web.Application) -> None:
        import aiohttp

        self._folder_fd = os.open(self._folder, os.O_PATH | os.O_CLOEXEC)
        for process in range(self._count):
            # By the folder's number, because the path may be longer than an address may be.
            path = f"/proc/self/fd/{self._folder_fd}/http-{process}.sock"
            session = aiohttp.ClientSession(
                # Its own limit, 100, is less than the streams that visitors may have open.
                connector=aiohttp.UnixConnector(path, limit=0),
                # A visitor's cookie is the visitor's own: one that is kept here would be sent for all others.
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(None),
            )
            self._sessions.append(session)
        router = application.router
        for path in ("/faults", "/faults/{number:[0-9]{1,18}}"):
            router.add_route("*", path, self._faults)
        router.add_route("*", "/processes/{process:[0-9]{1,2}}{path:/.*}", self._of_one)
        router.add_route("*", "/{path:.*}", self._of_first)

    async def stop(self) -> None:
        await super().stop()
        for session in self._sessions:
            await session.close()
        if self._folder_fd >= 0:
            os.close(self._folder_fd)

    async def _let_in(self, request: web.Request, handler: Answer) -> web.StreamResponse:
        """What `handler` answers to those whom a process lets in; that process's answer to others. Meanwhile
        the request holds no place of others. For aiohttp: a middleware."""
        from aiohttp import web

        if self._places is not None:
            await self._places.read_body(request)
        # A session of the console is known to the process that began it.
        is_of_all = request.path in _OF_ALL
        processes, url = range(self._count if is_of_all else 1), _url(request)
        if "process" in request.match_info:
            process, of_process = self._asked_of_one(request)
            if process < self._count:
                processes, url = range(process, process + 1), of_process
        for process in processes:
            last = process == processes[-1]
            try:
                async with asyncio.timeout(None if last else _CHECK_SECONDS + self._refusal_seconds):
                    answer = await self._asked(request, process, url, is_check=True)
            except (TimeoutError, web.HTTPServiceUnavailable):
                if last:
                    raise
                continue
            async with answer:
                if CHECK_ONLY not in answer.headers:
                    return await _sent_on(request, answer)
            break
        return await handler(request)

    async def _answer_metrics(self, request: web.Request) -> web.Response:
        from aiohttp import web

        answers = await self._ask_all(request)
        if refused := _refused(answers):
            return refused
        texts = {str(each.process): each.body.decode() for each in answers if each.is_success}
        lines = [f"# HELP {UP} Whether a process answers.", f"# TYPE {UP} gauge"]
        lines += [
            f'{UP}{{process="{process}"}} {float(str(process) in texts)}' for process in range(self._count)
        ]
        body = merged(texts) + "\n".join(lines) + "\n"
        return web.Response(body=body.encode(), headers={"Content-Type": METRICS_CONTENT_TYPE})

    async def _answer_ready(self, request: web.Request) -> web.Response:
        from aiohttp import web

        ready = {each.process for each in await self._ask_all(request) if each.is_success}
        missing = [str(process) for process in range(self._count) if process not in ready]
        if missing:
            return web.Response(text=f"not ready: process {', '.join(missing)}\n", status=503)
        return web.Response(text="ready\n")

    async def _faults(self, request: web.Request) -> web.Response:
        from aiohttp import web

        answers = await self._ask_all(request)
        succeeded = [each for each in answers if each.is_success]
        if not succeeded or request.method != "GET":
            return _as_answered(succeeded or answers)
        listed: dict[str, list[Any]] = {}
        for answer in succeeded:
            for name, orders in json.loads(answer.body).items():
                listed.setdefault(name, []).extend({**order, "process": answer.process} for order in orders)
        return web.json_response(listed)

    async def _of_one(self, request: web.Request) -> web.StreamResponse:
        from aiohttp import web

        process, url = self._asked_of_one(request)
        if process >= self._count:
            raise web.HTTPNotFound(text=f"there is no process {process}\n")
        return await self._passed_on(request, process, url)

    @staticmethod
    def _asked_of_one(request: web.Request) -> tuple[int, str]:
        """The process, and the URL there."""
        _, _, process, path = request.rel_url.raw_path_qs.split("/", 3)
        return int(process), f"{_ORIGIN}/{path}"

    async def _of_first(self, request: web.Request) -> web.StreamResponse:
        return await self._passed_on(request, 0, _url(request))

    async def _ask_all(self, request: web.Request) -> list[_Answer]:
        """What each process answers to a request, in their order; those that do not answer are left out."""
        asked = (self._ask(request, process) for process in range(self._count))
        return [each for each in await asyncio.gather(*asked) if each is not None]

    async def _ask(self, request: web.Request, process: int) -> _Answer | None:
        from aiohttp import ClientError

        try:
            async with (
                asyncio.timeout(SECONDS),
                self._sessions[process].request(
                    request.method, _url(request), headers=_forwarded(request), data=await request.read()
                ) as answer,
            ):
                asked_for = answer.headers.get("WWW-Authenticate")
                headers = {} if asked_for is None else {"WWW-Authenticate": asked_for}
                return _Answer(process, answer.status, await answer.read(), answer.content_type, headers)
        except (ClientError, OSError, TimeoutError):
            return None

    async def _passed_on(self, request: web.Request, process: int, url: str) -> web.StreamResponse:
        async with await self._asked(request, process, url) as answer:
            return await _sent_on(request, answer)

    async def _asked(
        self, request: web.Request, process: int, url: str, *, is_check: bool = False
    ) -> ClientResponse:
        """The answer of a process. Raises HTTPServiceUnavailable."""
        from aiohttp import ClientError, web

        try:
            return await self._sessions[process].request(
                request.method,
                url,
                headers=_forwarded(request) | ({CHECK_ONLY: "asked"} if is_check else {}),
                data=await request.read(),
                allow_redirects=False,
            )
        except (ClientError, OSError) as error:
            raise web.HTTPServiceUnavailable(text=f"process {process} does not answer: {error}\n") from None


async def _sent_on(request: web.Request, answer: ClientResponse) -> web.StreamResponse:
    from aiohttp import ClientError, web

    from tidelog.broker.net.http_places import HttpConnection

    headers = answer.headers.copy()
    for name in _DROPPED & {each.lower() for each in headers}:
        headers.popall(name)
    response = web.StreamResponse(status=answer.status, headers=headers)
    await response.prepare(request)
    if answer.content_length is None and isinstance(request.protocol, HttpConnection):
        request.protocol.leave_work()  # It may be a stream without an end.
    try:
        async for piece in answer.content.iter_any():
            await response.write(piece)
    except ClientError as error:
        if isinstance(error, ConnectionError):
            raise  # The visitor has left.
        raise ConnectionAbortedError(f"the process has ended: {error}") from None
    await response.write_eof()
    return response


def _url(request: web.Request) -> str:
    return _ORIGIN + request.rel_url.raw_path_qs


def _forwarded(request: web.Request) -> dict[str, str]:
    headers = {name: value for name, value in request.headers.items() if name.lower() not in _DROPPED}
    if "Host" not in request.headers:
        headers["Host"] = "localhost"  # Else it would be that of `_ORIGIN`, which is no name of the broker.
    headers[FORWARDED_HOST] = request.remote or ""
    headers[FORWARDED_USER] = request.get_extra_info(CLIENT_USER) or ""
    return headers


def _refused(answers: Sequence[_Answer]) -> web.Response | None:
    """What a process answered to one who may not ask; None if it answered."""
    return next((_as_answered([each]) for each in answers if each.status in (401, 403)), None)


def _as_answered(answers: Sequence[_Answer]) -> web.Response:
    from aiohttp import web

    if not answers:
        raise web.HTTPServiceUnavailable(text="no process answers\n")
    first = answers[0]
    return web.Response(
        body=first.body, status=first.status, content_type=first.content_type, headers=first.headers
    )
