"""The rules of a transactional producer, one test a rule."""

import pytest

from tidelog.client import (
    ClientError,
    DeliveryFailedError,
    ProducerFencedError,
    TopicPartition,
    TransactionAbortableError,
    TransactionStateError,
)
from tidelog.client.producer.transaction_state import (
    TRANSITIONS,
    Event,
    Meaning,
    Phase,
    Request,
    TransactionState,
    error_of,
    meaning_of,
)
from tidelog.protocol.errors import ErrorCode

KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
FAILURE = DeliveryFailedError("refused", *KEY)


def ready(*, has_epochs: bool = True) -> TransactionState:
    state = TransactionState("app")
    state.initialized(has_epoch_per_transaction=has_epochs)
    return state


def begun(*, has_epochs: bool = True) -> TransactionState:
    state = ready(has_epochs=has_epochs)
    state.begin()
    return state


@pytest.mark.parametrize("event", Event)
def test_an_event_that_the_table_does_not_have_changes_nothing_and_is_an_error(event: Event) -> None:
    for phase in Phase:
        state = TransactionState("app")
        state.phase, state.error = phase, FAILURE
        if (phase, event) in TRANSITIONS:
            state.change(event)
            assert state.phase is TRANSITIONS[phase, event]
        else:
            with pytest.raises(ClientError):
                state.change(event)
            assert state.phase is phase


def test_after_a_failure_only_an_abort_is_allowed() -> None:
    allowed = {event for event in Event if (Phase.ABORTABLE_ERROR, event) in TRANSITIONS}
    assert allowed == {Event.ABORT, Event.FAILED, Event.FAILED_FOR_GOOD}
    state = begun()
    state.fail(FAILURE)
    with pytest.raises(TransactionAbortableError, match=r"refused.*abort_transaction") as refused:
        state.require_transaction()
    assert refused.value.__cause__ is FAILURE
    state.change(Event.ABORT)
    state.ended()
    state.begin()
    state.require_transaction()


def test_after_a_fatal_error_nothing_is_allowed_and_every_call_raises_it() -> None:
    assert {event for event in Event if (Phase.FATAL_ERROR, event) in TRANSITIONS} == {Event.FAILED_FOR_GOOD}
    state = begun()
    fenced = ProducerFencedError("another one")
    state.fail_for_good(fenced)
    state.fail(FAILURE)
    for event in (Event.BEGIN, Event.COMMIT, Event.ABORT):
        with pytest.raises(ProducerFencedError):
            state.change(event)
    with pytest.raises(ProducerFencedError):
        state.require_transaction()


def test_a_commit_that_was_sent_can_only_be_sent_again() -> None:
    state = begun()
    state.change(Event.COMMIT)
    state.change(Event.COMMIT_SENT)
    for event in (Event.ABORT, Event.BEGIN):
        with pytest.raises(TransactionStateError, match="does not know yet"):
            state.change(event)
    state.change(Event.COMMIT)
    state.ended()
    state.begin()


def test_records_belong_to_the_transaction_in_which_they_were_given() -> None:
    state = begun()
    first = state.number
    state.change(Event.COMMIT)
    with pytest.raises(TransactionStateError, match="transaction that is open"):
        state.require_transaction(first)
    state.ended()
    state.begin()
    with pytest.raises(TransactionStateError, match="has ended"):
        state.require_transaction(first)


def test_a_partition_waits_until_it_was_added_in_each_transaction() -> None:
    state = begun(has_epochs=False)
    for _ in range(2):
        assert not state.admits(KEY)
        assert not state.admits(OTHER)
        assert state.to_add == [KEY, OTHER]
        state.added([KEY])
        assert state.admits(KEY)
        assert state.to_add == [OTHER]
        state.change(Event.COMMIT)
        state.ended()
        state.begin()


def test_where_brokers_add_partitions_none_waits() -> None:
    state = begun()
    assert state.admits(KEY)
    assert state.to_add == []


@pytest.mark.parametrize("has_epochs", [False, True])
def test_no_new_batch_is_sent_after_a_failure_or_outside_a_transaction(has_epochs: bool) -> None:
    state = ready(has_epochs=has_epochs)
    assert not state.admits(KEY)
    state.begin()
    state.added([KEY])
    assert state.admits(KEY)
    state.fail(FAILURE)
    assert not state.admits(KEY)
    assert state.to_add == []


def test_an_empty_transaction_has_no_end_to_send() -> None:
    state = begun()
    assert not state.needs_end
    state.admits(KEY)
    assert state.needs_end


def test_after_a_failure_the_next_transaction_has_a_new_epoch() -> None:
    for has_new_epoch in (False, True):
        state = begun()
        state.admits(KEY)
        state.fail(FAILURE)
        state.change(Event.ABORT)
        state.decided(has_new_epoch=has_new_epoch)
        assert state.must_initialize is not has_new_epoch
        state.initialized(has_epoch_per_transaction=True)
        assert not state.must_initialize


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_coordinator_that_forgot_the_producer_gets_no_end(code: ErrorCode) -> None:
    state = begun()
    state.adding()
    state.fail(FAILURE, code)
    assert not state.needs_end
    assert state.must_initialize


_ENDING = (Request.ADD_PARTITIONS, Request.ADD_OFFSETS, Request.END)


@pytest.mark.parametrize(
    ("code", "requests", "meaning"),
    [
        (ErrorCode.NONE, tuple(Request), Meaning.DONE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, tuple(Request), Meaning.RETRY),
        (ErrorCode.NOT_COORDINATOR, tuple(Request), Meaning.RETRY),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, tuple(Request), Meaning.RETRY),
        (ErrorCode.PRODUCER_FENCED, tuple(Request), Meaning.FATAL),
        (ErrorCode.INVALID_PRODUCER_EPOCH, tuple(Request), Meaning.FATAL),
        (ErrorCode.INVALID_TXN_STATE, _ENDING, Meaning.FATAL),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _ENDING, Meaning.FATAL),
        (ErrorCode.UNSUPPORTED_VERSION, tuple(Request), Meaning.FATAL),
        (ErrorCode.TRANSACTION_ABORTABLE, (*_ENDING, Request.COMMIT_OFFSETS), Meaning.ABORTABLE),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, (*_ENDING, Request.COMMIT_OFFSETS), Meaning.ABORTABLE),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, (*_ENDING, Request.COMMIT_OFFSETS), Meaning.ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, _ENDING, Meaning.ABORTABLE),
        (ErrorCode.UNKNOWN_PRODUCER_ID, _ENDING, Meaning.ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, (Request.COMMIT_OFFSETS,), Meaning.FATAL),
        (ErrorCode.UNKNOWN_MEMBER_ID, (Request.COMMIT_OFFSETS,), Meaning.ABORTABLE),
        (ErrorCode.ILLEGAL_GENERATION, (Request.COMMIT_OFFSETS,), Meaning.ABORTABLE),
        (ErrorCode.FENCED_INSTANCE_ID, (Request.COMMIT_OFFSETS,), Meaning.ABORTABLE),
        (ErrorCode.ILLEGAL_GENERATION, _ENDING, Meaning.FATAL),
    ],
)
def test_what_each_code_means(code: ErrorCode, requests: tuple[Request, ...], meaning: Meaning) -> None:
    assert {meaning_of(request, code) for request in requests} == {meaning}


def test_a_start_has_nothing_to_abort() -> None:
    assert Meaning.ABORTABLE not in {meaning_of(Request.INITIALIZE, code) for code in ErrorCode}


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_zombie_gets_a_clear_error(code: ErrorCode) -> None:
    error = error_of(Request.END, code, "app")
    assert isinstance(error, ProducerFencedError)
    assert "another producer with this id was started" in str(error)
    assert "'app'" in str(error)


def test_an_abort_that_the_coordinator_has_nothing_for_is_done_and_the_next_transaction_has_a_new_epoch() -> (
    None
):
    """With `transaction.version` 1, where the request that adds the partitions was lost."""
    state = begun(has_epochs=False)
    state.adding()
    assert state.meaning(Request.END, ErrorCode.INVALID_TXN_STATE) is Meaning.FATAL
    state.change(Event.ABORT)
    assert state.meaning(Request.END, ErrorCode.INVALID_TXN_STATE) is Meaning.ABORTABLE
    assert state.meaning(Request.INITIALIZE, ErrorCode.INVALID_TXN_STATE) is Meaning.FATAL
    state.fail(FAILURE, ErrorCode.INVALID_TXN_STATE)
    assert (state.phase, state.must_initialize) == (Phase.ABORTING, True)


def test_a_prepared_transaction_takes_nothing_more_and_fails_no_more() -> None:
    state = begun()
    state.change(Event.PREPARE)
    assert state.admits(KEY)
    state.change(Event.PREPARED)
    assert not state.admits(KEY)
    with pytest.raises(TransactionStateError, match="has prepared a transaction"):
        state.require_transaction()
    state.fail(FAILURE)
    for event in (Event.COMMIT, Event.COMMIT_SENT):
        state.change(event)
    state.ended()
    state.begin()


def test_an_abort_adds_no_more_partitions_and_ends_only_what_was_begun() -> None:
    state = begun(has_epochs=False)
    assert not state.admits(KEY)
    state.change(Event.ABORT)
    assert state.to_add == []
    assert not state.needs_end
    state.added([KEY])
    assert state.needs_end
