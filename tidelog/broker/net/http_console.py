"""The paths of the console on the HTTP port, which imports it with its first visitor.

Owns the paths that are the console's, and the headers of all its answers. Invariants: no answer lets a
browser run or load files of others; before a request for one of the paths the console is not imported; the
import is in a thread, while the visitor waits and the loop continues.

Event loop only. Source: W3C's Content Security Policy 3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from aiohttp import web

    from tidelog.protocol import message_types as types
    from tidelog.protocol.messages.declaration import DictOf


_REST: Final = r"{rest:[\s\S]*}"
"""A dot would not match a newline."""


class Site(Protocol):
    """Answers requests below the console's paths."""

    async def answer(self, request: web.Request) -> web.StreamResponse: ...

    async def answer_peer(
        self, request: types.AskConsoleRequest, asked_by: str
    ) -> DictOf[types.AskConsoleResponse]: ...

    def stop(self) -> None: ...


API: Final = "/api/v1"
PAGES_PATH: Final = "/console"
STATIC_PATH: Final = "/console/static/"
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # With no-referrer, browsers send "Origin: null" with our own forms too.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
NO_STORE: Final[Mapping[str, str]] = {"Cache-Control": "no-store"}
"""For what depends on who asks: no cache keeps it, and none is shown after the user signed out."""
SIGN_IN_PATH: Final = "/console/sign-in"
SIGN_OUT_PATH: Final = "/console/sign-out"


class Known(NamedTuple):
    """Who asks, where the port wants to know: found by `http_authentication`, kept by the connection."""

    user: str
    has_session: bool
    """Whether the user signed in on a page."""
    is_still: Callable[[], bool]
    """Whether what the user showed still counts."""


def is_of_console(path: str) -> bool:
    """Whether a path belongs to the console, also one that does not exist."""
    return path == "/" or any(path == each or path.startswith(f"{each}/") for each in (API, PAGES_PATH))


class ConsoleRoutes:
    """The paths of one broker's console."""

    def __init__(self, load: Callable[[], Callable[[], Site]]) -> None:
        """`load` imports the console, in a thread, and gives what makes it, on the loop."""
        self._load = load
        self._site: Site | None = None
        self._loading: asyncio.Future[Callable[[], Site]] | None = None

    def add_to(self, application: web.Application) -> None:
        for path in ("/", PAGES_PATH, f"{PAGES_PATH}/{_REST}", API, f"{API}/{_REST}"):
            application.router.add_route("*", path, self.answer)
        application.on_shutdown.append(self._stop)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        return await (await self._loaded()).answer(request)

    async def answer_peer(
        self, request: types.AskConsoleRequest, asked_by: str
    ) -> DictOf[types.AskConsoleResponse]:
        """The answer to another broker of the cluster, whose principal is `asked_by`."""
        return await (await self._loaded()).answer_peer(request, asked_by)

    async def _loaded(self) -> Site:
        if self._site is None:
            if self._loading is None:
                self._loading = asyncio.get_running_loop().run_in_executor(None, self._load)
            make = await asyncio.shield(self._loading)
            self._site = self._site or make()
        return self._site

    def stop(self) -> None:
        """End what is in progress, such as streams."""
        if self._site is not None:
            self._site.stop()

    async def _stop(self, _: web.Application) -> None:
        self.stop()
