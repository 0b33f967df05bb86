"""The batches of a log that a share group may get, and the bytes of those of which a member got records.

Owns which batches have records to deliver: none of markers, and with read_committed none of aborted
transactions. Records are not decoded.

Pure. Source: Kafka's SharePartition (filterAbortedTransactionalAcquiredRecords).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from tidelog.broker.storage.log_types import ReadResult
from tidelog.protocol.records import AbortedTransactions, iter_batches
from tidelog.protocol.types import Buffer


class _Place(NamedTuple):
    """Where a batch lies in what was read."""

    first: int
    last: int
    stretch: int
    position: int
    size_bytes: int


class Batches(NamedTuple):
    """What was read, [read_from, read_to). `places`: the batches with records, ascending."""

    read_from: int
    read_to: int
    places: Sequence[_Place]
    stretches: Sequence[Buffer]
    reads_committed: bool

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.stretches))

    @property
    def bytes_per_offset(self) -> int:
        """The average, rounded up."""
        return -(-self.size_bytes // max(1, self.read_to - self.read_from))

    def part(self, offset: int, max_bytes: int) -> Batches:
        """From `offset` on, and no more than so many bytes, but one batch at least."""
        low = bisect_left(self.places, offset, key=_last)
        part = self._replace(read_from=offset, places=self.places[low:])
        if self.size_bytes > max_bytes:
            for count, total in enumerate(accumulate(place.size_bytes for place in part.places)):
                if count and total > max_bytes:
                    return part._replace(read_to=part.places[count].first, places=part.places[:count])
        return part

    def holding(self, first: int, last: int) -> Sequence[Buffer]:
        """The whole batches with records of [first, last]. Less than half of what was read is copied: an
        answer that its client does not take must not keep the rest in memory."""
        found: list[Buffer] = []
        stretch, begin, end = -1, 0, 0
        for index in range(bisect_left(self.places, first, key=_last), len(self.places)):
            place = self.places[index]
            if place.first > last:
                break
            if (place.stretch, place.position) != (stretch, end):
                if begin < end:
                    found.append(memoryview(self.stretches[stretch])[begin:end])
                stretch, begin = place.stretch, place.position
            end = place.position + place.size_bytes
        if begin < end:
            found.append(memoryview(self.stretches[stretch])[begin:end])
        if found and 2 * sum(map(len, found)) < self.size_bytes:
            return [b"".join(found)]
        return found


def _last(place: _Place) -> int:
    return place.last


def batches_in(
    read_from: int, found: ReadResult, aborted: Sequence[tuple[int, int]], *, reads_committed: bool
) -> Batches:
    """`aborted`: producer id and first offset of each aborted transaction that is to be left out."""
    places: list[_Place] = []
    hidden = AbortedTransactions(aborted)
    for index, stretch in enumerate(found.records):
        for position, header in iter_batches(stretch):
            if hidden.hides(stretch, position, header) or header.is_control:
                continue
            places.append(_Place(header.base_offset, header.last_offset, index, position, header.size_bytes))
    return Batches(read_from, found.next_offset, places, found.records, reads_committed)
