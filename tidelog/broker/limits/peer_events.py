"""Logs the events that peers cause, as many as `event_throttle` admits, and how many were not logged.

Owns the window's timer and the maximum length of a logged field. Every event that a request or a connection
can cause is logged here, except those that each cost a write to the disk (`topic_created`).

Invariant: the number of events that were not logged is logged when their window ends or at `close`.
"""

import asyncio
from typing import Any

import structlog

from tidelog.broker.limits.event_throttle import WINDOW_SECONDS, EventThrottle

logger = structlog.get_logger(__name__)

_MOST_CHARACTERS = 300
"""Maximum length of one field: a client id may have 32,767 characters."""


class PeerEvents:
    """The events of one broker. Event loop only."""

    def __init__(self) -> None:
        self._throttle = EventThrottle()
        self._timer: asyncio.TimerHandle | None = None

    def info(self, event: str, host: str, **fields: Any) -> None:
        """`host` is the peer's, by which events are counted; it is logged only if `fields` name it."""
        if self._admit(event, host):
            logger.info(event, **_shortened(fields))

    def warning(self, event: str, host: str, **fields: Any) -> None:
        if self._admit(event, host):
            logger.warning(event, **_shortened(fields))

    def error(self, event: str, host: str, **fields: Any) -> None:
        if self._admit(event, host):
            logger.error(event, **_shortened(fields))

    def close(self) -> None:
        """Log how many events were not logged so far."""
        if self._timer is not None:
            self._timer.cancel()
        self._end_window()

    def _admit(self, event: str, host: str) -> bool:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW_SECONDS, self._end_window)
        return self._throttle.admit(event, host)

    def _end_window(self) -> None:
        self._timer = None
        for held in self._throttle.end_window():
            logger.warning(
                "events_held_back",
                of=held.event,
                peer=held.peer,
                events=held.events,
                window_seconds=WINDOW_SECONDS,
            )


def _shortened(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: _short(value) if isinstance(value, str) else value for name, value in fields.items()}


def _short(text: str) -> str:
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:_MOST_CHARACTERS]}… ({len(text)} characters)"
