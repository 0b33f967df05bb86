"""Decides how many of the events that peers cause are logged, so that no peer can fill the log.

Owns the counts of one window of time. Pure: the caller knows the time and writes the events.

Invariants: per window, at most `EVENTS_PER_PEER` events are admitted for each pair of kind and peer; at most
`MAX_PEERS` such pairs are counted separately, and all further peers of a kind share one pair, so memory and
log are bounded for any number of peers; every event that is not logged is counted.
"""

from typing import NamedTuple

WINDOW_SECONDS = 60.0
EVENTS_PER_PEER = 10
MAX_PEERS = 100
OTHER_PEERS = "others"


class HeldBack(NamedTuple):
    """How many events of one kind and peer were not logged."""

    event: str
    peer: str
    events: int


class EventThrottle:
    """The counts of the current window."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def admit(self, event: str, peer: str) -> bool:
        """Whether an event of this kind, caused by `peer` (a host: ports are new each time), is logged."""
        key = (event, peer)
        if key not in self._counts and len(self._counts) >= MAX_PEERS:
            key = (event, OTHER_PEERS)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        return count <= EVENTS_PER_PEER

    def end_window(self) -> list[HeldBack]:
        """End the window and begin a new one; returns what was not logged."""
        counts, self._counts = self._counts, {}
        return [
            HeldBack(event, peer, count - EVENTS_PER_PEER)
            for (event, peer), count in counts.items()
            if count > EVENTS_PER_PEER
        ]
