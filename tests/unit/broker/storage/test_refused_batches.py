"""Which batches count as behind refused ones, for how long, and how many are remembered."""

import pytest

from tests.unit.broker.storage.support import header
from tidelog.broker.storage.refused_batches import (
    MOST_BATCHES,
    MOST_PRODUCERS,
    REMEMBERED_MS,
    RefusedBatches,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.types import MAX_SEQUENCE

FULL = ErrorCode.KAFKA_STORAGE_ERROR
TOO_FEW = ErrorCode.NOT_ENOUGH_REPLICAS


class Lab:
    """One partition, one producer."""

    def __init__(self) -> None:
        self.refused = RefusedBatches()

    def refuse(
        self, sequence: int, count: int = 10, code: ErrorCode = FULL, now_ms: int = 0, *, epoch: int = 0
    ) -> None:
        self.refused.note("t", 0, header(7, epoch, sequence, count), code, now_ms)

    def before(
        self, sequence: int, expected: int = 0, now_ms: int = 0, *, epoch: int = 0, partition: int = 0
    ) -> ErrorCode | None:
        return self.refused.code_before("t", partition, header(7, epoch, sequence), expected, now_ms)


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_the_code_is_that_of_the_first_refused_batch(lab: Lab) -> None:
    lab.refuse(0)
    lab.refuse(10, code=TOO_FEW)
    assert lab.before(10) == FULL
    assert lab.before(20) == FULL
    assert lab.before(20, expected=10) == TOO_FEW


def test_each_sequence_of_the_gap_was_in_a_refused_batch(lab: Lab) -> None:
    lab.refuse(0)
    lab.refuse(20)
    assert lab.before(9) == FULL
    assert lab.before(11) is None
    assert lab.before(30) is None
    assert lab.before(20, expected=5) is None
    assert lab.before(0) is None


def test_a_refused_batch_may_come_again_as_smaller_ones(lab: Lab) -> None:
    lab.refuse(MAX_SEQUENCE - 4)
    assert lab.before(5, expected=2) == FULL
    assert lab.before(4, expected=2) == FULL
    assert lab.before(6, expected=2) is None
    lab.refuse(5)
    assert lab.before(12, expected=MAX_SEQUENCE) == FULL
    assert lab.before(16, expected=MAX_SEQUENCE) is None
    lab.refuse(0, count=3, code=TOO_FEW, now_ms=REMEMBERED_MS)
    assert lab.before(2, now_ms=REMEMBERED_MS) == TOO_FEW
    assert lab.before(4, now_ms=REMEMBERED_MS) is None


def test_batches_that_claim_all_sequences_end_the_search(lab: Lab) -> None:
    lab.refuse(0, count=MAX_SEQUENCE)
    lab.refuse(MAX_SEQUENCE, count=2)
    assert lab.before(0, expected=1) is None


def test_a_batch_that_is_refused_for_good_in_the_end_fills_no_gap(lab: Lab) -> None:
    lab.refuse(0, code=TOO_FEW)
    lab.refuse(0, code=ErrorCode.RECORD_LIST_TOO_LARGE)
    assert lab.before(10) is None


def test_epochs_and_partitions_are_apart(lab: Lab) -> None:
    lab.refuse(0)
    assert lab.before(10, epoch=1) is None
    assert lab.before(10, partition=1) is None
    lab.refuse(0, epoch=1, code=TOO_FEW)
    assert (lab.before(10), lab.before(10, epoch=1)) == (FULL, TOO_FEW)


def test_a_batch_that_is_not_sent_again_in_time_fills_no_gap(lab: Lab) -> None:
    lab.refuse(0)
    lab.refuse(10, now_ms=1_000)
    assert lab.before(20, now_ms=REMEMBERED_MS - 1) == FULL
    assert lab.before(20, now_ms=REMEMBERED_MS) is None
    assert lab.before(20, expected=10, now_ms=REMEMBERED_MS) == FULL
    lab.refuse(0, now_ms=REMEMBERED_MS)
    assert lab.before(20, now_ms=REMEMBERED_MS) == FULL


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.CORRUPT_MESSAGE,
    ],
)
def test_what_is_not_sent_again_unchanged_fills_no_gap(lab: Lab, code: ErrorCode) -> None:
    lab.refuse(0, code=code)
    assert lab.before(10) is None
    assert len(lab.refused) == 0


def test_sequences_wrap(lab: Lab) -> None:
    lab.refuse(MAX_SEQUENCE - 4)
    assert lab.before(5, expected=MAX_SEQUENCE - 4) == FULL


def test_no_header_makes_the_search_endless(lab: Lab) -> None:
    lab.refuse(0, count=MAX_SEQUENCE + 1)
    assert lab.before(10) is None
    lab.refuse(-1)
    lab.refuse(0, count=0)
    assert lab.before(10) is None


def test_the_batches_of_a_producer_are_as_many_as_clients_have_in_flight(lab: Lab) -> None:
    for number in range(MOST_BATCHES):
        lab.refuse(number * 10)
    lab.refuse(0)  # Sent again, so it is the last one that came.
    assert lab.before(MOST_BATCHES * 10) == FULL
    lab.refuse(MOST_BATCHES * 10)
    assert lab.before(10) == FULL
    assert lab.before(20) is None


def test_the_producers_are_limited_and_the_longest_ago_is_forgotten() -> None:
    refused = RefusedBatches()
    for producer_id in range(MOST_PRODUCERS):
        refused.note("t", 0, header(producer_id, 0, 0), FULL, 0)
    refused.note("t", 0, header(0, 0, 0), FULL, 0)
    refused.note("t", 1, header(0, 0, 0), FULL, 0)
    assert len(refused) == MOST_PRODUCERS
    found = [refused.code_before("t", 0, header(each, 0, 1), 0, 0) for each in range(3)]
    assert found == [FULL, None, FULL]
