"""The way to the console on the HTTP port, which loads it with its first visitor.

Owns the paths that are the console's. Invariant: before a request for one of them nothing of the console is
imported; the import is in a thread, while the visitor waits and the loop goes on.

Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from aiohttp import web


class Site(Protocol):
    """What answers below those paths."""

    async def answer(self, request: web.Request) -> web.StreamResponse: ...

    def stop(self) -> None: ...


API: Final = "/api/v1"
PAGES_PATH: Final = "/console"
STATIC_PATH: Final = "/console/static/"
USER_OF_REQUEST: Final = "user"
"""Where a request has the name of its user, if the port asks for one."""


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
        for path in ("/", PAGES_PATH, f"{PAGES_PATH}/{{rest:.*}}", API, f"{API}/{{rest:.*}}"):
            application.router.add_route("*", path, self.answer)
        application.on_shutdown.append(self._stop)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self._site is None:
            if self._loading is None:
                self._loading = asyncio.get_running_loop().run_in_executor(None, self._load)
            make = await asyncio.shield(self._loading)
            self._site = self._site or make()
        return await self._site.answer(request)

    async def _stop(self, _: web.Application) -> None:
        if self._site is not None:
            self._site.stop()
