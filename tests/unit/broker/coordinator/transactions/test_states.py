"""The table of states: Kafka's numbers and names, and no way back from a decision."""

from tidelog.broker.coordinator.transactions.states import TRANSITIONS, TransactionState


def test_numbers_and_names_are_kafkas() -> None:
    assert [(int(state), state.label) for state in TransactionState] == [
        (0, "Empty"),
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
    ]


def test_a_decided_outcome_has_one_successor_which_is_that_outcome() -> None:
    assert TRANSITIONS.keys() == set(TransactionState)
    decided = {state: TRANSITIONS[state] for state in TransactionState if state.is_decided}
    assert decided == {
        TransactionState.PREPARE_COMMIT: {TransactionState.COMPLETE_COMMIT},
        TransactionState.PREPARE_ABORT: {TransactionState.COMPLETE_ABORT},
    }
    idle = {state for state in TransactionState if state.is_idle}
    assert idle == {
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    }
