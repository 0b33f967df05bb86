"""Compares the stored records with the records that were sent and the outcomes that writers received.

Owns the rules of the fault runner: which contradictions between ledgers and logs are findings. Pure: no I/O,
no clock. Other modules read the logs.

Invariants: each record is one (writer, partition, counter); a writer counts from 0 per partition. A record is
stored at most once, and exactly once if it was acknowledged, at the acknowledged offset, never after a later
record. A record without an outcome is a finding too.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from tidelog.protocol.records import BatchHeader

ACKED_SOMEWHERE: Final = -1
OPEN: Final = -2
UNCERTAIN: Final = -3
REFUSED: Final = -4


class Kind(StrEnum):
    """The kinds of findings."""

    MISSING = "acknowledged but missing"
    DUPLICATED = "stored more than once"
    REORDERED = "out of order"
    INVENTED = "never sent"
    WRONG_OFFSET = "not at its acknowledged offset"
    NOT_REFUSED = "stored though reported as not stored"
    HANGING = "no outcome"
    GAP = "offsets not continuous"
    SEQUENCE = "sequence of a producer broken in the log"
    DIFFERENT = "readers disagree"
    UNREADABLE = "could not be read back"
    ALARM = "the broker complained"
    SILENT = "wrong, and no event names it and a remedy"
    COSTLY = "one peer cost the others too much"
    TORN = "a transaction is visible in part"
    DIRTY = "read, and not committed"
    BACKWARDS = "an end of a log went back"
    BROKEN_RULE = "a rule of the cluster is broken"
    ANOMALY = "a history contradicts itself"


class Mark(NamedTuple):
    """The identity of a record."""

    writer: int
    partition: int
    counter: int

    def __str__(self) -> str:
        return f"writer {self.writer}, partition {self.partition}, record {self.counter}"


class Stored(NamedTuple):
    """A record that a reader found at `offset`; `mark` is its identity, None if no writer sent it, or it was
    altered."""

    offset: int
    mark: Any


class Finding(NamedTuple):
    """An error, with the numbers that locate it."""

    kind: Kind
    text: str


@dataclass
class Ledger:
    """The records and outcomes of one writer (one life of one producer). Counters start at 0 per partition.

    `fates[partition][counter]` is the acknowledged offset, or one of ACKED_SOMEWHERE (stored, the broker
    no longer knew where), OPEN, UNCERTAIN (stored or not) and REFUSED (not stored, the producer says).
    """

    writer: int
    name: str
    fates: dict[int, "array[int]"] = field(default_factory=lambda: defaultdict(lambda: array("q")))
    acknowledged_ends: dict[int, int] = field(default_factory=dict)
    """Partition -> the offset after the largest that was acknowledged."""

    def sent(self, partition: int) -> int:
        """One more record goes to `partition`: its counter."""
        fates = self.fates[partition]
        fates.append(OPEN)
        return len(fates) - 1

    def taken_back(self, partition: int) -> None:
        """Undo the last `sent`: the producer did not accept the record."""
        self.fates[partition].pop()

    def record_outcome(self, partition: int, counter: int, fate: int) -> None:
        self.fates[partition][counter] = fate
        self.acknowledged_ends[partition] = max(fate + 1, self.acknowledged_ends.get(partition, 0))

    def close(self) -> None:
        """The producer has ended: every open outcome becomes UNCERTAIN."""
        for fates in self.fates.values():
            for counter, fate in enumerate(fates):
                if fate == OPEN:
                    fates[counter] = UNCERTAIN

    def count(self, matches: Callable[[int], bool]) -> int:
        """The number of records whose fate `matches`."""
        return sum(1 for fates in self.fates.values() for fate in fates if matches(fate))


def is_acked(fate: int) -> bool:
    """Whether the fate promises that the record is stored."""
    return fate >= ACKED_SOMEWHERE


def check(ledgers: Iterable[Ledger], logs: Mapping[int, Sequence[Stored]]) -> list[Finding]:
    """Every contradiction between the writers' outcomes and `logs` (partition -> records by offset)."""
    by_writer = {ledger.writer: ledger for ledger in ledgers}
    findings: list[Finding] = []
    for partition in sorted(logs):
        findings += _check_offsets(partition, logs[partition])
        places: dict[tuple[int, int], list[int]] = defaultdict(list)
        latest: dict[int, int] = {}
        for offset, mark in logs[partition]:
            if mark is None or not _was_sent(by_writer, mark) or mark.partition != partition:
                what = "bytes that nobody sent" if mark is None else str(mark)
                findings.append(Finding(Kind.INVENTED, f"partition {partition}, offset {offset}: {what}"))
                continue
            known = places[mark.writer, mark.counter]
            if not known and mark.counter < latest.get(mark.writer, -1):
                behind = f"{mark} stands at offset {offset}, behind record {latest[mark.writer]}"
                findings.append(Finding(Kind.REORDERED, behind))
            known.append(offset)
            latest[mark.writer] = max(mark.counter, latest.get(mark.writer, -1))
        for ledger in by_writer.values():
            fates = ledger.fates.get(partition, ())
            for counter, fate in enumerate(fates):
                found = places.get((ledger.writer, counter), [])
                findings += _check_record(Mark(ledger.writer, partition, counter), fate, found)
    for ledger in by_writer.values():
        for partition in sorted(ledger.fates.keys() - logs.keys()):
            lost = sum(map(is_acked, ledger.fates[partition]))
            if lost:
                what = f"all {lost} records of writer {ledger.writer}: partition {partition} was not read"
                findings.append(Finding(Kind.MISSING, what))
    return findings


def _was_sent(by_writer: Mapping[int, Ledger], mark: Mark) -> bool:
    ledger = by_writer.get(mark.writer)
    return ledger is not None and 0 <= mark.counter < len(ledger.fates.get(mark.partition, ()))


def _check_record(mark: Mark, fate: int, offsets: Sequence[int]) -> Iterable[Finding]:
    """The findings of one record with outcome `fate` that is stored at `offsets`."""
    if len(offsets) > 1:
        yield Finding(Kind.DUPLICATED, f"{mark} is stored at offsets {', '.join(map(str, offsets))}")
    if is_acked(fate) and not offsets:
        where = f"offset {fate}" if fate >= 0 else "an unknown offset"
        yield Finding(Kind.MISSING, f"{mark} was acknowledged at {where} and is not stored")
    elif fate >= 0 and fate not in offsets:
        yield Finding(
            Kind.WRONG_OFFSET, f"{mark} was acknowledged at offset {fate} and stands at {offsets[0]}"
        )
    elif fate == REFUSED and offsets:
        yield Finding(Kind.NOT_REFUSED, f"{mark} was reported as not stored and stands at {offsets[0]}")
    elif fate == OPEN:
        yield Finding(Kind.HANGING, f"{mark} was sent, and its producer never reported an outcome")


def _check_offsets(partition: int, records: Sequence[Stored]) -> Iterable[Finding]:
    expected = 0
    for offset, _ in records:
        if offset != expected:
            text = f"partition {partition}: offset {offset} comes where {expected} was expected"
            yield Finding(Kind.GAP, text)
        expected = offset + 1


def check_sequences(partition: int, batches: Iterable[BatchHeader]) -> list[Finding]:
    """Each producer id and epoch must begin at sequence 0 and continue without gaps. Epochs must not
    decrease."""
    findings: list[Finding] = []
    state: dict[int, tuple[int, int]] = {}
    for batch in batches:
        if batch.producer_id < 0:
            continue
        epoch, expected = state.get(batch.producer_id, (-1, 0))
        if batch.producer_epoch > epoch:
            expected = 0
        if batch.producer_epoch < epoch or batch.base_sequence != expected:
            text = (
                f"partition {partition}, offset {batch.base_offset}: producer {batch.producer_id} has epoch"
                f" {batch.producer_epoch} and sequence {batch.base_sequence},"
                f" expected were epoch {max(epoch, 0)} or later and sequence {expected}"
            )
            findings.append(Finding(Kind.SEQUENCE, text))
        after = (batch.base_sequence + batch.record_count) % 2**31
        state[batch.producer_id] = (batch.producer_epoch, after)
    return findings


def compare(partition: int, reader: str, seen: Sequence[Stored], stored: Sequence[Stored]) -> list[Finding]:
    """Check that `reader` saw exactly the stored records in order."""
    for index, record in enumerate(seen):
        expected = stored[index] if index < len(stored) else None
        if record != expected:
            text = f"partition {partition}, place {index}: {reader} had {_text_of(record)}, the wire has"
            return [Finding(Kind.DIFFERENT, f"{text} {_text_of(expected)}")]
    if len(seen) != len(stored):
        text = f"partition {partition}: {reader} has {len(seen)} records, the wire {len(stored)}"
        return [Finding(Kind.DIFFERENT, text)]
    return []


def _text_of(record: Stored | None) -> str:
    if record is None:
        return "nothing"
    return f"offset {record.offset} ({record.mark or 'unknown bytes'})"
