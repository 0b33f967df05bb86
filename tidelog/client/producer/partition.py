"""The state of one partition in the client's idempotence: its sequence and its in-flight batches.

Owns: the values, and how they start again. `state` decides when they change. Invariants: in-flight
batches are in sequence order, the oldest first. Pure.
"""

from tidelog.client.producer.batch import Identity, ProducerBatch
from tidelog.protocol.sequences import decrement_sequence, increment_sequence


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
        # The route of the batches on the wire; only one connection keeps their order.
        self.route: object = None
        # A numbered batch was given up: no new batch under this identity until that is settled.
        self.is_unresolved = False
        # The identity is retired; in-flight batches get new sequences once none is on the wire.
        self.is_resetting = False

    def start(self, identity: Identity) -> None:
        """Start at sequence 0 under `identity`. In-flight batches come first, in their order."""
        self.identity = identity
        self.last_acked = None
        self.is_unresolved = self.is_resetting = False
        sequence = 0
        for batch in self.in_flight:
            batch.number(identity, sequence)
            sequence = increment_sequence(sequence, batch.record_count)
        self.next_sequence = sequence

    def resume(self, identity: Identity, next_sequence: int) -> None:
        """Continue where an earlier process stopped. No batch may be in flight."""
        self.identity = identity
        self.next_sequence = next_sequence
        self.last_acked = decrement_sequence(next_sequence, 1)
        self.sent_ms = None

    def begin_reset(self) -> None:
        """The oldest batch was never stored, so no batch in flight is stored."""
        self.is_resetting = True
        for batch in self.in_flight:
            batch.may_be_stored = False
