"""A segment as the readers of a log know it, wherever its bytes are kept.

Owns the interface. `LocalSegment`, of files on this broker's disk, implements it; recovery, compaction and
writers use that class itself.

Invariants of each implementation: batches are whole, and ascend from `base_offset`; damaged ones are not
given to a reader. All is safe in any thread. With `nowait` a call never waits: one that cannot answer at once
raises ColdRead, and the caller repeats it in a thread, without `nowait`. There it may wait for a disk or for
a network; what fails is an OSError, and damage is CorruptSegmentError. `batches` and `read_batch` may wait.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from tidelog.broker.storage.log_types import Read
from tidelog.protocol.types import NO_TIMESTAMP


class Place(NamedTuple):
    """The position of a batch, and the header fields that readers of a segment need."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    """As `largest_timestamp` takes it from the header; -1 where no record has one."""

    @property
    def end(self) -> int:
        return self.position + self.size_bytes


class Slice(NamedTuple):
    """Whole batches from a segment; `next_offset` is the first offset after them, `end` their end."""

    data: memoryview
    next_offset: int
    end: int


class AbortedTransactions(Protocol):
    """Finds the aborted transactions whose markers lie in one segment."""

    @property
    def count(self) -> int: ...

    def aborted(
        self, offset: int, upper_offset: int, *, nowait: bool = False
    ) -> tuple[list[tuple[int, int]], bool]:
        """(producer id, first offset) of those that have records in `offset` to `upper_offset`, and whether
        no later segment can have one."""
        ...


class Segment(Protocol):
    """The records of a log from `base_offset` on and before `end_offset`."""

    @property
    def base_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp; -1 where no record has one."""
        ...

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the first batch that has it."""
        ...

    @property
    def transaction_index(self) -> AbortedTransactions: ...

    def read(self, wanted: Read, start: int | None = None) -> Slice | None:
        """Whole batches from the one that holds `wanted.offset`; None if not one qualifies.

        `start` is the position of the batch that begins at this offset, where the caller knows it: the `end`
        of an earlier Slice.
        """
        ...

    def batches(self, offset: int, timestamp_ms: int = NO_TIMESTAMP) -> Iterator[Place]:
        """From the one that holds `offset`; may leave out those before the first record that has at least
        this timestamp."""
        ...

    def read_batch(self, place: Place) -> memoryview:
        """The bytes of one of `batches`."""
        ...
