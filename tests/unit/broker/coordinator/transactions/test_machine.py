"""What producers with a transactional id may do in which state, and what they are answered."""

import pytest

from tests.unit.broker.coordinator.transactions.site import LIMITS, P0, P1, TIMEOUT_MS, Site, code_of
from tidelog.broker.coordinator.decision import Decision
from tidelog.broker.coordinator.transactions.messages import Initialized
from tidelog.broker.coordinator.transactions.records import TransactionRecord
from tidelog.broker.coordinator.transactions.states import TransactionState
from tidelog.broker.coordinator.transactions.transaction import LAST_EPOCH, NO_TIMEOUT_MS, Producer
from tidelog.protocol.errors import ErrorCode

FENCED, CONCURRENT = ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS
INVALID, UNMAPPED = ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
COMMITTING, COMMITTED = TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT
ABORTING, ABORTED = TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT
both_versions = pytest.mark.parametrize("version", [1, 2])
restarted_or_not = pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])


@pytest.fixture
def site() -> Site:
    return Site()


@restarted_or_not
def test_new_ids_and_larger_transactions_are_refused_once_all_ids_hold_what_they_may(
    site: Site, restarts: bool
) -> None:
    client = site.begin()
    site.add(client, P0)
    limits = site.machine.limits._replace(max_bytes=site.machine.held_bytes)
    if restarts:
        site.restart()
    assert site.machine.held_bytes == limits.max_bytes
    site.machine.limits = limits
    ids_given = site.next_id
    assert code_of(site.begin, "y") == ErrorCode.POLICY_VIOLATION
    assert site.next_id == ids_given, "a refusal uses no producer id"
    assert code_of(site.add, client, P1) == ErrorCode.TRANSACTION_ABORTABLE
    site.add(client, P0)
    client = site.end(client, is_commit=False)
    site.finish()
    assert site.machine.held_bytes < limits.max_bytes
    site.add(client, P1)
    site.end(client)
    site.finish()
    assert site.begin().producer_id == client.producer_id


@restarted_or_not
def test_where_memory_is_lacking_the_longest_idle_ids_go_and_those_in_use_stay(
    site: Site, restarts: bool
) -> None:
    names = [f"id-{number:03}" for number in range(150)]
    clients = [site.begin(name) for name in names]
    site.add(clients[0], P0, name=names[0])
    if restarts:
        site.restart()
    site.machine.limits = site.machine.limits._replace(max_bytes=site.machine.held_bytes)
    assert code_of(site.begin, "early") == ErrorCode.POLICY_VIOLATION
    site.now_ms += LIMITS.max_timeout_ms
    site.begin(names[1])
    site.begin("new")
    kept = set(site.machine.ids())
    assert {names[0], names[1], "new"} <= kept
    assert kept.isdisjoint(names[2:102])
    assert kept.issuperset(names[102:])
    assert code_of(site.add, clients[2], P0, name=names[2]) == UNMAPPED


def test_memory_is_free_again_when_an_id_expires(site: Site) -> None:
    site.begin()
    site.now_ms += LIMITS.id_expiration_ms
    site.run(lambda now_ms: site.machine.forget_idle(["x"], now_ms))
    assert site.machine.held_bytes == 0


@pytest.mark.parametrize("timeout_ms", [-1, 0, LIMITS.max_timeout_ms + 1])
def test_a_timeout_that_is_not_positive_or_above_the_maximum_is_refused(site: Site, timeout_ms: int) -> None:
    assert code_of(site.initialize, timeout_ms=timeout_ms) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert not site.log


@restarted_or_not
def test_a_client_that_continues_after_an_error_gets_the_next_epoch_and_the_same_again_when_it_repeats(
    site: Site, restarts: bool
) -> None:
    first = site.begin()
    second = site.begin(expected=first)
    if restarts:
        site.restart()
    assert site.begin(expected=first) == second == Producer(101, 1)
    third = site.begin()
    assert third.epoch == 2
    for older in (first, second):
        assert code_of(site.initialize, expected=older) == FENCED
    assert code_of(site.initialize, expected=Producer(55, 0)) == FENCED


@restarted_or_not
def test_a_client_at_its_last_epoch_gets_a_new_id_and_the_same_again_when_it_repeats(
    site: Site, restarts: bool
) -> None:
    last = exhausted(site)
    renewed = site.begin(expected=last)
    assert renewed == Producer(102, 0)
    if restarts:
        site.restart()
    assert site.begin(expected=last) == renewed
    assert site.begin() == Producer(102, 1)


def exhausted(site: Site) -> Producer:
    """A client with the last epoch that a client may have."""
    client = site.begin()
    held = site.held()
    last = Producer(client.producer_id, LAST_EPOCH - 1)
    record = TransactionRecord("x", held._replace(producer=last))
    site.run(lambda now_ms: Decision((record,), None))
    return last


def test_a_client_that_begins_during_a_transaction_aborts_it_first(site: Site) -> None:
    first = site.begin()
    site.add(first, P0)
    assert site.initialize() is None
    assert site.held().state is ABORTING
    assert code_of(site.initialize) == CONCURRENT
    site.finish()
    assert site.markers == [(Producer(101, 1), False, P0)]
    assert site.begin() == Producer(101, 2)


def test_a_client_that_aborts_its_own_transaction_so_may_repeat_the_request(site: Site) -> None:
    first = site.begin()
    site.add(first, P0)
    assert site.begin(expected=first) == Producer(101, 1)
    assert code_of(site.initialize, expected=Producer(101, 5)) == FENCED


def test_a_delayed_repetition_of_a_beginning_does_not_abort_what_began_since(site: Site) -> None:
    first = site.begin()
    second = site.begin(expected=first)
    site.add(second, P0)
    assert site.initialize(expected=first) == Initialized(second)
    assert site.held().state is ONGOING


def test_an_id_with_the_last_epoch_in_a_transaction_that_is_fenced_gets_a_new_id(site: Site) -> None:
    last = exhausted(site)
    site.add(last, P0)
    assert site.begin() == Producer(102, 0)
    assert site.markers == [(Producer(101, LAST_EPOCH), False, P0)]
    assert code_of(site.add, Producer(101, LAST_EPOCH), P0) == UNMAPPED


def test_no_client_works_under_an_epoch_that_only_fenced(site: Site) -> None:
    last = exhausted(site)
    site.add(last, P0)
    site.initialize()
    site.finish()
    assert code_of(site.add, Producer(101, LAST_EPOCH), P0) == FENCED
    for version in (1, 2):
        assert code_of(site.end, Producer(101, LAST_EPOCH), False, version) == FENCED


def test_a_partition_that_takes_part_already_writes_nothing(site: Site) -> None:
    client = site.begin()
    site.add(client, P0)
    site.add(client, P0, P1)
    written = len(site.log)
    site.add(client, P1)
    site.add(client, P0, P1)
    assert len(site.log) == written
    assert site.held().partitions == {P0, P1}


def test_unknown_ids_and_producers_are_not_mapped(site: Site) -> None:
    client = site.begin()
    assert code_of(site.add, client, P0, name="y") == UNMAPPED
    assert code_of(site.add, Producer(5, 0), P0) == UNMAPPED
    assert code_of(site.end, client, name="y") == UNMAPPED
    assert code_of(site.end, Producer(5, 0)) == UNMAPPED
    assert code_of(site.run, lambda now: site.machine.describe("y")) == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


@both_versions
@restarted_or_not
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_an_end_that_is_repeated_gets_the_same_answer_and_another_outcome_is_refused(
    site: Site, version: int, restarts: bool, is_commit: bool
) -> None:
    client = site.begin()
    site.add(client, P0)
    answer = site.end(client, is_commit, version)
    assert answer == Producer(101, version - 1)
    for state in (COMMITTING, COMMITTED) if is_commit else (ABORTING, ABORTED):
        if restarts:
            site.restart()
        assert site.held().state is state
        if state.is_decided:
            assert code_of(site.end, client, is_commit, version) == CONCURRENT
            assert code_of(site.add, answer, P1) == CONCURRENT
        else:
            assert site.end(client, is_commit, version) == answer
        assert code_of(site.end, client, not is_commit, version) == INVALID
        site.finish()
    assert site.markers == [(Producer(101, version - 1), is_commit, P0)]


@restarted_or_not
def test_an_end_at_the_last_epoch_that_is_repeated_gets_the_same_new_id(site: Site, restarts: bool) -> None:
    last = exhausted(site)
    site.add(last, P0)
    renewed = site.end(last)
    assert renewed == Producer(102, 0)
    site.finish()
    if restarts:
        site.restart()
    assert site.end(last) == renewed
    site.add(renewed, P1)
    assert code_of(site.end, last) == UNMAPPED
    assert site.end(renewed) == Producer(102, 1)


def test_a_late_request_of_one_transaction_does_nothing_to_the_next(site: Site) -> None:
    first = site.begin()
    site.add(first, P0)
    second = site.end(first)
    site.finish()
    site.add(second, P1)
    for is_commit in (True, False):
        assert code_of(site.end, first, is_commit) == FENCED
    assert code_of(site.add, first, P0) == FENCED
    assert site.machine.permits("x", first, P0) == FENCED
    assert site.held().partitions == {P1}


def test_the_end_of_the_next_transaction_is_asked_for_again_until_the_one_before_it_has_its_markers(
    site: Site,
) -> None:
    """Its client added nothing that came here yet. It is the present one, so it must not be fenced."""
    first = site.begin()
    site.add(first, P0)
    second = site.end(first)
    for is_commit in (True, False):
        assert code_of(site.end, second, is_commit) == CONCURRENT
    site.finish()
    assert site.markers == [(second, True, P0)]
    assert site.end(second, is_commit=False) == second.fenced


@both_versions
def test_an_end_without_a_transaction_is_refused_except_an_abort_that_raises_the_epoch(
    site: Site, version: int
) -> None:
    client = site.begin()
    assert code_of(site.end, client, True, version) == INVALID
    if version == 1:
        assert code_of(site.end, client, False, version) == INVALID
        return
    for epoch in (1, 2):
        client = site.end(client, is_commit=False)
        assert client == Producer(101, epoch)
        assert site.held().state is ABORTED
        assert site.end(client._replace(epoch=epoch - 1), is_commit=False) == client
    assert code_of(site.end, client, True) == INVALID


def test_a_partition_is_permitted_once_its_part_is_durable_and_until_the_end_is_decided(site: Site) -> None:
    client = site.begin()
    site.run(site.machine.add_partitions("x", client, [P0]))
    assert site.machine.permits("x", client, P0) == INVALID
    site.machine.confirm("x", client, [P0])
    assert site.machine.permits("x", client, P0) == ErrorCode.NONE
    assert site.machine.permits("x", client, P1) == INVALID
    assert site.machine.permits("y", client, P0) == UNMAPPED
    site.restart()
    assert site.machine.permits("x", client, P0) == ErrorCode.NONE
    site.end(client, version=1)
    site.machine.confirm("x", client, [P0])
    assert site.machine.permits("x", client, P0) == CONCURRENT
    site.finish()
    assert site.machine.permits("x", client, P0) == INVALID


def test_a_transaction_past_its_timeout_is_aborted_and_its_producer_fenced(site: Site) -> None:
    client = site.begin()
    site.add(client, P0)
    site.now_ms += TIMEOUT_MS
    names = list(site.machine.active_ids())
    assert site.run(lambda now_ms: site.machine.abort_timed_out(names, now_ms)) == []
    site.now_ms += 1
    assert site.run(lambda now_ms: site.machine.abort_timed_out(names, now_ms)) == ["x"]
    assert code_of(site.end, client) == FENCED
    site.finish()
    assert site.markers == [(Producer(101, 1), False, P0)]
    for is_commit in (True, False):
        assert code_of(site.end, client, is_commit) == FENCED


def test_an_id_is_forgotten_after_its_time_of_expiry_unless_it_has_a_transaction(site: Site) -> None:
    clients = {name: site.begin(name) for name in "xyz"}
    for name in "xy":
        site.add(clients[name], P0, name=name)
    site.end(clients["x"], name="x")
    site.finish("x")
    names = list(site.machine.ids())
    site.now_ms += LIMITS.id_expiration_ms - 1
    site.run(lambda now_ms: site.machine.forget_idle(names, now_ms))
    assert set(site.machine.ids()) == {"x", "y", "z"}
    site.now_ms += 1
    site.run(lambda now_ms: site.machine.forget_idle(names, now_ms))
    assert list(site.machine.ids()) == ["y"]
    site.restart()
    assert list(site.machine.ids()) == list(site.machine.active_ids()) == ["y"]
    # A producer that was away for longer begins anew, with an id that no client had.
    assert site.begin("x", expected=clients["x"]) == Producer(104, 0)


TWO_PHASES = {"has_two_phase_commit": True}
KEEPS = {"has_two_phase_commit": True, "keeps_prepared": True}


def test_a_transaction_of_two_phase_commit_has_no_timeout(site: Site) -> None:
    client = site.begin(timeout_ms=0, **TWO_PHASES)
    assert site.held().timeout_ms == NO_TIMEOUT_MS
    site.add(client, P0)
    site.now_ms = 1 << 60
    assert site.run(lambda now_ms: site.machine.abort_timed_out(["x"], now_ms)) == []


@restarted_or_not
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_a_prepared_transaction_is_ended_by_another_client_and_by_that_alone(
    site: Site, restarts: bool, is_commit: bool
) -> None:
    first = site.begin(**TWO_PHASES)
    site.add(first, P0)
    second = Producer(101, 1)
    assert site.initialize(**KEEPS) == Initialized(second, first)
    if restarts:
        site.restart()
    assert code_of(site.end, first, is_commit) == FENCED
    assert code_of(site.add, first, P1) == FENCED
    assert code_of(site.add, second, P1) == INVALID
    assert site.machine.permits("x", second, P0) == INVALID
    third = site.end(second, is_commit)
    assert third == Producer(101, 2)
    site.finish()
    assert site.markers == [(Producer(101, 1), is_commit, P0)]
    assert site.end(second, is_commit) == third
    assert site.held().producer == third


def test_a_client_that_keeps_a_transaction_may_repeat_that_and_another_may_keep_it_again(site: Site) -> None:
    first = site.begin(**TWO_PHASES)
    site.add(first, P0)
    kept = site.initialize(expected=first, **KEEPS)
    assert site.initialize(expected=first, **KEEPS) == kept == Initialized(Producer(101, 1), first)
    assert site.initialize(**KEEPS) == Initialized(Producer(101, 2), first)
    assert code_of(site.end, kept.client) == FENCED


def test_a_client_that_keeps_where_there_is_nothing_to_keep_just_begins(site: Site) -> None:
    assert site.initialize(**KEEPS) == Initialized(Producer(101, 0))
    assert site.initialize(**KEEPS) == Initialized(Producer(101, 1))
    assert code_of(site.initialize, keeps_prepared=True) == ErrorCode.INVALID_REQUEST


def test_a_client_that_does_not_keep_aborts_the_prepared_transaction(site: Site) -> None:
    first = site.begin(**TWO_PHASES)
    site.add(first, P0)
    site.initialize(**KEEPS)
    assert site.initialize() is None
    site.finish()
    assert site.markers == [(Producer(101, 1), False, P0)]
    assert site.begin() == Producer(101, 3)


def test_a_transaction_that_is_kept_more_often_than_there_are_epochs_gets_a_new_id(site: Site) -> None:
    last = exhausted(site)
    site.add(last, P0)
    assert site.initialize(**KEEPS) == Initialized(Producer(102, 0), last)
    assert site.end(Producer(102, 0)) == Producer(102, 1)
    site.finish()
    assert site.markers == [(Producer(101, LAST_EPOCH), True, P0)]


def test_markers_of_an_earlier_decision_do_not_complete_a_later_one(site: Site) -> None:
    client = site.begin()
    site.add(client, P0)
    client = site.end(client)
    earlier = site.held().producer
    site.finish()
    site.add(client, P1)
    site.end(client)
    site.run(site.machine.complete("x", earlier))
    assert site.held().state is COMMITTING
