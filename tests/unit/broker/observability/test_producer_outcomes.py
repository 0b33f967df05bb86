"""Duplicates and refusals by producer and partition, bounded."""

from uuid import UUID

from tidelog.broker.observability.producer_outcomes import Place, ProducerOutcomes, Refused
from tidelog.protocol.errors import ErrorCode

HERE, ELSEWHERE = Place(UUID(int=1), 0), Place(UUID(int=1), 1)
CODE = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_duplicates_and_refusals_are_counted_by_producer_and_partition() -> None:
    outcomes = ProducerOutcomes()
    outcomes.duplicate(HERE, 7, 10, in_window=True)
    outcomes.duplicate(HERE, 7, 20, in_window=False)
    outcomes.refused(HERE, 7, 0, CODE, "first", 30)
    outcomes.refused(HERE, 7, 1, CODE, "second", 40)
    outcomes.refused(ELSEWHERE, 7, 1, ErrorCode.INVALID_PRODUCER_EPOCH, "old", 50)
    here = outcomes.get(HERE, 7)
    assert here is not None
    assert (here.in_window, here.below_window, here.last_duplicate_ms) == (1, 1, 20)
    assert here.refused == {CODE: Refused(2, 1, 40, "second")}
    assert outcomes.get(HERE, 8) is None


def test_the_oldest_entry_is_replaced() -> None:
    outcomes = ProducerOutcomes(most=2)
    for producer_id in (1, 2, 1, 3):
        outcomes.refused(HERE, producer_id, 0, CODE, "", 0)
    outcomes.refused(ELSEWHERE, 3, 0, CODE, "", 0)
    assert [key for *key, _ in outcomes.latest()] == [[ELSEWHERE, 3], [HERE, 3]]
