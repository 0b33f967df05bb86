"""Converts what a broker answered to ShareFetch into records.

Owns: which of the records in the answer's batches this consumer acquired: a broker sends whole batches.
Invariants: each acquired offset is a record, a gap or damaged. Deserializers are not applied here.

Pure. Source: Kafka's ShareCompletedFetch.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from tidelog.client.consumer.conversion import fields, part
from tidelog.client.share.held import HeldPartition
from tidelog.client.share.records import ShareRecord
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.records import decode_batch_columns, iter_batches


class AcquiredRange(NamedTuple):
    """Offsets that a consumer acquired together; `last_offset` is one of them."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Decoded(NamedTuple):
    """What an answer has of one partition: records, offsets that hold none, and offsets of damaged batches
    with the error."""

    records: list[ShareRecord]
    gaps: list[int]
    damaged: list[int]
    error: ProtocolError | None


def decoded(
    holder: HeldPartition, data: bytes, acquired: Sequence[AcquiredRange], *, check_crc: bool
) -> Decoded:
    """The acquired records in the batches of `data`, in the order of their offsets."""
    records: list[ShareRecord] = []
    damaged: list[int] = []
    found: ProtocolError | None = None
    is_cut = False
    try:
        for at, header in iter_batches(data):
            last = header.base_offset + header.last_offset_delta
            ranges = [each for each in acquired if each[0] <= last and each[1] >= header.base_offset]
            if header.is_control or not ranges:
                continue
            try:
                columns = decode_batch_columns(data, at, header=header, check_crc=check_crc)
            except ProtocolError as error:
                found = error
                for each in ranges:
                    damaged += range(max(each[0], header.base_offset), min(each[1], last) + 1)
                continue
            offsets = columns.offsets
            for first_offset, last_offset, count in ranges:
                first, end = bisect_left(offsets, first_offset), bisect_right(offsets, last_offset)
                mine = part(columns, first, end)
                found_fields = fields(holder.key, mine, header.partition_leader_epoch, count, holder)
                records += map(tuple.__new__, repeat(ShareRecord), found_fields)
    except ProtocolError as error:
        found, is_cut = error, True
    known = {record.offset for record in records}.union(damaged)
    missing = [
        offset for first, last, _ in acquired for offset in range(first, last + 1) if offset not in known
    ]
    if is_cut:
        # Whether they are gaps cannot be told.
        damaged, missing = damaged + missing, []
    return Decoded(records, missing, damaged, found)
