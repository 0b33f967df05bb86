"""What a route of the API and a page are.

Owns the declarations. A route declares its parameters (a `Parameters`), the type of its answer, the
permission of its caller and the function that answers; checks, documentation and the tests of all routes
follow from that. A page shows what routes answer, so it needs what they need.

Invariant: the parameters of a route are in its path where that names them; the others are in the query of a
GET, else in the JSON object of the body.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import Meta, Struct

from tidelog.broker.console.others import Others
from tidelog.broker.console.spread import Spread
from tidelog.broker.console.views.clients import RequestRates
from tidelog.broker.console.views.condition import Conditions
from tidelog.broker.console.views.records import Records
from tidelog.broker.net.http_console import API, PAGES_PATH
from tidelog.broker.observability.history import History
from tidelog.broker.security.required_access import Need

if TYPE_CHECKING:
    from tidelog.broker.console.caller import Caller
    from tidelog.broker.fault_injection.injection import FaultInjector
    from tidelog.broker.net.server import Server
    from tidelog.broker.services import Services

MOST_ROWS: Final = 500
EVENT_STREAM: Final = "text/event-stream"
JSON_LINES: Final = "application/x-ndjson"
CSV: Final = "text/csv"
StreamType = Literal["", "text/event-stream", "application/x-ndjson", "text/csv"]
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


class Parameters(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of a route: each field with its type, its bounds (`Annotated[int, Meta(ge=0)]`) and its
    default. Texts of a query become numbers and booleans; an empty text in a query counts as absent.
    """


class Listing(Parameters, frozen=True, kw_only=True):
    """The parameters of a list. Its answer has `total`, and `rows` from number `offset` on."""

    offset: Annotated[int, Meta(ge=0, le=2**31 - 1, description="Number of the first row.")] = 0
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS, description="Most rows.")] = 50


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


def route(
    method: Literal["GET", "POST", "PUT", "DELETE"],
    path: str,
    *,
    needs: Need | tuple[Need, ...] = (),
    stream: StreamType = "",
    answer: Any = None,
    logged: tuple[str, ...] = (),
    spread: Spread | None = None,
    is_public: bool = True,
) -> Callable[[Callable[[Console, Caller, Any], Any]], ApiRoute]:
    """Make a route of the function that answers it, at once, as a coroutine, or in `Steps`.

    The function's `asked` has the type of the parameters, its result that of the answer (of a stream the
    values of the generator, unless `answer` is given), and its docstring is the summary. A route that is not
    public is for other brokers only.
    """

    def declared(handle: Callable[[Console, Caller, Any], Any]) -> ApiRoute:
        hints = get_type_hints(handle, include_extras=True)
        answered = answer or (get_args(hints["return"])[0] if stream else hints["return"])
        summary = " ".join((handle.__doc__ or "").split())
        parameters = hints["asked"]
        if get_origin(answered) is Generator:
            answered, handle = get_args(answered)[2], partial(_in_steps, handle)
        address = f"{API}{path}" if is_public else path
        needed = (needs,) if isinstance(needs, Need) else needs
        return ApiRoute(
            method, address, handle, parameters, answered, summary, needed, stream, logged, spread
        )

    return declared


async def _in_steps(steps: Callable[..., Any], console: Console, caller: Caller, asked: Parameters) -> Any:
    return await console.services.turns.run(steps(console, caller, asked))


class Page(NamedTuple):
    """A page: `template` with the answers of `sources`, each by its name; `path` begins with /console.

    The parameters of the path and the query go to each source that has them. A page is in the navigation
    where `is_shown`, unless its path has parameters, or it is the detail of another page.
    """

    path: str
    title: str
    template: str
    sources: Mapping[str, ApiRoute]
    is_detail: bool = False
    has_gaps: bool = False
    """Whether what the visitor may not see is left out (None), instead of the page."""
    is_shown: Callable[[Console], bool] = lambda _: True

    @property
    def is_in_navigation(self) -> bool:
        return "{" not in self.path and not self.is_detail


def page(
    path: str,
    title: str,
    template: str,
    *,
    is_detail: bool = False,
    has_gaps: bool = False,
    is_shown: Callable[[Console], bool] = lambda _: True,
    **sources: ApiRoute,
) -> Page:
    """The page at `path` below /console, of the file `template` without its suffix."""
    return Page(f"{PAGES_PATH}{path}", title, f"{template}.html", sources, is_detail, has_gaps, is_shown)


def pattern_of(path: str) -> re.Pattern[str]:
    """What matches the raw path of a request for `path`, with a group for each parameter."""
    return re.compile(_NAME.sub(r"(?P<\1>[^/]+)", path))
