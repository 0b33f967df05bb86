"""Sequence arithmetic goes round the ring of 2**31 and comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.records import decrement_sequence, increment_sequence, last_sequence, sequence_distance
from tidelog.protocol.types import MAX_SEQUENCE

sequences = st.integers(0, MAX_SEQUENCE) | st.integers(MAX_SEQUENCE - 10, MAX_SEQUENCE) | st.integers(0, 10)
counts = st.integers(0, MAX_SEQUENCE)


def kafka_increment(sequence: int, count: int) -> int:
    """The rule as Kafka's DefaultRecordBatch states it."""
    if sequence > MAX_SEQUENCE - count:
        return count - (MAX_SEQUENCE - sequence) - 1
    return sequence + count


def kafka_decrement(sequence: int, count: int) -> int:
    if sequence < count:
        return MAX_SEQUENCE - (count - sequence) + 1
    return sequence - count


@pytest.mark.parametrize(
    ("base", "count", "last", "following"),
    [
        (0, 1, 0, 1),
        (0, 5, 4, 5),
        (MAX_SEQUENCE, 1, MAX_SEQUENCE, 0),
        (MAX_SEQUENCE - 9, 20, 9, 10),
        (MAX_SEQUENCE - 4, 5, MAX_SEQUENCE, 0),
    ],
)
def test_after_the_largest_sequence_comes_zero(base: int, count: int, last: int, following: int) -> None:
    assert last_sequence(base, count) == last
    assert increment_sequence(base, count) == following


@given(sequences, counts)
def test_it_equals_the_rule_as_kafka_states_it(sequence: int, count: int) -> None:
    assert increment_sequence(sequence, count) == kafka_increment(sequence, count)
    assert decrement_sequence(sequence, count) == kafka_decrement(sequence, count)


@given(sequences, counts)
def test_decrement_undoes_increment_and_the_distance_is_what_was_added(sequence: int, count: int) -> None:
    there = increment_sequence(sequence, count)
    assert 0 <= there <= MAX_SEQUENCE
    assert decrement_sequence(there, count) == sequence
    assert sequence_distance(sequence, there) == count


@given(sequences, sequences)
def test_two_distances_make_one_turn_of_the_ring(one: int, other: int) -> None:
    there, back = sequence_distance(one, other), sequence_distance(other, one)
    assert (there + back) % (MAX_SEQUENCE + 1) == 0


@given(sequences, st.integers(1, MAX_SEQUENCE))
def test_the_last_sequence_of_a_batch_precedes_the_next_batch(base: int, count: int) -> None:
    assert increment_sequence(last_sequence(base, count), 1) == increment_sequence(base, count)
