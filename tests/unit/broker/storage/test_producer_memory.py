"""What is remembered of producers, and whom the memory forgets."""

from tests.unit.broker.storage.machines import DAY_MS, TRANSACTIONAL, Log, code, states
from tests.unit.broker.storage.support import NEVER_ISSUED, NOW_MS, header
from tidelog.broker.storage.producer_memory import ProducerStates
from tidelog.broker.storage.producer_state import Append, Duplicate, ProducerRules
from tidelog.protocol.errors import ErrorCode


def test_a_clock_that_goes_back_expires_no_producer_early() -> None:
    machine = states(expiration_ms=DAY_MS)
    machine.apply(header(1, 0, 0), 0, NOW_MS)
    machine.apply(header(2, 0, 0), 1, NOW_MS - 10 * DAY_MS)
    assert machine.expire(NOW_MS + DAY_MS - 1) == 0


def test_who_was_evicted_is_kept_in_mind_for_the_next_thousand() -> None:
    log = Log(ProducerStates(ProducerRules(max_producers=1), lambda: 10_000))
    for producer_id in range(1_002):
        assert log.send(producer_id, 0, 0) == Append()
    assert code(log.send(1, 0, 0)) == ErrorCode.UNKNOWN_PRODUCER_ID
    assert log.send(0, 0, 0) == Append()
    assert len(log.machine._evicted_epochs) == 1_000


def test_the_next_sequence_follows_the_last_batch_of_the_epoch_and_is_0_for_what_is_new() -> None:
    log = Log(states(max_producers=1))
    assert log.machine.next_sequence(header(1, 0, 5)) == 0
    assert log.machine.next_sequence(header(NEVER_ISSUED, 0, 5)) is None
    log.send(1, 0, 0, 3)
    assert log.machine.next_sequence(header(1, 0, 5)) == 3
    assert log.machine.next_sequence(header(1, 1, 5)) == 0
    log.send(2, 0, 0)
    assert log.machine.next_sequence(header(1, 0, 5)) is None  # It was evicted in this epoch.
    assert log.machine.next_sequence(header(1, 1, 5)) == 0


def test_an_open_transaction_keeps_its_producer() -> None:
    machine = states(max_producers=2, expiration_ms=1)
    machine.apply(header(1, 0, 0, attributes=TRANSACTIONAL), 0, NOW_MS)
    machine.apply(header(2, 0, 0), 1, NOW_MS)
    machine.apply(header(3, 0, 0), 2, NOW_MS)
    assert {entry.producer_id for entry in machine.entries()} == {1, 3}
    machine.expire(NOW_MS + DAY_MS)
    assert [entry.producer_id for entry in machine.entries()] == [1]
    assert code(machine.check(header(1, 0, 1))) == ErrorCode.INVALID_TXN_STATE


def test_a_forgotten_producer_is_unknown() -> None:
    log = Log(states())
    log.send(1, 0, 0)
    assert log.machine.forget(1)
    assert not log.machine.forget(1)
    assert code(log.send(1, 0, 1)) == ErrorCode.UNKNOWN_PRODUCER_ID


def test_what_is_frozen_does_not_change_until_thawed() -> None:
    machine = states()
    for producer_id in range(200):
        machine.apply(header(producer_id, 0, 0), producer_id, NOW_MS)
    before = list(machine.entries())
    frozen = machine.freeze()
    for producer_id in range(50, 400):
        machine.apply(header(producer_id, 1, 0), producer_id, NOW_MS + 1)
    machine.forget(3)
    after = list(machine.entries())
    machine.thaw()
    restored = ProducerStates(ProducerRules(), lambda: NEVER_ISSUED, frozen)
    assert list(restored.entries()) == before
    assert list(machine.entries()) == after


def test_a_million_slots_cost_less_than_300_bytes_each() -> None:
    from tidelog.broker.storage.producer_table import SLOT_SIZE

    dictionary_and_two_ints = 110
    assert SLOT_SIZE + 2 * 4 + dictionary_and_two_ints <= 300


def test_many_who_write_in_turn_are_all_remembered_in_the_order_of_their_last_append() -> None:
    log = Log(ProducerStates(ProducerRules(), lambda: 10_000))
    writers = 1_500
    for number in range(7):
        for producer_id in range(writers):
            assert log.send(producer_id, 0, number) == Append()
    entries = list(log.machine.entries())
    assert [entry.producer_id for entry in entries] == list(range(writers))
    assert all([batch.last_sequence for batch in entry.batches] == [2, 3, 4, 5, 6] for entry in entries)


def test_what_a_producer_wrote_since_anybody_looked_is_bounded() -> None:
    log = Log(ProducerStates(ProducerRules(), lambda: 10_000))
    for number in range(1_000):
        log.send(1, 0, number)
    assert sum(len(recent.batches) for recent in log.machine._recent.values()) == 5
    for producer_id in range(2, 1_500):
        log.send(producer_id, 0, 0)
    assert len(log.machine._recent) <= 1_024


def test_an_epoch_that_begins_between_two_looks_at_the_table_forgets_the_older_batches() -> None:
    log = Log(states())
    log.send(1, 0, 0)
    assert log.machine.entry(1)
    log.send(1, 0, 1)
    log.send(1, 1, 0)
    log.send(1, 2, 0, 4)
    entry = log.machine.entry(1)
    assert entry is not None
    assert (entry.producer_epoch, [batch.last_sequence for batch in entry.batches]) == (2, [3])
    assert log.send(1, 2, 0, 4) == Duplicate(4 - 1, 6, NOW_MS)
