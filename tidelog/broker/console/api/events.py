"""The last events of the broker's log, also live.

Owns the routes. Events name topics, groups and users of everybody, so only those see them who may let
themselves see everything: who may alter the cluster may create ACLs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Final, TypedDict

from msgspec import Meta

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.live import LOOK_SECONDS
from tidelog.broker.console.route import EVENT_STREAM, ApiRoute, Console, Page, Parameters
from tidelog.broker.console.views.events import LogEvent, last_events
from tidelog.broker.security.required_access import ALTER_CLUSTER, whole


class Asked(Parameters, frozen=True, kw_only=True):
    """Which events."""

    after: Annotated[int, Meta(ge=0, description="Only events with a larger number.")] = 0


class LogEvents(TypedDict):
    """The last events of the log, newest first."""

    rows: list[LogEvent]


async def _last(console: Console, caller: Caller, asked: Asked) -> LogEvents:
    return {"rows": last_events(asked.after)}


async def _live(console: Console, caller: Caller, asked: Asked) -> AsyncGenerator[LogEvents, None]:
    after = asked.after
    while True:
        if rows := last_events(after):
            after = rows[0]["number"]
            yield {"rows": rows}
        await asyncio.sleep(LOOK_SECONDS)


_NEEDS: Final = (whole(ALTER_CLUSTER),)
LOG_EVENTS: Final = ApiRoute(
    "GET", "/api/v1/log", _last, Asked, LogEvents, "The last events of the broker's log.", _NEEDS
)

ROUTES: Final[Sequence[ApiRoute]] = (
    LOG_EVENTS,
    ApiRoute(
        "GET", "/api/v1/events/log", _live, Asked, LogEvents, "New events of the log.", _NEEDS, EVENT_STREAM
    ),
)
PAGES: Final[Sequence[Page]] = ()
