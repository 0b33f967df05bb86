"""What a pass over the partitions of a Fetch may read: the first batch always, then both limits."""

import pytest

from tidelog.broker.handlers.fetch_budget import FetchBudget
from tidelog.broker.storage.log_types import Read, ReadResult
from tidelog.protocol.hot import FetchPartitionResult


def took(
    budget: FetchBudget, size_bytes: int, *, offset: int = 0, next_offset: int = 9, upper_offset: int = 9
) -> None:
    records = [memoryview(bytes(size_bytes))] if size_bytes else []
    read = Read(offset, budget.left_bytes, upper_offset)
    result = FetchPartitionResult(len(budget.results), 0)
    budget.took("t", result, ReadResult(records, next_offset), read, "t", is_throttled=False)


def test_the_first_partition_with_data_may_give_a_batch_beyond_the_limits() -> None:
    budget = FetchBudget(150)
    took(budget, 0)
    assert budget.size_bytes == 0
    took(budget, 90)
    assert budget.left_bytes == 60
    took(budget, 60)
    assert budget.left_bytes == 0
    assert budget.size_bytes == 150
    assert budget.sizes == {"t": 150}
    assert [has_records for _, _, has_records in budget.results] == [False, True, True]


@pytest.mark.parametrize(("next_offset", "is_more"), [(5, True), (9, False)])
def test_more_in_the_next_segment_is_no_reason_to_wait(next_offset: int, is_more: bool) -> None:
    budget = FetchBudget(150)
    took(budget, 10, next_offset=next_offset)
    assert budget.must_answer is is_more


def test_what_did_not_fit_and_what_was_refused_comes_again() -> None:
    budget = FetchBudget(0)
    took(budget, 0)
    took(budget, 0, offset=9)
    budget.answer_without_records("t", FetchPartitionResult(2, 3), comes_again=True)
    budget.answer_without_records("t", FetchPartitionResult(3, 0), comes_again=False, at_once=False)
    assert budget.left == [("t", 0), ("t", 2)]
    assert budget.must_answer
