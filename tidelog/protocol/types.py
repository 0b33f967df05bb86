"""Types for Kafka's terms, and the values that mean "none" on the wire.

Owns: the NewTypes, with which mypy finds an offset that is passed as a sequence, the name of a partition, and
the sentinels that every message shares.

Invariants: a NewType costs nothing at run time; every sentinel is -1 except `MAX_SEQUENCE`, the last
sequence before the count starts again at 0, and `MAX_TIMESTAMP`, which a moment may not exceed that is stored
or sent: limit every sum of a moment and a time that a client chose.
"""

from typing import Final, NamedTuple, NewType, TypeAlias

Offset = NewType("Offset", int)
Sequence = NewType("Sequence", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
LeaderEpoch = NewType("LeaderEpoch", int)
TimestampMs = NewType("TimestampMs", int)

Buffer: TypeAlias = bytes | bytearray | memoryview


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NO_SEQUENCE: Final = Sequence(-1)
NO_TIMESTAMP: Final = TimestampMs(-1)
NO_OFFSET: Final = Offset(-1)
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
MAX_SEQUENCE: Final = Sequence(2147483647)
MAX_TIMESTAMP: Final = TimestampMs(2**63 - 1)
