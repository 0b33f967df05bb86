"""The history of one producer in the log of one partition, as the verification of logs judges it.

Owns the rows: batches that follow each other are one row, until the epoch changes, a transaction ends, or the
verification finds something. Whether a batch had to be refused, is stored a second time or begins again is
decided by `storage/verification/producers`, with the rules of the broker itself.

Invariants: one row is held at a time, the closed ones until they are taken; only what is committed is read;
the log is read in pieces of `PIECE_BYTES`, as searches are: one at a time of all visitors, in a thread.
"""

from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, Literal, TypedDict

from tidelog.broker.console.caller import Caller
from tidelog.broker.console.route import EVENT_STREAM, OF_LEADER, Console, route
from tidelog.broker.console.shapes import Parameters, PartitionNumber, ProducerId
from tidelog.broker.security.required_access import READ_TOPIC
from tidelog.broker.storage.file_reader import FoundBatch
from tidelog.broker.storage.holes import Hole
from tidelog.broker.storage.log_types import Read
from tidelog.broker.storage.partition_log import PartitionLog
from tidelog.broker.storage.verification.findings import Finding, Findings, Severity
from tidelog.broker.storage.verification.producers import ProducerCheck
from tidelog.protocol.errors import ApiError, ProtocolError
from tidelog.protocol.records import BatchHeader, EndTransactionMarker, read_batch_header, read_marker
from tidelog.protocol.types import NO_SEQUENCE, NO_TIMESTAMP

PIECE_BYTES: Final = 256 * 1024
"""Some thousand of the smallest batches: a few milliseconds of a thread."""
_PIECES_PER_VALUE: Final = 16


class HistoryRow(TypedDict):
    """One step of the history: `batches` that follow each other, a new `epoch`, the end of a transaction
    (`commit`, `abort`), or what the verification found (`warning`, `damage`). Timestamps are the largest of a
    batch."""

    kind: Literal["batches", "epoch", "commit", "abort", "warning", "damage"]
    base_offset: int
    last_offset: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    batches: int
    records: int
    first_timestamp: int
    last_timestamp: int
    is_transactional: bool
    text: str


class HistoryPiece(TypedDict):
    """What was read since the last piece. The history is complete when `next_offset` is `end_offset`."""

    rows: list[HistoryRow]
    start_offset: int
    next_offset: int
    end_offset: int


class ProducerHistory:
    """The rows of one producer, from its batches in the order of the log."""

    def __init__(
        self, *, start_offset: int, is_whole: bool, next_producer_id: int, crc_at: Callable[[int], int | None]
    ) -> None:
        """The log begins at `start_offset`; `is_whole`: no batch after it is missing. `crc_at` reads the CRC
        of the batch at an offset."""
        self._findings: list[Finding] = []
        self._check = ProducerCheck(
            Findings(self._findings.append), next_producer_id=next_producer_id, crc_at=crc_at
        )
        self._check.first_offset, self._check.is_whole = start_offset, is_whole
        self._closed: list[HistoryRow] = []
        self._open: HistoryRow | None = None
        self._epoch: int | None = None

    def batch(self, header: BatchHeader, marker: EndTransactionMarker | None) -> None:
        """The next batch of the producer."""
        base_offset, epoch = header.base_offset, header.producer_epoch
        # Each batch is a file of its own, so that no finding is left out as one of too many in a file.
        self._check.batch(str(base_offset), FoundBatch(0, header, header.crc, marker))
        if self._epoch is not None and epoch > self._epoch:
            text = f"epoch {epoch} follows epoch {self._epoch}, whose batches are refused from here on"
            self._note("epoch", base_offset, epoch, text)
        self._epoch = epoch
        for finding in self._findings:
            kind = "damage" if finding.severity is Severity.DAMAGE else "warning"
            self._note(kind, base_offset, epoch, finding.problem)
        self._findings.clear()
        if marker is not None:
            kind = "commit" if marker.is_commit else "abort"
            self._note(kind, base_offset, epoch, f"transaction ended: {kind}")
        elif not header.is_control:
            self._add(header)

    def _add(self, header: BatchHeader) -> None:
        row = self._open
        if row is None or row["is_transactional"] != header.is_transactional:
            self._close()
            row = self._open = _row("batches", header.base_offset, header.producer_epoch)
            row["base_sequence"] = header.base_sequence
            row["first_timestamp"] = header.largest_timestamp
            row["is_transactional"] = header.is_transactional
        row["last_offset"] = header.last_offset
        row["last_sequence"] = header.last_sequence
        row["batches"] += 1
        row["records"] += header.record_count
        row["last_timestamp"] = header.largest_timestamp

    def note_loss(self, hole: Hole, text: str) -> None:
        """The log lost these offsets: a sequence that is missing after them is no new finding."""
        self._check.is_whole = False
        self._note("damage", hole.first_offset, -1, text)
        self._closed[-1]["last_offset"] = hole.end_offset - 1

    def _note(self, kind: Any, offset: int, epoch: int, text: str) -> None:
        self._close()
        self._closed.append(_row(kind, offset, epoch, text))

    def _close(self) -> None:
        if self._open is not None:
            self._closed.append(self._open)
            self._open = None

    def take(self, *, is_last: bool) -> list[HistoryRow]:
        """The rows that were closed since the last call; all with `is_last`."""
        if is_last:
            self._close()
        taken, self._closed = self._closed, []
        return taken


def _row(kind: Any, offset: int, epoch: int, text: str = "") -> HistoryRow:
    return {
        "kind": kind,
        "base_offset": offset,
        "last_offset": offset,
        "producer_epoch": epoch,
        "base_sequence": NO_SEQUENCE,
        "last_sequence": NO_SEQUENCE,
        "batches": 0,
        "records": 0,
        "first_timestamp": NO_TIMESTAMP,
        "last_timestamp": NO_TIMESTAMP,
        "is_transactional": False,
        "text": text,
    }


class HistoryAsked(Parameters, frozen=True, kw_only=True):
    topic: str
    partition: PartitionNumber
    producer_id: ProducerId


@route(
    "GET",
    "/topics/{topic}/partitions/{partition}/producers/{producer_id}/history",
    needs=READ_TOPIC,
    stream=EVENT_STREAM,
    spread=OF_LEADER,
)
async def history(
    console: Console, caller: Caller, asked: HistoryAsked
) -> AsyncGenerator[HistoryPiece, None]:
    """The history of a producer in a partition, checked by the rules of log verification, in pieces."""
    replica = console.services.replica(asked.topic, asked.partition)
    log, end_offset = replica.log, replica.progress.committed.offset
    start_offset = log.start_offset
    held = ProducerHistory(
        start_offset=start_offset,
        is_whole=not log.holes and "compact" not in log.config.cleanup_policy,
        next_producer_id=console.services.catalog.next_producer_id,
        crc_at=lambda at: _crc_at(log, at, end_offset),
    )

    async def pieces() -> AsyncGenerator[HistoryPiece, None]:
        offset = start_offset
        while True:
            for _ in range(_PIECES_PER_VALUE):
                if offset < end_offset:
                    offset = max(offset, log.start_offset)  # Retention may have passed it.
                    read = console.records.reader.in_turn
                    offset = await read(_read, log, held, asked.producer_id, offset, end_offset)
            is_last = offset >= end_offset
            yield {
                "rows": held.take(is_last=is_last),
                "start_offset": start_offset,
                "next_offset": min(offset, end_offset),
                "end_offset": end_offset,
            }
            if is_last:
                return

    return pieces()


def _read(log: PartitionLog, held: ProducerHistory, producer_id: int, offset: int, end_offset: int) -> int:
    """Give the producer's batches of one piece to `held`; the offset after the piece."""
    for hole in log.holes:
        if hole.first_offset <= offset < hole.end_offset:
            held.note_loss(hole, f"the records at offsets {hole} are lost: no segment file holds them")
            return hole.end_offset
    found = log.read(Read(offset, PIECE_BYTES, end_offset))
    for data in found.records:
        position = 0
        while position < len(data):
            header = read_batch_header(data, position)
            if header.producer_id == producer_id:
                marker = None
                if header.is_control:
                    marker = _marker(data[position : position + header.size_bytes])
                held.batch(header, marker)
            position += header.size_bytes
    return found.next_offset if found.next_offset > offset else end_offset


def _marker(batch: memoryview) -> EndTransactionMarker | None:
    try:
        return read_marker(batch)
    except ProtocolError:
        return None


def _crc_at(log: PartitionLog, offset: int, end_offset: int) -> int | None:
    try:
        (data,) = log.read(Read(offset, 1, end_offset)).records
    except (ApiError, ValueError):
        return None
    header = read_batch_header(data)
    return header.crc if header.base_offset == offset else None
