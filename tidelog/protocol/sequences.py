"""Sequence arithmetic of the idempotent producer: after 2147483647 comes 0.

Owns: the wrap. Sequences are int32 and never negative; the numbers 0 .. MAX_SEQUENCE form a ring of 2**31.
Invariants: every result is in 0 .. MAX_SEQUENCE if the arguments are; nothing here raises. In broker and
client, only this module adds to a sequence.

Source: KIP-98; increment and decrement are the same as in Apache Kafka's DefaultRecordBatch.
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
    """Steps forward on the ring from `from_` to `to`, in 0 .. MAX_SEQUENCE.

    A distance above half the ring (2**30) usually means that `to` is before `from_`.
    """
    return (to - from_) & MAX_SEQUENCE


def last_sequence(base: int, count: int) -> int:
    """The sequence of the last of `count` records (count >= 1) whose first has sequence `base`."""
    return (base + count - 1) & MAX_SEQUENCE
