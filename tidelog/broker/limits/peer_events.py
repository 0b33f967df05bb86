"""Logs the events that peers cause, and how many were not logged, so that no peer can fill the log.

Owns the counts of one window of time, and the maximum length of a logged field. Every event that a request or
a connection can cause is logged here, except those that each cost a write to the disk (`topic_created`).

Invariants: per window, at most `EVENTS_PER_PEER` events are logged for each pair of kind and peer; at most
`MAX_PEERS` such pairs are counted separately, and all further peers of a kind share one pair, so memory and
log are bounded for any number of peers; the number of events that were not logged is logged when their window
ends or at `close`.
"""

import asyncio
from typing import Any

import structlog

logger = structlog.get_logger(__name__)

WINDOW_SECONDS = 60.0
EVENTS_PER_PEER = 10
MAX_PEERS = 100
OTHER_PEERS = "others"
_MOST_CHARACTERS = 300
"""Maximum length of one field: a client id may have 32,767 characters."""


class PeerEvents:
    """The events of one broker. Event loop only."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
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
        """Whether an event of this kind, caused by this host (ports are new each time), is logged."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW_SECONDS, self._end_window)
        key = (event, host)
        if key not in self._counts and len(self._counts) >= MAX_PEERS:
            key = (event, OTHER_PEERS)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        return count <= EVENTS_PER_PEER

    def _end_window(self) -> None:
        self._timer = None
        counts, self._counts = self._counts, {}
        for (event, peer), count in counts.items():
            if (events := count - EVENTS_PER_PEER) > 0:
                what = {"of": event, "peer": peer, "events": events}
                logger.warning("events_held_back", **what, window_seconds=WINDOW_SECONDS)


def _shortened(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: _short(value) if isinstance(value, str) else value for name, value in fields.items()}


def _short(text: str) -> str:
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:_MOST_CHARACTERS]}… ({len(text)} characters)"
