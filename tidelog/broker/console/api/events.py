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
from tidelog.broker.console.route import EVENT_STREAM, Console, Page, Parameters, route
from tidelog.broker.observability.log_events import recent
from tidelog.broker.security.required_access import ALTER_CLUSTER, whole


class LogEvent(TypedDict):
    """An event of the log."""

    number: int
    """Counts the events of this process."""
    timestamp: str
    level: str
    event: str
    """The name, such as partition_offline."""
    fields: dict[str, str]


def last_events(after: int = 0) -> list[LogEvent]:
    """Those with a number above `after`, newest first."""
    rows: list[LogEvent] = []
    for number, event in reversed(recent()):
        if number <= after:
            break
        fields = dict(event)
        timestamp, level, name = (fields.pop(each, "") for each in ("timestamp", "level", "event"))
        rows.append(
            {"number": number, "timestamp": timestamp, "level": level, "event": name, "fields": fields}
        )
    return rows


_NEEDS: Final = whole(ALTER_CLUSTER)


class Asked(Parameters, frozen=True, kw_only=True):
    """Which events are shown."""

    after: Annotated[int, Meta(ge=0, description="Only events with a larger number.")] = 0


class LogEvents(TypedDict):
    """The last events of the log, newest first."""

    rows: list[LogEvent]


@route("GET", "/log", needs=_NEEDS)
async def _last(console: Console, caller: Caller, asked: Asked) -> LogEvents:
    """The last events of the broker's log."""
    return {"rows": last_events(asked.after)}


@route("GET", "/events/log", needs=_NEEDS, stream=EVENT_STREAM)
async def _live(console: Console, caller: Caller, asked: Asked) -> AsyncGenerator[LogEvents, None]:
    """New events of the log."""
    after = asked.after
    while True:
        if rows := last_events(after):
            after = rows[0]["number"]
            yield {"rows": rows}
        await asyncio.sleep(LOOK_SECONDS)


PAGES: Final[Sequence[Page]] = ()
