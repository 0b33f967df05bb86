"""The last events of the broker's log.

Owns nothing; the log keeps a bounded part of them.
"""

from __future__ import annotations

from typing import TypedDict

from tidelog.broker.observability.log_events import recent


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
