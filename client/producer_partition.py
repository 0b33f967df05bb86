"""One partition's part of the client's idempotence: its numbers and what is in flight under them.

Owns: the values, and how they start over. What may change them when is `producer_state`'s, with its
invariants. Invariants: in-flight batches are oldest first, in sequence order. Pure.
"""

from tidelog.client.batch import Identity, ProducerBatch
from tidelog.protocol.sequences import decrement_sequence, increment_sequence

__all__ = ["PartitionState"]


class PartitionState:
    """One partition's sequence and in-flight batches, oldest first."""

    __slots__ = (
        "end_offset",
        "identity",
        "in_flight",
        "is_resetting",
        "is_unresolved",
        "last_acked",
        "next_sequence",
        "on_wire",
        "route",
        "sent_ms",
    )

    def __init__(self) -> None:
        self.identity: Identity | None = None
        self.next_sequence = 0
        self.last_acked: int | None = None
        # When a batch was last sent for the first time.
        self.sent_ms: int | None = None
        self.end_offset = -1
        self.in_flight: list[ProducerBatch] = []
        self.on_wire = 0
        # What the batches on the wire were sent by; order holds only within one connection.
        self.route: object = None
        # A numbered batch was given up: nothing new under this identity until that is settled.
        self.is_unresolved = False
        # The identity is done with; what is in flight gets new numbers once nothing is on the wire.
        self.is_resetting = False

    def start(self, identity: Identity) -> None:
        """Number from 0 under `identity`, first what is in flight, in its order."""
        self.identity = identity
        self.last_acked = None
        self.is_unresolved = self.is_resetting = False
        sequence = 0
        for batch in self.in_flight:
            batch.number(identity, sequence)
            sequence = increment_sequence(sequence, batch.record_count)
        self.next_sequence = sequence

    def resume(self, identity: Identity, next_sequence: int) -> None:
        """Go on where an earlier process stopped; nothing may be in flight."""
        self.identity = identity
        self.next_sequence = next_sequence
        self.last_acked = decrement_sequence(next_sequence, 1)
        self.sent_ms = None

    def begin_reset(self) -> None:
        """The oldest batch was never stored, so none in flight is."""
        self.is_resetting = True
        for batch in self.in_flight:
            batch.may_be_stored = False
