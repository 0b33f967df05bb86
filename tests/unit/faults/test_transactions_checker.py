"""The checker of transactions finds each violation that is planted, and nothing where there is none."""

from dataclasses import replace

import pytest

from faults.checker import Finding, Kind, Stored
from faults.transactions.checker import check
from faults.transactions.history import (
    PLACES,
    Attempt,
    AttemptId,
    Ends,
    History,
    Outcome,
    Output,
    Place,
    Source,
    attempts_of,
    begin_line,
    output_of,
    outputs_of,
    places_of,
    record_of,
)

FIRST, SECOND = AttemptId("p-1", 0), AttemptId("p-1", 1)
# With outputs on several partitions each.
SOURCES = tuple(Source(0, offset) for offset in range(20))
HALF = len(SOURCES) // 2
SENT = (*outputs_of(FIRST, SOURCES[:HALF]), *outputs_of(SECOND, SOURCES[HALF:]))
Logs = dict[Place, list[Stored]]


def logs_of(*outputs: Output) -> Logs:
    """Each record is followed by a marker."""
    logs: Logs = {place: [] for place in PLACES}
    for output in outputs:
        logs[output.place].append(Stored(2 * len(logs[output.place]), output))
    return logs


def history(
    logs: Logs | None = None, first: Outcome = Outcome.COMMITTED, second: Outcome = Outcome.COMMITTED
) -> History:
    """Two attempts, of which each processed a half of the inputs."""
    return History(
        attempts={FIRST: Attempt(first, SOURCES[:HALF]), SECOND: Attempt(second, SOURCES[HALF:])},
        visible=logs_of(*SENT) if logs is None else logs,
        inputs={0: len(SOURCES)},
        positions={0: len(SOURCES)},
    )


def half(outcome: Outcome) -> History:
    """Nothing but the first attempt was made visible."""
    only_first = logs_of(*outputs_of(FIRST, SOURCES[:HALF]))
    return replace(history(only_first, second=outcome), inputs={0: HALF}, positions={0: HALF})


def kinds(found: list[Finding]) -> set[Kind]:
    return {finding.kind for finding in found}


def test_a_history_without_a_fault_has_no_findings() -> None:
    made = history()
    logs = made.visible
    followed = {"a reader along": {place: log[:2] for place, log in logs.items()}}
    ends = {str(PLACES[0]): [Ends(0, 0), Ends(0, 4), Ends(4, 4), Ends(4, 4)]}
    assert check(replace(made, followed=followed, ends=ends)) == []


def test_a_commit_without_an_answer_may_be_visible_or_not() -> None:
    assert check(history(second=Outcome.UNCERTAIN)) == []
    assert check(half(Outcome.UNCERTAIN)) == []


def test_what_is_visible_of_a_transaction_in_one_partition_must_be_in_all() -> None:
    logs = logs_of(*SENT)
    torn = next(log for log in logs.values() if any(stored.mark.attempt == SECOND for stored in log))
    torn[:] = [stored for stored in torn if stored.mark.attempt != SECOND]
    assert Kind.TORN in kinds(check(history(logs, second=Outcome.UNCERTAIN)))


def test_a_confirmed_commit_must_be_visible() -> None:
    assert kinds(check(half(Outcome.COMMITTED))) == {Kind.MISSING}


@pytest.mark.parametrize("outcome", [Outcome.OPEN, Outcome.ABORTED])
def test_what_was_not_committed_is_never_visible_nor_found_by_a_reader_along(outcome: Outcome) -> None:
    assert kinds(check(history(second=outcome))) == {Kind.DIRTY}
    made = history()
    stranger = AttemptId("p-2", 0)
    output = outputs_of(stranger, [SOURCES[0]])[0]
    attempts = {**made.attempts, stranger: Attempt(outcome, (SOURCES[0],))}
    followed = {"a reader along": {output.place: [Stored(0, output)]}}
    assert Kind.DIRTY in kinds(check(replace(made, attempts=attempts, followed=followed)))


def test_what_a_reader_along_found_must_stay() -> None:
    made = history()
    place = PLACES[0]
    more = [*made.visible[place], Stored(1_000, made.visible[place][0].mark)]
    assert kinds(check(replace(made, followed={"a reader along": {place: more}}))) == {Kind.DIRTY}
    other = [*made.visible[place][:1], *made.visible[place][2:]]
    assert kinds(check(replace(made, followed={"a reader along": {place: other}}))) == {Kind.DIFFERENT}


def test_an_input_has_its_outputs_once_though_two_attempts_were_committed() -> None:
    again = AttemptId("p-2", 0)
    made = history(logs_of(*SENT, *outputs_of(again, SOURCES[-1:])))
    made.attempts = {**made.attempts, again: Attempt(Outcome.COMMITTED, SOURCES[-1:])}
    assert kinds(check(made)) == {Kind.DUPLICATED}


def test_a_record_is_visible_once() -> None:
    assert kinds(check(history(logs_of(*SENT, SENT[-1])))) == {Kind.DUPLICATED}


def test_offsets_and_outputs_are_committed_together() -> None:
    behind = replace(history(), positions={0: HALF}, inputs={0: HALF})
    assert kinds(check(behind)) == {Kind.TORN}
    only_first = logs_of(*outputs_of(FIRST, SOURCES[:HALF]))
    assert kinds(check(history(only_first, second=Outcome.UNCERTAIN))) == {Kind.MISSING}


def test_an_input_that_is_never_processed_is_found() -> None:
    assert kinds(check(replace(history(), inputs={0: len(SOURCES) + 1}))) == {Kind.HANGING}


def test_records_without_a_sender_are_found() -> None:
    for stranger in (
        None,
        outputs_of(AttemptId("p-9", 0), SOURCES[:1])[0],
        outputs_of(FIRST, SOURCES[-1:])[0],
    ):
        made = history()
        place = PLACES[0] if stranger is None else stranger.place
        made.visible = {**made.visible, place: [*made.visible[place], Stored(999, stranger)]}
        assert Kind.INVENTED in kinds(check(made)), stranger


def test_outputs_of_one_input_partition_keep_its_order() -> None:
    place = PLACES[0]
    made = history()
    (offset, one), (after, other), *rest = made.visible[place]
    made.visible = {**made.visible, place: [Stored(offset, other), Stored(after, one), *rest]}
    assert kinds(check(made)) == {Kind.REORDERED}


@pytest.mark.parametrize(
    ("ends", "kind"),
    [
        ([Ends(4, 4), Ends(3, 5)], Kind.BACKWARDS),
        ([Ends(2, 5), Ends(2, 4)], Kind.BACKWARDS),
        ([Ends(5, 4)], Kind.DIRTY),
    ],
)
def test_the_ends_of_a_log_never_go_back_nor_pass_each_other(ends: list[Ends], kind: Kind) -> None:
    assert kinds(check(replace(history(), ends={str(PLACES[0]): ends}))) == {kind}


def test_an_output_is_recognised_by_its_key_and_value_alone() -> None:
    for output in outputs_of(FIRST, SOURCES):
        assert output_of(*record_of(output)) == output
    key, value = record_of(outputs_of(FIRST, SOURCES)[0])
    for altered in (None, b"", value[:-1], value + b"/", b"x" + value):
        assert output_of(key, altered) is None
    assert output_of(b"p-1/x", value) is None


def test_sources_go_to_one_to_three_partitions_of_both_topics() -> None:
    counts = {len(set(places_of(Source(0, offset)))) for offset in range(200)}
    assert counts == {1, 2, 3}
    assert {place for offset in range(200) for place in places_of(Source(0, offset))} == set(PLACES)


def test_a_journal_says_how_far_each_attempt_came() -> None:
    lines = [begin_line(0, 1.5, SOURCES[:2]), "commit 0", "committed 0", begin_line(1, 2, ()), "aborted 1"]
    lines += [begin_line(2, 3, ()), begin_line(3, 4, SOURCES[2:3]), "commit 3"]
    assert attempts_of("p-1", lines) == {
        AttemptId("p-1", 0): Attempt(Outcome.COMMITTED, SOURCES[:2], 1.5),
        AttemptId("p-1", 1): Attempt(Outcome.ABORTED, (), 2.0),
        AttemptId("p-1", 2): Attempt(Outcome.OPEN, (), 3.0),
        AttemptId("p-1", 3): Attempt(Outcome.UNCERTAIN, SOURCES[2:3], 4.0),
    }


def test_a_committed_offset_never_goes_back() -> None:
    made = history()
    made.committed = {0: [1, 1, 2], 1: [2, 1]}
    assert kinds(check(made)) == {Kind.BACKWARDS}
