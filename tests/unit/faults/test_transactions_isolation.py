"""The history of a trial of transactions is judged as lists and registers."""

from dataclasses import replace

from faults.checker import Stored
from faults.histories.history import G0, G1A, G1C, GARBAGE_READ, LOST_UPDATE
from faults.transactions.history import (
    Attempt,
    AttemptId,
    History,
    Outcome,
    Output,
    Place,
    Source,
    outputs_of,
)
from faults.transactions.isolation import check

FIRST, SECOND, OTHER = AttemptId("a-0-0", 0), AttemptId("a-0-0", 1), AttemptId("b-1-0", 0)
SOURCES = tuple(Source(0, offset) for offset in range(9))


def logs_of(*outputs: Output) -> dict[Place, list[Stored]]:
    logs: dict[Place, list[Stored]] = {}
    for output in outputs:
        log = logs.setdefault(output.place, [])
        log.append(Stored(len(log), output))
    return logs


def history(*attempts: tuple[AttemptId, tuple[Source, ...]]) -> History:
    """Attempts that were committed one after the other."""
    named = {
        name: Attempt(Outcome.COMMITTED, sources, begun) for begun, (name, sources) in enumerate(attempts)
    }
    visible = logs_of(*(output for name, sources in attempts for output in outputs_of(name, sources)))
    return History(attempts=named, visible=visible, inputs={0: len(SOURCES)})


GOOD = history((FIRST, SOURCES[:3]), (SECOND, SOURCES[3:6]), (OTHER, SOURCES[6:]))


def names(observed: History) -> set[str]:
    return {each.name for each in check(observed)}


def test_a_good_history_has_no_anomaly() -> None:
    assert names(GOOD) == set()


def test_inputs_that_two_transactions_committed_are_a_lost_update() -> None:
    assert LOST_UPDATE in names(history((FIRST, SOURCES[:3]), (OTHER, SOURCES[:5])))


def test_inputs_that_begin_where_no_transaction_ended_are_a_garbage_read() -> None:
    assert names(history((FIRST, SOURCES[:3]), (OTHER, SOURCES[2:5]))) == {GARBAGE_READ}


def test_outputs_before_those_of_the_transaction_before_are_a_cycle() -> None:
    reordered = logs_of(*outputs_of(SECOND, SOURCES[3:6]), *outputs_of(FIRST, SOURCES[:3]))
    found = names(replace(history((FIRST, SOURCES[:3]), (SECOND, SOURCES[3:6])), visible=reordered))
    assert found & {G1C, f"{G0}-process"}


def test_an_output_of_an_aborted_transaction_that_somebody_read_is_an_aborted_read() -> None:
    attempts = {**GOOD.attempts, OTHER: Attempt(Outcome.ABORTED, SOURCES[6:], 9)}
    without = logs_of(
        *outputs_of(FIRST, SOURCES[:3]),
        *outputs_of(SECOND, SOURCES[3:6]),
    )
    assert names(replace(GOOD, attempts=attempts, visible=without)) == set()
    assert G1A in names(
        replace(GOOD, attempts=attempts, visible=without, followed={"a reader": GOOD.visible})
    )
