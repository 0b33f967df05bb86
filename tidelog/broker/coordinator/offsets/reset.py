"""Where committed offsets are reset to: the rule for the console and for `tidelog group reset-offsets`.

Invariant: a new offset lies within its log; one outside is moved to the nearest one inside.

Pure. Source: kafka-consumer-groups --reset-offsets (KIP-122).
"""

from enum import StrEnum
from typing import NamedTuple


class ResetTo(StrEnum):
    """What an offset is reset to."""

    EARLIEST = "earliest"
    """The first record."""
    LATEST = "latest"
    """The end of the log."""
    OFFSET = "offset"
    """An offset."""
    TIMESTAMP = "timestamp"
    """The first record that is not older than a time, in milliseconds since 1970."""
    SHIFT = "shift"
    """A number of offsets from the committed one, negative to move back."""


class PartitionFacts(NamedTuple):
    """What the new offset of one partition depends on."""

    start_offset: int
    end_offset: int
    committed: int | None
    """None: the group committed nothing there."""
    at_timestamp: int | None = None
    """The first offset that is not older than the wanted time; None: all records are older."""


class Reset(NamedTuple):
    """The request of an operator. `value` is the offset, the time or the shift; the others have none."""

    to: ResetTo
    value: int = 0

    def new_offset(self, facts: PartitionFacts) -> int | None:
        """None if a shift has nothing to begin from."""
        if self.to is ResetTo.EARLIEST:
            wanted = facts.start_offset
        elif self.to is ResetTo.LATEST:
            wanted = facts.end_offset
        elif self.to is ResetTo.OFFSET:
            wanted = self.value
        elif self.to is ResetTo.TIMESTAMP:
            wanted = facts.end_offset if facts.at_timestamp is None else facts.at_timestamp
        elif facts.committed is None:
            return None
        else:
            wanted = facts.committed + self.value
        return min(max(wanted, facts.start_offset), facts.end_offset)
