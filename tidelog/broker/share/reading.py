"""The batches of a log that a share group may get, and the bytes of those of which a member got records.

Owns which batches have records to deliver: none of markers, and with read_committed none of aborted
transactions. Records are not decoded.

Pure. Source: Kafka's SharePartition (filterAbortedTransactionalAcquiredRecords).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.broker.storage.log_types import ReadResult
from tidelog.protocol.records import iter_batches, read_marker
from tidelog.protocol.types import Buffer


class _Place(NamedTuple):
    """Where a batch lies in what was read."""

    first: int
    last: int
    stretch: int
    position: int
    size_bytes: int


class Batches(NamedTuple):
    """What was read, [read_from, read_to). `batches`: first and last offset of each with records."""

    read_from: int
    read_to: int
    batches: Sequence[tuple[int, int]]
    places: Sequence[_Place]
    stretches: Sequence[Buffer]

    @property
    def bytes_per_offset(self) -> int:
        """The average, rounded up."""
        return -(-sum(map(len, self.stretches)) // max(1, self.read_to - self.read_from))

    def holding(self, first: int, last: int) -> bytes:
        """The whole batches with records of [first, last], and what lies between them."""
        found = [place for place in self.places if place.first <= last and place.last >= first]
        return b"".join(
            self.stretches[place.stretch][place.position : place.position + place.size_bytes]
            for place in found
        )


def batches_in(read_from: int, found: ReadResult, aborted: Sequence[tuple[int, int]]) -> Batches:
    """`aborted`: producer id and first offset of each aborted transaction that is to be left out."""
    batches: list[tuple[int, int]] = []
    places: list[_Place] = []
    waiting = sorted(aborted, key=lambda each: each[1], reverse=True)
    open_ids: set[int] = set()
    for index, stretch in enumerate(found.records):
        for position, header in iter_batches(stretch):
            first, last = header.base_offset, header.last_offset
            while waiting and waiting[-1][1] <= last:
                open_ids.add(waiting.pop()[0])
            if header.is_control:
                if header.producer_id in open_ids and not read_marker(stretch, position).is_commit:
                    open_ids.discard(header.producer_id)
                continue
            if header.is_transactional and header.producer_id in open_ids:
                continue
            batches.append((first, last))
            places.append(_Place(first, last, index, position, header.size_bytes))
    return Batches(read_from, found.next_offset, batches, places, found.records)
