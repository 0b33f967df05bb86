"""How many of the events that peers cause are logged: nobody fills the log by what he sends.

Owns the counts of one window of time. Pure: who calls knows the time and writes the events.

Invariants: of each kind of event and peer at most `EVENTS_PER_PEER` are admitted in a window; at most
`MAX_PEERS` pairs of kind and peer are told apart, all others of a kind share one pair, so memory and log are
bounded however many peers come; no event is dropped without being counted.
"""

from typing import NamedTuple

WINDOW_SECONDS = 60.0
EVENTS_PER_PEER = 10
MAX_PEERS = 100
OTHER_PEERS = "others"


class HeldBack(NamedTuple):
    """So many events of one kind and peer that were not logged."""

    event: str
    peer: str
    events: int


class EventThrottle:
    """The counts of the window that is open."""

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
        """What the window held back; a new one begins."""
        counts, self._counts = self._counts, {}
        return [
            HeldBack(event, peer, count - EVENTS_PER_PEER)
            for (event, peer), count in counts.items()
            if count > EVENTS_PER_PEER
        ]
