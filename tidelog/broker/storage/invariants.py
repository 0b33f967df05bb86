"""Checks of a log's numbers; a partition whose numbers contradict each other goes offline.

Owns the checks and their error. Pure.
"""

from collections.abc import Sequence

from tidelog.broker.storage.holes import Extent, Hole, holes_between
from tidelog.broker.storage.open_transactions import OpenTransactions
from tidelog.broker.storage.producer_table import ProducerEntry


class InvariantError(Exception):
    """The broker's state of a log in memory is wrong, by a fault of the broker. The message has numbers."""

    def __init__(self, invariant: str, **numbers: int) -> None:
        said = ", ".join(f"{name} {number}" for name, number in numbers.items())
        super().__init__(f"broken invariant: {invariant} ({said})")
        self.numbers = numbers


def broken_ends(start: int, flushed_end: int, end: int, last_file_end: int) -> InvariantError:
    """The offsets are not in this order, or the last file does not end with the log."""
    return InvariantError(
        "start <= flushed end <= end, where the last file ends",
        start_offset=start,
        flushed_end_offset=flushed_end,
        end_offset=end,
        last_file_end_offset=last_file_end,
    )


def check_leader_epoch(latest: int, leader_epoch: int) -> None:
    """Raise InvariantError if a batch is to get an older epoch than the last one: a start after a crash
    would take it for damage, and cut the log before it."""
    if leader_epoch < latest:
        raise InvariantError("leader epochs never go back", written=latest, now=leader_epoch)


def broken_last_stable(before: int, now: int, high_watermark: int) -> InvariantError:
    """The last stable offset went back, or passed the high watermark: consumers would miss records, or read
    some that are not committed."""
    return InvariantError(
        "last stable offset never goes back, and never passes the high watermark",
        last_stable_before=before,
        last_stable_offset=now,
        high_watermark=high_watermark,
    )


def check_producers(latest: ProducerEntry | None, transactions: OpenTransactions, end: int) -> None:
    """Raise InvariantError if the producer that appended last, or the oldest open transaction, knows more
    than the log holds."""
    if latest is not None and latest.batches and latest.batches[-1].last_offset >= end:
        raise InvariantError(
            "producer state never runs ahead of the log",
            producer_id=latest.producer_id,
            last_offset=latest.batches[-1].last_offset,
            end_offset=end,
        )
    if len(transactions) and transactions.first_unstable >= end:
        raise InvariantError(
            "open transactions never run ahead of the log",
            open_transactions=len(transactions),
            first_unstable_offset=transactions.first_unstable,
            end_offset=end,
        )


def check_segments(segments: Sequence[Extent], start: int, known: Sequence[Hole]) -> None:
    """Raise InvariantError if segments of a log from `start` on do not join, but for the holes known."""
    for hole in holes_between(segments, max(start, segments[0].base_offset)):
        if hole.end_offset not in {each.end_offset for each in known}:
            raise InvariantError("segments join", end_offset=hole[0], next_base_offset=hole[1])
