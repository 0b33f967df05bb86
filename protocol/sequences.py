"""Sequence arithmetic of the idempotent producer: the one place that knows that after 2147483647 comes 0.

Owns: the wrap. Sequences are int32 and never negative; the numbers 0 .. MAX_SEQUENCE form a ring of 2**31.
Invariants: every result lies in 0 .. MAX_SEQUENCE when the arguments do; nothing here raises. Only this
module adds to a sequence, on either side of the wire.

Source: KIP-98 and DefaultRecordBatch of Apache Kafka, whose increment and decrement these equal.
"""

from tidelog.protocol.types import MAX_SEQUENCE

__all__ = ["decrement_sequence", "increment_sequence", "last_sequence", "sequence_distance"]


def increment_sequence(sequence: int, count: int) -> int:
    """The sequence `count` records after `sequence` (0 <= count <= MAX_SEQUENCE)."""
    return (sequence + count) & MAX_SEQUENCE


def decrement_sequence(sequence: int, count: int) -> int:
    """The sequence `count` records before `sequence` (0 <= count <= MAX_SEQUENCE)."""
    return (sequence - count) & MAX_SEQUENCE


def sequence_distance(from_: int, to: int) -> int:
    """Steps forward round the ring from `from_` to `to`, in 0 .. MAX_SEQUENCE.

    A distance above half the ring (2**30) is better read as `to` lying behind `from_`.
    """
    return (to - from_) & MAX_SEQUENCE


def last_sequence(base: int, count: int) -> int:
    """The sequence of the last of `count` records (count >= 1) whose first has sequence `base`."""
    return (base + count - 1) & MAX_SEQUENCE
