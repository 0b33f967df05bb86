"""How often batches of each producer were recognised as duplicates, and refused, on each partition.

Owns these counts since the start, of the `most` producers and partitions to which it happened last. A client
chooses the ids in its batches, so what is kept is bounded. Invariants: a batch that is stored costs nothing
here; counts of a deleted topic are not those of a new topic with its name.

Event loop only.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.types import NO_TIMESTAMP

MOST_PRODUCERS: Final = 4_096
"""About 4 MB if each was refused with each code."""
_LONGEST_MESSAGE: Final = 300


class Place(NamedTuple):
    """A partition, by the id of its topic."""

    topic_id: UUID
    partition: int


class Refused(NamedTuple):
    """Refused batches of one code; the epoch, the time and the message are those of the last one."""

    batches: int
    producer_epoch: int
    last_ms: int
    message: str


class ProducerOutcome:
    """What happened to the batches of one producer on one partition that were not stored."""

    __slots__ = ("below_window", "in_window", "last_duplicate_ms", "refused")

    def __init__(self) -> None:
        self.in_window = 0
        """Duplicates of one of the last five batches."""
        self.below_window = 0
        """Older duplicates."""
        self.last_duplicate_ms: int = NO_TIMESTAMP
        self.refused: dict[ErrorCode, Refused] = {}


class ProducerOutcomes:
    """Counts the duplicates and refusals of producers at one broker."""

    def __init__(self, most: int = MOST_PRODUCERS) -> None:
        self._most = most
        self._held: OrderedDict[tuple[Place, int], ProducerOutcome] = OrderedDict()

    def duplicate(self, place: Place, producer_id: int, now_ms: int, *, in_window: bool) -> None:
        """A batch was recognised: it is stored already."""
        outcome = self._of(place, producer_id)
        outcome.in_window += in_window
        outcome.below_window += not in_window
        outcome.last_duplicate_ms = now_ms

    def refused(
        self, place: Place, producer_id: int, producer_epoch: int, code: ErrorCode, message: str, now_ms: int
    ) -> None:
        """A batch was refused with this code."""
        refused = self._of(place, producer_id).refused
        batches = refused[code].batches + 1 if code in refused else 1
        refused[code] = Refused(batches, producer_epoch, now_ms, message[:_LONGEST_MESSAGE])

    def get(self, place: Place, producer_id: int) -> ProducerOutcome | None:
        """None if nothing is known to have happened."""
        return self._held.get((place, producer_id))

    def latest(self) -> Iterator[tuple[Place, int, ProducerOutcome]]:
        """(partition, producer id, outcome), the latest first. Change nothing meanwhile."""
        return ((*key, outcome) for key, outcome in reversed(self._held.items()))

    def _of(self, place: Place, producer_id: int) -> ProducerOutcome:
        key = place, producer_id
        outcome = self._held.get(key)
        if outcome is None:
            outcome = self._held[key] = ProducerOutcome()
            if len(self._held) > self._most:
                self._held.popitem(last=False)
        else:
            self._held.move_to_end(key)
        return outcome
