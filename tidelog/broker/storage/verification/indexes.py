"""Checks that the entries of the two indexes name existing batches.

Owns a pass over each index file in parallel with the pass over the batches: both ascend, so one entry is in
memory at a time. `batch` gets every batch in order, `finish` the end. Invariants: an index whose entries do
not ascend is reported once and not checked further; these checks never report the log itself.

Source: Kafka's OffsetIndex and TimeIndex, as `broker.storage.index` writes them: the offset of an entry is
that of the last record of its batch.
"""

from collections.abc import Iterator

from tidelog.broker.storage.file_reader import FileReader, FoundBatch
from tidelog.broker.storage.index import OFFSET_ENTRY, TIME_ENTRY
from tidelog.broker.storage.verification.findings import Findings, Severity
from tidelog.protocol.types import NO_TIMESTAMP

_INDEX_INTERVAL_SLACK = 2


class IndexCheck:
    """Checks that the entries of one index file ascend; `severity` is that of a fault in it."""

    def __init__(
        self, reader: FileReader, name: str, base_offset: int, findings: Findings, severity: Severity
    ) -> None:
        self._findings = findings
        self._name = name
        self._base_offset = base_offset
        self._severity = severity
        self._entry = OFFSET_ENTRY if name.endswith(".index") else TIME_ENTRY
        self._entries: Iterator[tuple[int, tuple[int, int]]] = reader.entries(self._entry)
        self._last = (-(1 << 63), -1)
        odd = reader.size % self._entry.size
        if odd:
            self._report(reader.size - odd, f"{odd} bytes at the end are not a whole entry")
        self._at = 0
        self._next: tuple[int, int] | None = None
        self._advance()

    def _advance(self) -> None:
        for position, entry in self._entries:
            if not (entry[0] > self._last[0] and entry[1] > self._last[1]):
                self._report(position, "entries must ascend", f"more than {self._last}", entry)
                break
            self._at, self._next, self._last = position, entry, entry
            return
        self._next = None

    def _report(
        self, position: int | None, problem: str, expected: object = None, found: object = None
    ) -> None:
        self._findings.add(
            self._severity, self._name, problem, position=position, expected=expected, found=found
        )


class OffsetIndexCheck(IndexCheck):
    """`.index`: relative offset of a batch's last record -> position of the batch."""

    _last_position = 0

    def batch(self, batch: FoundBatch) -> None:
        while self._next is not None and self._next[1] <= batch.position:
            relative, position = self._next
            self._last_position = position
            if position < batch.position:
                offset = self._base_offset + relative
                self._report(
                    self._at, f"the entry for offset {offset} names byte {position}, where no batch begins"
                )
            elif self._base_offset + relative != batch.header.last_offset:
                self._report(
                    self._at,
                    f"the entry for byte {position} names an offset that is not its batch's last",
                    batch.header.last_offset,
                    self._base_offset + relative,
                )
            self._advance()

    def finish(self, end_position: int, largest_batch: int, index_interval: int | None) -> None:
        if self._next is not None:
            expected, found = f"less than {end_position}", self._next[1]
            self._report(self._at, "the entry names a byte after the last batch", expected, found)
        elif index_interval is not None:
            uncovered = end_position - self._last_position
            if uncovered > _INDEX_INTERVAL_SLACK * index_interval + 2 * largest_batch:
                self._findings.warning(
                    self._name,
                    f"the last {uncovered} bytes of the segment have no entry, with"
                    f" index.interval.bytes={index_interval}; reads there are slow",
                )


class TimeIndexCheck(IndexCheck):
    """`.timeindex`: largest timestamp so far -> relative offset of the first batch that holds it."""

    _last_timestamp: int = NO_TIMESTAMP

    def batch(self, batch: FoundBatch, largest_before: int) -> None:
        latest = batch.header.largest_timestamp
        while self._next is not None and self._base_offset + self._next[1] <= batch.header.last_offset:
            timestamp, relative = self._next
            offset = self._base_offset + relative
            if offset != batch.header.last_offset:
                self._report(self._at, f"the entry names offset {offset}, which is no batch's last")
            elif timestamp == batch.header.max_timestamp != latest:
                # Written by a version that trusted the header; a reader checks the entry before use.
                self._advance()
                continue
            elif timestamp != latest or timestamp <= largest_before:
                self._report(
                    self._at,
                    f"the entry for offset {offset} names another timestamp than the largest so far",
                    max(latest, largest_before),
                    timestamp,
                )
            self._last_timestamp = timestamp
            self._advance()

    def finish(self, end_offset: int, largest_timestamp: int, *, is_complete: bool) -> None:
        if self._next is not None:
            self._report(
                self._at,
                "the entry names an offset after the last batch",
                f"less than {end_offset}",
                self._base_offset + self._next[1],
            )
        elif is_complete and self._last_timestamp != largest_timestamp:
            self._report(
                None, "the last entry lacks the largest timestamp", largest_timestamp, self._last_timestamp
            )
