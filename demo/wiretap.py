"""Counts record batches on the network between the producer and the broker.

Owns what "sent again" means in the demo: a batch with the same bytes that was sent to the broker before.
"""

from typing import NamedTuple

from faults.link import Request
from tidelog.protocol.framing import decode_request_header
from tidelog.protocol.hot import decode_produce_request
from tidelog.protocol.records import iter_batches
from tidelog.protocol.schema import ApiKey


class Batch(NamedTuple):
    """What identifies a batch on the wire."""

    topic: str
    partition: int
    crc: int
    base_timestamp: int
    base_sequence: int
    record_count: int


def batches_in(request: Request) -> list[Batch]:
    """The record batches of a Produce request; none for any other."""
    if request.api_key != ApiKey.PRODUCE:
        return []
    frame = memoryview(request.frame)
    header, body = decode_request_header(frame)
    produce = decode_produce_request(header.api_version, frame[body:])
    return [
        Batch(topic, partition, each.crc, each.base_timestamp, each.base_sequence, each.record_count)
        for topic, partitions in produce.topics
        for partition, records in partitions
        if records is not None
        for _, each in iter_batches(records)
    ]


class Wiretap:
    """`batches` counts distinct batches; `sent_again` counts every further time that one of them was sent."""

    def __init__(self) -> None:
        self.sent_again = 0
        self._seen: set[Batch] = set()

    @property
    def batches(self) -> int:
        return len(self._seen)

    def __call__(self, request: Request) -> None:
        for batch in batches_in(request):
            if batch in self._seen:
                self.sent_again += 1
            self._seen.add(batch)
