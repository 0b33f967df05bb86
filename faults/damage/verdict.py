"""Which outcomes of a damaged data folder are allowed. Pure: facts in, findings out.

Owns the rule: every acknowledged batch is served unchanged, or an event reports the loss, names the partition
or the file, and says what to do. These are findings even with such an event: a wrong byte served, an offset
left out without an error, an acknowledged batch that is missing, a batch stored twice, a producer id given
twice, a topic missing from a broker that serves, a traceback.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from faults.checker import Finding, Kind
from faults.damage.files import Damage
from faults.damage.probe import Served, Shown
from faults.damage.sample import SentBatch, Stop, TopicPartition
from faults.process import event_of
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.types import NO_SEQUENCE

_CATALOG: Final = "cluster."
_CATALOG_NAME: Final = "cluster.db"
_REMEDY: Final = re.compile(r"[;.] \w")
"""What is wrong comes first in a message, then what to do."""
_LOUD: Final = frozenset(("warning", "error", "critical"))
_UNDETECTABLE: Final = frozenset((Damage.CUT, Damage.CUT_AT_BATCH, Damage.EMPTY, Damage.DELETE))


class Case(NamedTuple):
    """One partition of one damaged folder: what was in it, and what was done to it."""

    key: TopicPartition
    stop: Stop
    batches: Sequence[SentBatch]
    start: int
    recovery_point: int
    damages: Sequence[Damage]
    """Done to files of this partition."""
    files: Sequence[str]
    """Names of everything that was damaged in the whole folder."""
    superseded: Collection[int] = ()
    """Offsets that a clean may have removed."""


def judge_partition(case: Case, shown: Shown, events: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """What is wrong with what a broker showed of one partition."""
    is_reported = any(_reports(event, case) for event in events)
    name = "-".join(map(str, case.key))
    findings: list[Finding] = []

    def find(kind: Kind, text: str) -> None:
        findings.append(Finding(kind, f"{name}: {text}"))

    if shown.code:
        if not is_reported:
            find(Kind.SILENT, f"offline (error {shown.code}) without an event that names it and a remedy")
        if shown.new is not None and not shown.new.code:
            find(Kind.INVENTED, "a batch was acknowledged while the partition is offline")
        return findings
    _judge_reading(case, shown, find)
    if not is_reported:
        _judge_times(case, shown, find)
    kept = _kept(case, shown.served)
    lost = [batch for batch in case.batches if batch.end_offset > case.start and batch.offset not in kept]
    if lost and not is_reported and not _is_undetectable(case, lost):
        first, last = lost[0], lost[-1]
        text = f"{len(lost)} batches from offset {first.offset} to {last.end_offset - 1} are not served"
        find(Kind.SILENT, f"{text} (start {shown.start}, end {shown.end}), and no event says so")
    if not is_reported:
        _judge_committed(case, shown, bool(lost), find)
    first_offset = max(case.start, shown.start) if is_reported else case.start
    _judge_producing(first_offset, shown, kept, bool(lost) or is_reported, find)
    return findings


def judge_refusal(files: Sequence[str], lines: Sequence[str]) -> list[Finding]:
    """A broker that did not start: its words must name a damaged file or its folder, and say what to do."""
    text = next((line for line in reversed(lines) if "broker_not_started" in line), "")
    if not text:
        return [Finding(Kind.ALARM, f"ended without saying why: {' | '.join(lines[-3:])}")]
    event = event_of(text) or {}
    names = [*files, *(file.split("/")[0] for file in files)]
    if any(file.startswith(_CATALOG) for file in files):
        names.append(_CATALOG_NAME)  # Events name its files as one.
    if not any(name in text for name in names):
        return [Finding(Kind.SILENT, f"does not start, and names none of the damaged files: {text}")]
    if not event.get("advice") and not _REMEDY.search(str(event.get("error"))):
        return [Finding(Kind.SILENT, f"does not start, and says no remedy: {text}")]
    return []


def judge_words(lines: Iterable[str]) -> list[Finding]:
    """Every line of a broker is an event; a traceback is a finding."""
    wild = [line for line in lines if event_of(line) is None]
    traced = [line for line in lines if "Traceback" in line]
    return [Finding(Kind.ALARM, " | ".join((wild or traced)[-4:]))] if wild or traced else []


def judge_ids(given: Iterable[int], fresh: Sequence[int]) -> list[Finding]:
    """No producer id is given twice."""
    twice = sorted({*given} & {*fresh}) + sorted({each for each in fresh if fresh.count(each) > 1})
    return [Finding(Kind.DUPLICATED, f"producer id {each} was given twice") for each in twice]


def judge_topics(expected: Mapping[str, int], names: Mapping[str, int]) -> list[Finding]:
    """A broker that serves has all its topics."""
    return [
        Finding(Kind.MISSING, f"the broker serves, and topic {topic} has {names.get(topic, 0)} partitions")
        for topic, partitions in expected.items()
        if names.get(topic) != partitions
    ]


def events_of(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The structured events among what a broker wrote."""
    return [event for event in map(event_of, lines) if event is not None]


def _judge_reading(case: Case, shown: Shown, find: Callable[[Kind, str], None]) -> None:
    for served in shown.served:
        _judge_served(case, served, find)
    for offset in shown.silent:
        find(Kind.GAP, f"a fetch at {offset}, below the end {shown.end}, gives neither record nor error")


def _judge_committed(case: Case, shown: Shown, may_be_open: bool, find: Callable[[Kind, str], None]) -> None:
    """A reader of committed records gets them all, and no others. Where the end of the log is lost, the last
    transaction may be open again."""
    kept = {served.offset for served in shown.committed}
    for batch in case.batches:
        if batch.is_aborted and batch.offset in kept:
            find(Kind.DIRTY, f"a reader of committed records gets the aborted batch at {batch.offset}")
        is_due = bool(kept) and not may_be_open and batch.base_sequence != NO_SEQUENCE
        if is_due and not batch.is_aborted and case.start <= batch.offset and batch.offset not in kept:
            find(Kind.MISSING, f"a reader of committed records does not get the batch at {batch.offset}")


def _judge_times(case: Case, shown: Shown, find: Callable[[Kind, str], None]) -> None:
    """Offsets by time name the first batch that is late enough, unless damage of the log is reported."""
    ordered = sorted(case.batches, key=lambda batch: batch.offset)
    kept = _kept(case, shown.served)
    for timestamp, code, offset in shown.times:
        holders = [each for each in ordered if each.max_timestamp >= timestamp and each.offset in kept]
        right = {each for batch in holders[:1] for each in range(batch.offset, batch.end_offset)}
        if not code and right and offset not in right and shown.start <= case.start:
            find(Kind.WRONG_OFFSET, f"timestamp {timestamp} is at {min(right)}, ListOffsets answers {offset}")


def _judge_served(case: Case, served: Served, find: Callable[[Kind, str], None]) -> None:
    known = {batch.offset: batch for batch in case.batches}
    if served.content is None:
        find(Kind.INVENTED, f"a fetch at {served.asked} gives bytes that are no batch with a right CRC")
        return
    if any(offset not in case.superseded for offset in range(served.asked, served.offset)):
        find(Kind.GAP, f"a fetch at {served.asked} is answered from {served.offset} without an error")
    batch = known.get(served.offset)
    if served.offset in case.superseded:
        return
    if batch is None or batch.content != served.content:
        find(Kind.INVENTED, f"offset {served.offset} is served with a batch that was not written there")


def _kept(case: Case, served: Iterable[Served]) -> set[int]:
    """Offsets of the batches that were served as they were written."""
    known = {batch.offset: batch.content for batch in case.batches}
    return {each.offset for each in served if known.get(each.offset) == each.content}


def _judge_producing(
    first_offset: int, shown: Shown, kept: set[int], is_excused: bool, find: Callable[[Kind, str], None]
) -> None:
    """What was before `first_offset` is gone and known to be: its batches may be duplicates all the same."""
    after = {served.offset: served.content for served in shown.served_after}
    for batch, code, offset in shown.resent:
        there = batch.offset in kept
        what = f"the batch at {batch.offset}, producer {batch.producer_id}, sequence {batch.base_sequence}"
        if code == ErrorCode.NONE and there and offset != batch.offset:
            find(Kind.DUPLICATED, f"{what}, sent again, is stored at {offset} too")
        elif code == ErrorCode.NONE and not there and batch.offset >= first_offset:
            if after.get(offset) != batch.content:
                find(Kind.MISSING, f"{what}, sent again, is acknowledged at {offset} and not there")
        elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER and not there and batch.offset >= first_offset:
            find(Kind.MISSING, f"{what}, sent again, is acknowledged as a duplicate and not there")
        elif code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER) and not is_excused:
            find(Kind.SILENT, f"{what}, sent again, is refused with error {code} and no event says why")
    if shown.new is not None:
        batch, code, offset = shown.new
        if code == ErrorCode.NONE and after.get(offset) != batch.content:
            find(Kind.MISSING, f"a new batch is acknowledged at {offset} and not there")
        elif code and not is_excused:
            find(Kind.SILENT, f"a new batch is refused with error {code} and no event says why")


def _is_undetectable(case: Case, lost: Sequence[SentBatch]) -> bool:
    """Whether the log just ends early, where after a crash nothing says that there was more."""
    is_tail = lost == [batch for batch in case.batches if batch.offset >= lost[0].offset]
    return (
        case.stop is not Stop.CLEAN
        and is_tail
        and lost[0].offset >= case.recovery_point
        and (case.stop is Stop.OTHER_BOOT or bool(_UNDETECTABLE.intersection(case.damages)))
    )


def _reports(event: Mapping[str, Any], case: Case) -> bool:
    """Whether an event says that something is wrong with this partition, and what to do."""
    if not event.get("advice"):
        return False
    if event.get("level") not in _LOUD:
        return False
    if (event.get("topic"), event.get("partition")) == case.key:
        return True
    text = json.dumps(event)
    return "-".join(map(str, case.key)) in text or any(file in text for file in case.files)
