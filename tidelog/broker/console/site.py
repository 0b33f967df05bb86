"""From an HTTP request to the answer of a route or a page.

Owns the order of the checks, the codes of HTTP for errors of the broker, and the event of each change.

Invariants: a page and the API answer the same to the same caller; a refusal is JSON in the API, a page
elsewhere; a change is logged with its user, whatever became of it; an unexpected error is logged, and its
answer shows no internals.

Event loop only.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_origin
from urllib.parse import unquote

import msgspec
import structlog
from aiohttp import web

from tidelog.broker.configuration.listener_settings import SecurityProtocol
from tidelog.broker.console.caller import Caller
from tidelog.broker.console.live import Streams
from tidelog.broker.console.openapi import describe
from tidelog.broker.console.others import TakenStreams
from tidelog.broker.console.rendering import Templates
from tidelog.broker.console.route import MOST_JOINED_ROWS, ApiRoute, Console, Page, pattern_of
from tidelog.broker.console.routes import BETWEEN_BROKERS, PAGES, ROUTES
from tidelog.broker.console.shapes import Listing, Parameters
from tidelog.broker.handlers.access_control import AccessControl
from tidelog.broker.handlers.connection_state import ANONYMOUS
from tidelog.broker.handlers.context import Handler
from tidelog.broker.net import http_console
from tidelog.broker.net.http_authentication import is_local
from tidelog.broker.net.http_origins import is_of_other_site
from tidelog.broker.net.http_places import HttpConnection
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.version import VERSION

logger = structlog.get_logger(__name__)

T = TypeVar("T")
_JSON: Final = "application/json"
_STATIC: Final = Path(__file__).with_name("static")
_MOST_LOGGED_CHARACTERS: Final = 500
_STATUSES: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.UNKNOWN_TOPIC_ID: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.RESOURCE_NOT_FOUND: 404,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: 404,
    ErrorCode.UNKNOWN_PRODUCER_ID: 404,
    ErrorCode.UNKNOWN_MEMBER_ID: 404,
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
    ErrorCode.NON_EMPTY_GROUP: 409,
    ErrorCode.INVALID_TXN_STATE: 409,
    ErrorCode.CONCURRENT_TRANSACTIONS: 409,
    ErrorCode.DUPLICATE_RESOURCE: 409,
    ErrorCode.UNKNOWN_SERVER_ERROR: 500,
    ErrorCode.KAFKA_STORAGE_ERROR: 503,
}


def status_of(code: ErrorCode) -> int:
    """The status of HTTP for an error of the broker."""
    if code.name.endswith("AUTHORIZATION_FAILED"):
        return 403
    return _STATUSES.get(code, 503 if code.retriable else 400)


def check_change(request: web.Request) -> None:
    """Raise ApiError for a change that a page of another site asks for, or could: no form and no link of
    another site can send a body of JSON."""
    if is_of_other_site(request):
        message = "a page of another site may not change anything"
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)
    if request.content_type != _JSON:
        message = f"send a JSON object with Content-Type: {_JSON}, got {request.content_type}"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)


class Site:
    """Answers the requests to the console of one broker, with pages, the API and files."""

    def __init__(self, console: Console, handlers: Mapping[ApiKey, Handler]) -> None:
        self._console = console
        self._services = console.services
        self._handlers = handlers
        self._access = AccessControl(console.services)
        self._templates = Templates()
        self._streams = Streams()
        files = (path for path in _STATIC.rglob("*") if path.is_file())
        self._static = {path.relative_to(_STATIC).as_posix(): path for path in files}
        self._routes = [(pattern_of(route.path), route) for route in ROUTES]
        self._pages = [(pattern_of(page.path), page) for page in PAGES]
        self._shown = [page for page in PAGES if page.is_in_navigation]
        self._by_name = {(str(each.method), each.path): each for each in (*ROUTES, *BETWEEN_BROKERS)}
        self._taken = TakenStreams()
        self._openapi = json.dumps(describe(ROUTES, VERSION))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The answer to a request below `/console` or `/api/v1`."""
        is_api = request.path.startswith(http_console.API)
        try:
            response = await self._answered(request)
        except ApiError as error:
            response = self._refusal(request, status_of(error.code), error.code.name, error.message)
        except web.HTTPException as error:
            text = error.text or error.reason
            response = self._refusal(request, error.status, ErrorCode.INVALID_REQUEST.name, text.strip())
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
        except ConnectionAbortedError:
            raise
        except Exception as error:
            peer, path = request.remote or "", request.path
            self._services.events.error(
                "console_request_failed", peer, peer=peer, path=path, error=repr(error), exc_info=error
            )
            unknown = ErrorCode.UNKNOWN_SERVER_ERROR
            response = self._refusal(request, 500, unknown.name, unknown.message)
        if not response.prepared:
            response.headers.update(http_console.HEADERS)
            if is_api or "Cache-Control" not in response.headers:
                response.headers.update(http_console.NO_STORE)
        return response

    def stop(self) -> None:
        """End the streams: the broker stops."""
        self._streams.stop()
        self._taken.stop()

    async def _answered(self, request: web.Request) -> web.StreamResponse:
        path = request.rel_url.raw_path
        if path.startswith(http_console.STATIC_PATH):
            return self._file(path.removeprefix(http_console.STATIC_PATH))
        if path in ("/", http_console.PAGES_PATH):
            return web.Response(status=302, headers={"Location": next(iter(PAGES)).path})
        if path == http_console.SIGN_IN_PATH:
            return self._sign_in(request)
        caller = self._caller(request)
        if path == f"{http_console.API}/openapi.json":
            return web.Response(text=self._openapi, content_type="application/json")
        if path.startswith(http_console.API):
            return await self._api(request, caller, path)
        for page, in_path in _matching(self._pages, path):
            if request.method not in ("GET", "HEAD"):
                raise web.HTTPMethodNotAllowed(request.method, ["GET"])
            return await self._page(request, caller, page, in_path)
        raise web.HTTPNotFound(text=f"there is no page {path}")

    def _sign_in(self, request: web.Request) -> web.Response:
        if not self._services.config.is_secured:
            raise web.HTTPNotFound(text="this broker has no sign-in")
        has_tls = self._services.config.http_security_protocol == SecurityProtocol.SSL
        is_in_clear = not has_tls and not is_local(request.remote or "")
        takes_tokens = self._services.authentication.takes_tokens
        values = {"query": Query(request.query), "takes_tokens": takes_tokens, "is_in_clear": is_in_clear}
        return self._rendered(request, "sign_in.html", "Sign in", values)

    def _caller(self, request: web.Request) -> Caller:
        known = _known(request)
        user = ANONYMOUS.name if known is None else known.user
        return Caller(user, request.remote or "", self._access, self._handlers, self._services.turns)

    def _file(self, name: str) -> web.StreamResponse:
        if name not in self._static:
            raise web.HTTPNotFound(text=f"there is no file {name}")
        return web.FileResponse(self._static[name], headers={"Cache-Control": "no-cache"})

    async def _api(self, request: web.Request, caller: Caller, path: str) -> web.StreamResponse:
        method = "GET" if request.method == "HEAD" else request.method
        allowed = []
        for route, in_path in _matching(self._routes, path):
            if route.method == method:
                return await self._call(request, caller, route, in_path)
            allowed.append(route.method)
        if allowed:
            raise web.HTTPMethodNotAllowed(method, allowed)
        raise web.HTTPNotFound(text=f"there is no route {path}")

    async def _call(
        self, request: web.Request, caller: Caller, route: ApiRoute, in_path: dict[str, str]
    ) -> web.StreamResponse:
        if not route.is_change:
            parameters = _parameters(route, _queried(request, route) | in_path)
            if route.stream:
                return await self._stream(request, caller, route, parameters)
            return _json(await self._handled(route, caller, parameters))
        with _logged_change(caller, route, request.path) as change:
            check_change(request)
            self._check_read_only()
            change.parameters = _parameters(route, await _body(request) | in_path)
            return _json(await self._handled(route, caller, change.parameters))

    async def _stream(
        self, request: web.Request, caller: Caller, route: ApiRoute, parameters: Parameters
    ) -> web.StreamResponse:
        caller.check_needs(route.needs, parameters)
        values = await route.values(self._console, caller, parameters)
        known = _known(request)

        def check() -> None:
            if known is not None and not known.is_still():
                raise ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, "sign in again")
            caller.check_needs(route.needs, parameters)

        return await self._streams.answer(request, caller, route, values, check)

    def _check_read_only(self) -> None:
        if self._services.config.console_read_only:
            message = "console.read.only=true: nothing is changed"
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)

    async def _handled(self, route: ApiRoute, caller: Caller, parameters: Parameters) -> Any:
        caller.check_needs(route.needs, parameters)
        return await route.ask(self._console, caller, parameters)

    async def answer_peer(
        self, request: types.AskConsoleRequest, asked_by: str
    ) -> DictOf[types.AskConsoleResponse]:
        """The answer to another broker, for the visitor that it names. Raises ApiError."""
        route = self._by_name.get((request.method, request.path))
        if route is None:
            message = f"this broker has no route {request.method} {request.path}: is it of another version?"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, message)
        caller = Caller(request.user, request.host, self._access, self._handlers, self._services.turns)
        logged = _logged_change(caller, route, request.path, asked_by=asked_by)
        with logged if route.is_change else nullcontext(_Change()) as change:
            if route.is_change:
                self._check_read_only()
            parameters = change.parameters = _sent_parameters(request, route)
            caller.check_needs(route.needs, parameters)
            stream_id, answer = request.stream_id, None
            if stream_id < 0:
                answer = route.handle(self._console, caller, parameters)
                if isawaitable(answer):
                    answer = await answer
                if not route.stream:
                    return {"answer": json.dumps(answer).encode()}
                stream_id = self._taken.begin(answer)
            value, stream_id = await self._taken.take(stream_id)
            answer = value if route.is_of_lines else json.dumps(value).encode()
            return {"stream_id": stream_id, "answer": b"" if value is None else answer}

    async def _page(
        self, request: web.Request, caller: Caller, page: Page, in_path: dict[str, str]
    ) -> web.Response:
        lists = [route for route in page.sources if issubclass(route.parameters, Listing)]

        async def answer_of(route: ApiRoute) -> Any:
            if page.has_gaps and not caller.has_needs(route.needs):
                return None
            not_asked = Listing.__struct_fields__ if route in lists[1:] else ()
            known = {*route.parameters.__struct_fields__} - {*not_asked}
            given = {**_queried(request, route), **in_path}
            values = {name: value for name, value in given.items() if name in known}
            return await self._handled(route, caller, _parameters(route, values))

        # At once: a broker that does not answer is waited for once.
        found = await asyncio.gather(*map(answer_of, page.sources), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each
        answers = {route.name: answer for route, answer in zip(page.sources, found, strict=True)}
        listed = (answer.get("unanswered", ()) for answer in found if isinstance(answer, dict))
        unanswered = sorted({each for node_ids in listed for each in node_ids})
        values = {**answers, "query": Query(in_path, **request.query), "unanswered": unanswered}
        # In a thread: a page of 500 records takes longer than the loop may be busy.
        return await asyncio.to_thread(self._rendered, request, page.template, page.title, values)

    def _rendered(
        self, request: web.Request, template: str, title: str, values: dict[str, Any], status: int = 200
    ) -> web.Response:
        services = self._services
        # The form to sign in is shown to everybody, so it shows nothing of the broker.
        known = _known(request)
        is_known = known is not None or not services.config.is_secured
        shared = {
            "title": title,
            "is_known": is_known,
            "has_session": known is not None and known.has_session,
            "path": request.rel_url.raw_path,
            "pages": [page for page in self._shown if is_known and page.is_shown(self._console)],
            "user": known.user if known is not None else "",
            "may_change": not services.config.console_read_only,
            "node_id": services.node_id,
            "brokers": len(services.catalog.brokers),
            "live": sum(map(services.is_live, services.catalog.brokers)),
            "query": Query(),
            "unanswered": [],
        }
        text = self._templates.render(template, shared | values)
        return web.Response(text=text, content_type="text/html", status=status)

    def _refusal(self, request: web.Request, status: int, code: str, message: str) -> web.Response:
        if request.path.startswith(http_console.API):
            return _json({"code": code, "message": message}, status)
        values = {"code": code, "message": message, "status": status}
        return self._rendered(request, "refused.html", "Not shown", values, status)


class Query(dict[str, str]):
    """The parameters of a page; one that it does not have is empty."""

    def __missing__(self, name: str) -> str:
        return ""


@dataclass(slots=True)
class _Change:
    """What is known of a change that is logged."""

    parameters: Parameters | None = None


@contextmanager
def _logged_change(caller: Caller, route: ApiRoute, path: str, **more: str) -> Iterator[_Change]:
    """Log a change, whatever becomes of it."""
    change, code = _Change(), "NONE"
    try:
        yield change
    except ApiError as error:
        code = error.code.name
        raise
    except BaseException:
        code = ErrorCode.UNKNOWN_SERVER_ERROR.name
        raise
    finally:
        names = [*route.logged, *(route.path_names if more else ())] if change.parameters else []
        shown = {name: _logged(getattr(change.parameters, name)) for name in names}
        asked = {"method": route.method, "path": path, "parameters": shown}
        logger.info("console_change", user=caller.user, peer=caller.host, **asked, code=code, **more)


def _sent_parameters(request: types.AskConsoleRequest, route: ApiRoute) -> Parameters:
    """Those that another broker sent. Raises ApiError."""
    try:
        parameters = msgspec.json.decode(request.parameters, type=route.parameters)
    except msgspec.DecodeError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
    if request.limit >= 0:
        limit = min(request.limit, MOST_JOINED_ROWS)
        return msgspec.structs.replace(parameters, offset=0, limit=limit)
    return parameters


def _known(request: web.Request) -> http_console.Known | None:
    return request.protocol.known if isinstance(request.protocol, HttpConnection) else None


def _json(answer: object, status: int = 200) -> web.Response:
    return web.Response(text=json.dumps(answer), content_type=_JSON, status=status)


def _logged(value: Any) -> Any:
    """A parameter of bounded size for the log."""
    text = str(value)
    return value if len(text) <= _MOST_LOGGED_CHARACTERS else f"{text[:_MOST_LOGGED_CHARACTERS]}…"


def _matching(known: Iterable[tuple[re.Pattern[str], T]], path: str) -> Iterator[tuple[T, dict[str, str]]]:
    """Those that answer a path, with the parameters in it."""
    for pattern, each in known:
        if found := pattern.fullmatch(path):
            yield each, {name: unquote(value) for name, value in found.groupdict().items()}


def _queried(request: web.Request, route: ApiRoute) -> dict[str, Any]:
    """The parameters in the query; an empty text counts as absent."""
    fields = msgspec.structs.fields(route.parameters)
    types = {each.name: (each.type, *get_args(each.type)) for each in fields}
    lists = {name for name, found in types.items() if {list, tuple} & set(map(get_origin, found))}
    query = request.query
    given = {name: [text for text in query.getall(name) if text != ""] for name in set(query)}
    return {name: texts if name in lists else texts[0] for name, texts in given.items() if texts}


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        values = json.loads(await request.read())
    except (ValueError, RecursionError) as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the body is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ApiError(ErrorCode.INVALID_REQUEST, "the body must be a JSON object")
    return values


def _parameters(route: ApiRoute, values: Mapping[str, Any]) -> Parameters:
    try:
        return msgspec.convert(values, route.parameters, strict=False)
    except msgspec.ValidationError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
