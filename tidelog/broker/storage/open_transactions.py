"""The transactions of one partition that hold its last stable offset back.

Owns which producer has a transaction open and where it began, and which ended transactions still hold the
last stable offset back. A transaction is open from its first record to its marker. After that it is unstable
until the high watermark has passed the marker: a marker that a crash could remove ends nothing.

Invariants: first offsets ascend, because transactions begin at the end of the log; `first_unstable` is the
smallest of all that are unstable; each call takes constant time, `settle` for each transaction that it ends.

Pure. Source: Kafka's ProducerStateManager (ongoingTxns, unreplicatedTxns).
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final, NamedTuple

NO_TRANSACTION: Final = (1 << 63) - 1
"""`first_unstable` without an unstable transaction: every offset is smaller."""
_BEFORE_THE_START: Final = -(1 << 62)
"""Bytes before a transaction that began before the start: more bytes follow it than any request waits for."""


_NONE: Final[OrderedDict[int, int]] = OrderedDict()
_NONE_ENDED: Final[deque[tuple[int, int]]] = deque()
"""Both are shared by all partitions that never had a transaction, and never written."""


class EndedTransaction(NamedTuple):
    """A transaction of one partition, as Kafka's index of aborted transactions describes it."""

    producer_id: int
    first_offset: int
    last_offset: int
    """That of its marker."""
    last_stable_offset: int
    """Before the first transaction that was open when this one ended, or after the marker."""


class OpenTransactions:
    """Tracks the transactions of one partition that hold its last stable offset back."""

    __slots__ = ("_open", "_unstable", "bytes_before", "ended", "first_unstable")

    def __init__(self, known: Iterable[tuple[int, int]] = ()) -> None:
        """`known` holds (first offset, producer id) in any order."""
        self.first_unstable = NO_TRANSACTION
        """The first offset of all unstable transactions. Read by each fetch."""
        self.bytes_before = 0
        """How many bytes were appended since the start before it."""
        self._open = _NONE
        """Producer id -> first offset, in ascending order of the offsets."""
        self._unstable = _NONE
        """First offset -> bytes appended before it, ascending. An OrderedDict finds its first in one step."""
        self.ended = _NONE_ENDED
        """(offset of the marker, first offset) of those that are unstable only because of their marker."""
        for first_offset, producer_id in sorted(known):
            self.begin(producer_id, first_offset)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._open

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    def oldest(self) -> tuple[int, int] | None:
        """Producer id and first offset of the one that began first, or None."""
        return next(iter(self._open.items()), None)

    def begin(self, producer_id: int, first_offset: int) -> bool:
        """Note a transactional batch; returns whether it began a transaction."""
        if producer_id in self._open:
            return False
        if self._open is _NONE:
            self._open, self._unstable, self.ended = OrderedDict(), OrderedDict(), deque()
        self._open[producer_id] = first_offset
        self._unstable[first_offset] = _BEFORE_THE_START
        if first_offset < self.first_unstable:
            self.first_unstable, self.bytes_before = first_offset, _BEFORE_THE_START
        return True

    def locate(self, first_offset: int, bytes_before: int) -> None:
        """Note how many bytes were appended since the start before a transaction at this offset, if one began
        there."""
        if first_offset in self._unstable:
            self._unstable[first_offset] = bytes_before
            if first_offset == self.first_unstable:
                self.bytes_before = bytes_before

    def end(self, producer_id: int, marker_offset: int) -> EndedTransaction | None:
        """Note a producer's marker; None if it had no transaction open."""
        if producer_id not in self._open:
            return None
        first_offset = self._open.pop(producer_id)
        self.ended.append((marker_offset, first_offset))
        last_stable = next(iter(self._open.values()), marker_offset + 1)
        return EndedTransaction(producer_id, first_offset, marker_offset, last_stable)

    def forget(self, producer_id: int) -> None:
        """A producer is forgotten: what it had open ends without a marker."""
        if producer_id in self._open:
            self._remove(self._open.pop(producer_id))

    def settle(self, high_watermark: int) -> None:
        """Markers below the high watermark are final."""
        ended = self.ended
        while ended and ended[0][0] < high_watermark:
            self._remove(ended.popleft()[1])

    def _remove(self, first_offset: int) -> None:
        del self._unstable[first_offset]
        if first_offset == self.first_unstable:
            self.first_unstable, self.bytes_before = next(iter(self._unstable.items()), (NO_TRANSACTION, 0))
