"""The last events of the broker's log, also live.

Owns the routes. Events name topics, groups and users of everybody, so only those see them who may let
themselves see everything: who may alter the cluster may create ACLs.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, TypedDict

from msgspec import Meta

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.live import LOOK_SECONDS
from tidelog.broker.console.route import EVENT_STREAM, Console, route
from tidelog.broker.console.shapes import Parameters, row_of
from tidelog.broker.observability.log_events import recent
from tidelog.broker.security.required_access import ALTER_CLUSTER


class LogEvent(TypedDict):
    """An event of the log."""

    number: int
    """Counts the events of this process."""
    timestamp: str
    level: str
    event: str
    """The name, such as partition_offline."""
    fields: dict[str, str]


class LogEvents(TypedDict):
    rows: list[LogEvent]


def last_events(after: int = 0) -> list[LogEvent]:
    """Those with a number above `after`, newest first."""
    heads = ("timestamp", "level", "event")
    return [
        row_of(
            LogEvent,
            {name: event.get(name, "") for name in heads},
            number=number,
            fields={name: text for name, text in event.items() if name not in heads},
        )
        for number, event in reversed(recent())
        if number > after
    ]


class Asked(Parameters, frozen=True, kw_only=True):
    after: Annotated[int, Meta(ge=0, description="Only events with a larger number.")] = 0


@route("GET", "/log", needs=ALTER_CLUSTER)
async def _last(console: Console, caller: Caller, asked: Asked) -> LogEvents:
    """The last events of the broker's log, newest first."""
    return {"rows": last_events(asked.after)}


@route("GET", "/events/log", needs=ALTER_CLUSTER, stream=EVENT_STREAM)
async def _live(console: Console, caller: Caller, asked: Asked) -> AsyncGenerator[LogEvents, None]:
    """New events of the log."""
    after = asked.after
    while True:
        if rows := last_events(after):
            after = rows[0]["number"]
            yield {"rows": rows}
        await asyncio.sleep(LOOK_SECONDS)
