"""What the checker's facts are made of: marks in records, and the schedule that a seed decides."""

from collections.abc import Mapping
from itertools import islice

import pytest

from faults.checker import Mark
from faults.marks import mark_of, record_of
from faults.schedule import PROCESSORS, WRITERS, FaultKind, schedule


@pytest.mark.parametrize("mark", [Mark(0, 0, 0), Mark(3, 1, 123_456), Mark(12, 15, 7)])
def test_a_record_says_who_it_is(mark: Mark) -> None:
    assert mark_of(*record_of(mark)) == mark


def test_an_altered_record_is_none_of_ours() -> None:
    key, value = record_of(Mark(1, 2, 3))
    assert mark_of(key, value[:-1]) is None
    assert mark_of(key, b"x" + value[1:]) is None
    assert mark_of(b"1/2/4", value) is None
    assert mark_of(b"1/2", value) is None
    assert mark_of(None, value) is None


def test_values_differ_in_size_so_that_batches_do() -> None:
    assert len({len(record_of(Mark(0, 0, counter))[1]) for counter in range(100)}) > 50


def test_a_seed_decides_the_schedule() -> None:
    assert list(islice(schedule(7), 200)) == list(islice(schedule(7), 200))
    assert list(islice(schedule(7), 200)) != list(islice(schedule(8), 200))


@pytest.mark.parametrize("weights", [WRITERS, PROCESSORS])
def test_a_schedule_begins_with_every_kind_once(weights: Mapping[FaultKind, int]) -> None:
    assert {step.kind for step in islice(schedule(1, weights), len(weights))} == set(weights)


def test_each_kind_of_fault_is_in_a_schedule() -> None:
    assert {*WRITERS, *PROCESSORS} == set(FaultKind)
