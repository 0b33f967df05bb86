"""Judges a history of transactions: which observations contradict each other, or what a commit promises.

Owns the rules:
- atomic: of an attempt, all records are visible in all partitions, or none is;
- no dirty read: a record that was not committed is never read at read_committed, at no time;
- no lost commit: what was confirmed is visible;
- exactly once: each input has the outputs of one attempt, each of them once, in the order of the inputs, and
  the committed offset agrees with them;
- the ends: a last stable offset and a high watermark never decrease, and the first is never above the second;
- the committed offset of a partition never decreases, because each process reads from there on.

Pure. One list of findings; a fault may break several rules.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from faults.checker import Finding, Kind, Stored
from faults.transactions.history import (
    Attempt,
    AttemptId,
    Ends,
    History,
    Outcome,
    Output,
    Place,
    Source,
    outputs_of,
    places_of,
)


def check(history: History) -> list[Finding]:
    found = Counter(mark for log in history.visible.values() for _, mark in log if mark is not None)
    return [
        *_check_reads(history),
        *_check_followed(history),
        *_check_attempts(history.attempts, found),
        *_check_inputs(history, found),
        *_check_order(history.visible),
        *_check_ends(history.ends),
        *_check_committed(history.committed),
    ]


def _check_reads(history: History) -> Iterator[Finding]:
    """What was read at read_committed, at the end or meanwhile, was sent and committed."""
    for name, logs in (("at the end", history.visible), *history.followed.items()):
        for place, log in logs.items():
            for offset, output in log:
                where = f"{place}, offset {offset}, {name}"
                if output is None or output.place != place:
                    yield Finding(Kind.INVENTED, f"{where}: {output or 'bytes that nobody sent'}")
                    continue
                attempt = history.attempts.get(output.attempt)
                if attempt is None:
                    yield Finding(Kind.INVENTED, f"{where}: {output}")
                elif not attempt.outcome.may_be_visible:
                    yield Finding(Kind.DIRTY, f"{where}: {output}; {attempt.outcome}")
                elif output.source not in attempt.sources:
                    yield Finding(Kind.INVENTED, f"{where}: {output} was not among what the attempt sent")


def _check_followed(history: History) -> Iterator[Finding]:
    """A reader along found the same records as the reader at the end, in order, or the first of them."""
    for name, logs in history.followed.items():
        for place, log in logs.items():
            final = history.visible.get(place, ())
            for index, stored in enumerate(log):
                expected = final[index] if index < len(final) else None
                if stored != expected:
                    text = f"{place}, record {index}: {name} had {_text_of(stored)}, later it is"
                    kind = Kind.DIRTY if expected is None else Kind.DIFFERENT
                    yield Finding(kind, f"{text} {_text_of(expected)}")
                    break


def _text_of(stored: Stored | None) -> str:
    return "nothing" if stored is None else f"{stored.mark} at offset {stored.offset}"


def _check_attempts(attempts: Mapping[AttemptId, Attempt], found: Counter[Output]) -> Iterator[Finding]:
    for name, attempt in attempts.items():
        wanted = outputs_of(name, attempt.sources)
        lacking = [output for output in wanted if not found[output]]
        if attempt.outcome is Outcome.COMMITTED and lacking:
            text = f"{name} was committed, and {len(lacking)} of its {len(wanted)} records are not visible"
            yield Finding(Kind.MISSING, f"{text}: {lacking[0]}")
        if attempt.outcome.may_be_visible and 0 < len(lacking) < len(wanted):
            visible = next(output for output in wanted if found[output])
            yield Finding(Kind.TORN, f"{visible} is visible, {lacking[0]} is not; {attempt.outcome}")


def _check_inputs(history: History, found: Counter[Output]) -> Iterator[Finding]:
    """Each input before the committed offset has its outputs exactly once, and none after it has any."""
    made: dict[tuple[Source, Place], list[str]] = {}
    for output, count in found.items():
        made.setdefault((output.source, output.place), []).extend([str(output.attempt)] * count)
    for partition, count in history.inputs.items():
        position = history.positions.get(partition, 0)
        if position != count:
            text = f"input {partition}: the committed offset is {position}, the end of the input is {count}"
            yield Finding(Kind.HANGING if position < count else Kind.INVENTED, text)
        for offset in range(position):
            source = Source(partition, offset)
            for place in places_of(source):
                if (source, place) not in made:
                    text = f"input {partition}@{offset} has no output on {place}; its offset was committed"
                    yield Finding(Kind.MISSING, text)
    for (source, place), names in made.items():
        where = f"input {source.partition}@{source.offset} on {place}"
        if len(names) > 1:
            yield Finding(Kind.DUPLICATED, f"{where}: {', '.join(names)}")
        if source.offset >= history.positions.get(source.partition, 0):
            yield Finding(Kind.TORN, f"{where} is visible, and its offset was not committed ({names[0]})")


def _check_order(logs: Mapping[Place, Sequence[Stored]]) -> Iterator[Finding]:
    for place, log in logs.items():
        latest: dict[int, int] = {}
        reached = -1
        for offset, output in log:
            if offset <= reached:
                yield Finding(Kind.REORDERED, f"{place}: offset {offset} comes after {reached}")
            reached = offset
            if output is None:
                continue
            partition, at = output.source
            if at < latest.get(partition, -1):
                before = f"input {partition}@{latest[partition]}"
                yield Finding(Kind.REORDERED, f"{place}, offset {offset}: {output} stands behind {before}")
            latest[partition] = max(at, latest.get(partition, -1))


def _check_ends(observed: Mapping[str, Sequence[Ends]]) -> Iterator[Finding]:
    for place, rows in observed.items():
        before = Ends(0, 0)
        for ends in rows:
            if ends.last_stable > ends.high_watermark:
                text = f"{place}: the last stable offset passes the high watermark: {ends}"
                yield Finding(Kind.DIRTY, text)
            if ends.last_stable < before.last_stable or ends.high_watermark < before.high_watermark:
                yield Finding(Kind.BACKWARDS, f"{place}: {before} became {ends}")
            before = ends


def _check_committed(observed: Mapping[int, Sequence[int]]) -> Iterator[Finding]:
    for partition, positions in observed.items():
        for before, after in pairwise(positions):
            if after < before:
                text = f"input {partition}: the committed offset {before} became {after}"
                yield Finding(Kind.BACKWARDS, text)
