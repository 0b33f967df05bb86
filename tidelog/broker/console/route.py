"""What a route of the API and a page are, and which brokers answer a route.

Owns the declarations. A route declares its parameters (a `Parameters`), the type of its answer, the
permission of its caller and the function that answers; checks, documentation and the tests of all routes
follow from that. A page shows what routes answer, so it needs what they need.

Invariant: the parameters of a route are in its path where that names them; the others are in the query of a
GET, else in the JSON object of the body.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

from msgspec.structs import replace

from tidelog.broker.cluster.catalog import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.broker.console.caller import Caller
from tidelog.broker.console.condition import Conditions
from tidelog.broker.console.others import Others, Values, coordinator, leader
from tidelog.broker.console.records.reading import Records
from tidelog.broker.console.request_rates import RequestRates
from tidelog.broker.console.shapes import Parameters
from tidelog.broker.fault_injection.injection import FaultInjector
from tidelog.broker.net.http_console import API, PAGES_PATH
from tidelog.broker.net.server import Server
from tidelog.broker.observability.history import History
from tidelog.broker.security import required_access as rights
from tidelog.broker.security.required_access import Need, Right
from tidelog.broker.services import Services
from tidelog.protocol.acls import ResourceType
from tidelog.protocol.errors import ApiError, ErrorCode

EVENT_STREAM: Final = "text/event-stream"
JSON_LINES: Final = "application/x-ndjson"
CSV: Final = "text/csv"
StreamType = Literal["", "text/event-stream", "application/x-ndjson", "text/csv"]
_FIELDS: Final = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group_id",
    ResourceType.TRANSACTIONAL_ID: "transactional_id",
    ResourceType.CLUSTER: rights.OF_CLUSTER,
}
"""The parameters that name resources."""
MOST_JOINED_ROWS: Final = 2_000
"""Rows of each broker that are joined for one page."""
ALL: Final = ("*",)
"""To log all parameters: none is a secret."""
_NAME: Final = re.compile(r"\{(\w+)\}")


class Console:
    """Holds what routes work on: the broker's services, its server, and the console's own state."""

    def __init__(self, services: Services, server: Server, faults: FaultInjector | None) -> None:
        """`server` has the connections of clients. `faults` is None if faults are not enabled."""
        self.services = services
        self.server = server
        self.faults = faults
        self.history = services.history or History(services.metrics, services.clock_ms, services.start_ms)
        self.conditions = Conditions(services)
        self.records = Records(services)
        self.request_rates = RequestRates()
        self.others = Others(services)


class Spread(NamedTuple):
    """How a route is answered where the cluster has several brokers: by `broker` alone, or by all of them.

    `join` makes one answer of those of the brokers that answered, by their ids. Of a listing each of them is
    asked for its first `rows`, because any of them may be on the page; -1: for the rows of the page.
    """

    broker: Callable[[Services, Any], int] = lambda services, _: services.node_id
    join: Callable[[Services, Mapping[int, Any], Any], Any] | None = None
    rows: Callable[[Any], int] = lambda _: -1


def joined_rows(
    answers: Mapping[int, Any], asked: Any, key: Callable[[Any], Any], *lists: str
) -> dict[str, Any]:
    """The listings of some brokers as one, in the order of `key`. `lists` are lists of them beside `rows`."""
    rows = sorted((row for answer in answers.values() for row in answer["rows"]), key=key)
    joined = {**next(iter(answers.values()))}
    joined |= {
        "total": sum(answer["total"] for answer in answers.values()),
        "offset": asked.offset,
        "limit": asked.limit,
        "rows": rows[asked.offset : asked.offset + asked.limit],
    }
    for name in lists:
        joined[name] = [each for answer in answers.values() for each in answer[name]]
    return joined


def rows_up_to(asked: Any) -> int:
    """How many rows there are up to the last one of the page."""
    return int(asked.offset + asked.limit)


def listing(key: Callable[[Any], Any], *lists: str) -> Spread:
    """All brokers, their rows in the order of `key`; `lists` of their answers are joined too."""
    return Spread(join=lambda _, answers, asked: joined_rows(answers, asked, key, *lists), rows=rows_up_to)


OF_LEADER: Final = Spread(lambda services, asked: leader(services, asked.topic, asked.partition))
OF_GROUP: Final = Spread(lambda services, asked: coordinator(services, OFFSETS_TOPIC, asked.group_id))
OF_TRANSACTION: Final = Spread(
    lambda services, asked: coordinator(services, TRANSACTIONS_TOPIC, asked.transactional_id)
)


class ApiRoute(NamedTuple):
    """A route of the API. `path` begins with /api/v1 and names parameters in braces: only those that are
    topics or numbers, because a segment of a path cannot be `..` or hold a slash.

    `handle` gets the console, the caller and the parameters, and returns the answer. If `stream` is a
    media type, it returns an async generator of values of type `answer` (for JSON_LINES and CSV of bytes:
    whole lines), which is closed when the visitor leaves. It raises ApiError for a refusal; what the
    generator raises comes too late for a status of HTTP.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    handle: Callable[[Console, Caller, Any], Any]
    parameters: type[Parameters]
    answer: Any
    summary: str
    needs: tuple[Need, ...] = ()
    """What the caller needs for the whole request; `field` names the parameter with the resource's name. What
    only hides a part of the answer is asked of the caller in the view."""
    stream: StreamType = ""
    logged: tuple[str, ...] = ()
    """Parameters that the event of a change shows, beside those in the path. None is a secret."""
    spread: Spread | None = None
    """None: any broker knows the answer, or the answer is about one broker."""
    name: str = ""
    """What templates call the answer: the function's name, unless another is given."""

    @property
    def is_change(self) -> bool:
        """Whether it changes something: refused where `console.read.only` holds, and logged."""
        return self.method != "GET"

    @property
    def is_of_lines(self) -> bool:
        """Whether its values are bytes."""
        return self.stream in (JSON_LINES, CSV)

    @property
    def path_names(self) -> list[str]:
        return _NAME.findall(self.path)

    async def ask(self, console: Console, caller: Caller, parameters: Parameters) -> Any:
        """The answer of the brokers that `spread` names: of this broker, of another one, or of all. An asked
        broker asks no other, so there are no cycles. Raises ApiError."""
        spread, services = self.spread, console.services
        if spread is None or console.others.is_alone:
            return await self.handle(console, caller, parameters)
        if spread.join is None:
            return await self.ask_broker(spread.broker(services, parameters), console, caller, parameters)
        limit = spread.rows(parameters)
        if limit > MOST_JOINED_ROWS:
            message = f"of several brokers the first {MOST_JOINED_ROWS} rows can be shown: search for others"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        wide: Any = parameters if limit < 0 else replace(parameters, offset=0, limit=limit)
        own = await self.handle(console, caller, wide)
        answers, unanswered = await console.others.ask_all(caller, self, parameters, limit)
        joined = spread.join(services, {services.node_id: own, **answers}, parameters)
        return {**joined, "unanswered": unanswered}

    async def ask_broker(self, node_id: int, console: Console, caller: Caller, parameters: Parameters) -> Any:
        """The answer of this or another broker. Raises ApiError."""
        if node_id == console.services.node_id:
            return await self.handle(console, caller, parameters)
        return await console.others.ask(node_id, caller, self, parameters)

    async def values(self, console: Console, caller: Caller, parameters: Parameters) -> Values:
        """The values of a stream, of the broker that `spread` names. Raises ApiError."""
        node_id = console.services.node_id
        if self.spread is not None and not console.others.is_alone:
            node_id = self.spread.broker(console.services, parameters)
        return await self.values_of(node_id, console, caller, parameters)

    async def values_of(
        self, node_id: int, console: Console, caller: Caller, parameters: Parameters
    ) -> Values:
        """The values of a stream of this or another broker. Raises ApiError."""
        if node_id != console.services.node_id:
            return await console.others.stream(node_id, caller, self, parameters)
        values: Any = self.handle(console, caller, parameters)
        return await values if asyncio.iscoroutine(values) else values  # type: ignore[no-any-return]


def route(
    method: Literal["GET", "POST", "PUT", "DELETE"],
    path: str,
    *,
    needs: Right | Need | tuple[Right | Need, ...] = (),
    stream: StreamType = "",
    answer: Any = None,
    logged: tuple[str, ...] = (),
    spread: Spread | None = None,
    is_public: bool = True,
    name: str = "",
) -> Callable[[Callable[[Console, Caller, Any], Any]], ApiRoute]:
    """Make a route of the function that answers it, at once, as a coroutine, or in `Steps`.

    The function's `asked` has the type of the parameters, its result that of the answer (of a stream the
    values of the generator, unless `answer` is given), and its docstring is the summary. A single right that
    it needs is on the resource that the usual parameter names. A route that is not public is for other
    brokers only.
    """

    def declared(handle: Callable[[Console, Caller, Any], Any]) -> ApiRoute:
        hints = get_type_hints(handle, include_extras=True)
        answered = answer or (get_args(hints["return"])[0] if stream else hints["return"])
        summary = " ".join((handle.__doc__ or "").split())
        parameters, called = hints["asked"], name or handle.__name__
        if get_origin(answered) is Generator:
            answered, handle = get_args(answered)[2], partial(_in_steps, handle)
        address = f"{API}{path}" if is_public else path
        needed = tuple(map(_need, (needs,) if isinstance(needs, Right | Need) else needs))
        if logged == ALL:
            shown = tuple(each for each in parameters.__struct_fields__ if f"{{{each}}}" not in path)
        else:
            shown = logged
        return ApiRoute(
            method, address, handle, parameters, answered, summary, needed, stream, shown, spread, called
        )

    return declared


def _need(need: Right | Need) -> Need:
    return rights.whole(need, field=_FIELDS[need.resource_type]) if isinstance(need, Right) else need


async def _in_steps(steps: Callable[..., Any], console: Console, caller: Caller, asked: Parameters) -> Any:
    return await console.services.turns.run(steps(console, caller, asked))


class Page(NamedTuple):
    """A page: `template` with the answers of `sources`, each by its name; `path` begins with /console.

    The parameters of the path and the query go to each source that has them, `offset` and `limit` to the
    first list. A page directly below /console that has no gaps is in the navigation where `is_shown`.
    """

    path: str
    title: str
    template: str
    sources: Sequence[ApiRoute]
    has_gaps: bool
    """Whether what the visitor may not see is left out (None), instead of the page."""
    is_shown: Callable[[Console], bool]

    @property
    def is_in_navigation(self) -> bool:
        return "/" not in self.path.removeprefix(f"{PAGES_PATH}/") and not self.has_gaps


def pattern_of(path: str) -> re.Pattern[str]:
    """What matches the raw path of a request for `path`, with a group for each parameter."""
    return re.compile(_NAME.sub(r"(?P<\1>[^/]+)", path))
