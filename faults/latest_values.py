"""What a compacted topic contains of the records that were sent, and what it must contain.

Owns the layout of keyed records and the model: of each key the last value stays, in the order of sending.
Each producer has keys of its own, so that the order of a key's records is known. Pure.

Invariants: a record's key and counter say whether it is a tombstone; a key is missing only after a tombstone
of it, and never ends with a record that is older than an acknowledged one.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from faults.checker import REFUSED, Finding, Kind, Ledger, is_acked

KEYS: Final = 13
"""Of one life of a producer in one partition."""


class Version(NamedTuple):
    """A record that a reader found: the `counter`th of a writer in its partition."""

    offset: int
    writer: int
    counter: int
    is_tombstone: bool


def key_of(writer: int, counter: int) -> bytes:
    return b"%d/%d" % (writer, counter % KEYS)


def is_tombstone(counter: int) -> bool:
    """Whether this record deletes its key: each fifth of a key does."""
    return counter // KEYS % 5 == 4


def check_latest(ledgers: Iterable[Ledger], logs: Mapping[int, Sequence[Version]]) -> list[Finding]:
    """Every contradiction between the writers' outcomes and what is left of a compacted topic."""
    findings: list[Finding] = []
    by_writer = {ledger.writer: ledger for ledger in ledgers}
    for partition, versions in sorted(logs.items()):
        left: dict[tuple[int, int], list[int]] = defaultdict(list)
        reached = -1
        for version in versions:
            findings += _check_version(partition, version, by_writer)
            newer = left[version.writer, version.counter % KEYS]
            if version.offset <= reached or (newer and newer[-1] >= version.counter):
                findings.append(Finding(Kind.REORDERED, f"compacted partition {partition}: {version}"))
            newer.append(version.counter)
            reached = version.offset
        for ledger in by_writer.values():
            for number in range(KEYS):
                fates = list(enumerate(ledger.fates.get(partition, ())))[number::KEYS]
                where = f"compacted partition {partition}, key {key_of(ledger.writer, number).decode()}"
                findings += _check_key(where, fates, left[ledger.writer, number])
    return findings


def _check_version(partition: int, version: Version, by_writer: Mapping[int, Ledger]) -> Iterable[Finding]:
    ledger = by_writer.get(version.writer)
    fates = () if ledger is None else ledger.fates.get(partition, ())
    where = f"compacted partition {partition}: {version}"
    if not 0 <= version.counter < len(fates) or version.is_tombstone != is_tombstone(version.counter):
        yield Finding(Kind.INVENTED, where)
    elif (fate := fates[version.counter]) == REFUSED:
        yield Finding(Kind.NOT_REFUSED, where)
    elif fate >= 0 and fate != version.offset:
        yield Finding(Kind.WRONG_OFFSET, f"{where} was acknowledged at offset {fate}")


def _check_key(where: str, fates: Sequence[tuple[int, int]], left: Sequence[int]) -> Iterable[Finding]:
    """`fates`: (counter, fate) of all records of a key; `left`: the counters that are left, in order."""
    newest = max((counter for counter, fate in fates if is_acked(fate)), default=-1)
    if left and left[-1] < newest:
        text = f"{where} ends with record {left[-1]}; record {newest} was acknowledged after it"
        yield Finding(Kind.MISSING, text)
    may_be_deleted = any(
        counter >= newest and fate != REFUSED and is_tombstone(counter) for counter, fate in fates
    )
    if newest >= 0 and not left and not may_be_deleted:
        yield Finding(Kind.MISSING, f"{where} is gone; record {newest} was acknowledged")
