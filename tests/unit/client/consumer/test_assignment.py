"""Whose turn it is."""

from typing import Any

import pytest

from tests.unit.client.consumer.test_partition_reader import stored
from tidelog.client import CorruptRecordError, NoOffsetError, TopicPartition
from tidelog.client.consumer.assignment import Assignment
from tidelog.client.consumer.partition_reader import PartitionReader


def filled(partition: int, *batches: int) -> PartitionReader:
    """A reader with batches of so many records each, whose values are of as many bytes."""
    reader = PartitionReader(TopicPartition("t", partition), check_crc=True)
    reader.seek(0)
    for count in batches:
        reader.add(stored(reader.fetch_offset, *[b"%d" % partition * count] * count))
    return reader


def assigned(*readers: PartitionReader) -> Assignment:
    assignment = Assignment()
    assignment.replace(readers)
    return assignment


def turns(assignment: Assignment, limit: int, *wanted: TopicPartition) -> list[tuple[int, int]]:
    """The partition and the number of records, turn by turn."""
    found = []
    while (taken := assignment.take(limit, wanted)) is not None:
        found.append((taken[0].key.partition, len(taken[1])))
    return found


def test_records_that_are_read_singly_come_from_each_partition_as_their_batches_are_opened() -> None:
    assert turns(assigned(filled(0, 2, 1), filled(1, 2)), 1) == [(0, 1), (0, 1), (1, 1), (1, 1), (0, 1)]
    # Batches that are alike are opened together.
    assert turns(assigned(filled(0, 1, 1), filled(1, 1)), 1) == [(0, 1), (0, 1), (1, 1)]


def test_many_records_come_from_as_many_batches_as_it_takes_and_then_from_the_next_partition() -> None:
    assert turns(assigned(filled(0, 2, 2, 2, 2), filled(1, 3, 3)), 5) == [(0, 5), (1, 5), (0, 3), (1, 1)]


def test_a_partition_that_always_has_records_does_not_keep_the_others_waiting() -> None:
    endless = filled(0, 3)
    assignment = assigned(endless, filled(1, 1))
    seen = []
    for _ in range(3):
        taken = assignment.take(2, ())
        assert taken is not None
        seen.append(taken[0].key.partition)
        endless.add(stored(endless.fetch_offset, b"x", b"x", b"x"))
    assert seen == [0, 1, 0]


@pytest.mark.parametrize("given", ["t", ["t", 0], [TopicPartition("t", 0)], 1000])
def test_what_names_no_partition_is_refused_as_such(given: Any) -> None:
    with pytest.raises(TypeError, match="expected TopicPartition"):
        assigned(filled(0)).reader(given)


def test_only_the_partitions_named_are_read() -> None:
    assignment = assigned(filled(0, 1), filled(1, 1))
    assert turns(assignment, 9, TopicPartition("t", 1)) == [(1, 1)]
    with pytest.raises(ValueError, match="not assigned"):
        assignment.take(1, (TopicPartition("t", 7),))


def test_a_new_assignment_begins_its_turns_anew() -> None:
    first, second = filled(0, 2), filled(1, 2)
    assignment = assigned(first, second)
    assignment.take(1, ())
    assignment.replace([second, first])
    assert turns(assignment, 9) == [(1, 2), (0, 1)]


def test_an_error_waits_for_what_was_fetched_before_it_and_is_new_once() -> None:
    reader = filled(0, 1)
    assignment = assigned(reader)
    reader.fail(NoOffsetError("gone"))
    assignment.raise_error((), only_new=False)
    assignment.take(1, ())
    with pytest.raises(NoOffsetError):
        assignment.raise_error((), only_new=True)
    assignment.raise_error((), only_new=True)
    with pytest.raises(NoOffsetError):
        assignment.raise_error((), only_new=False)


def test_a_corrupt_batch_costs_none_of_the_records_before_it() -> None:
    reader = filled(0, 2, 2)
    bad = bytearray(stored(4, b"bad"))
    bad[-1] ^= 1
    reader.add(bytes(bad))
    assignment = assigned(reader)
    assert turns(assignment, 100) == [(0, 4)]
    assert (reader.position, type(reader.error)) == (4, CorruptRecordError)
