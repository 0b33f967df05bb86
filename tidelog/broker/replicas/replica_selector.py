"""Which replica a consumer is to read: the leader, or one in the consumer's rack (KIP-392).

Owns the choice. Invariants: only a replica in sync is chosen that holds the wanted offset; the leader stays
where it is in the same rack, or where no other replica is.

Pure. Source: KIP-392, Kafka's RackAwareReplicaSelector and ReplicaManager.findPreferredReadReplica.
"""

from collections.abc import Container, Mapping

from tidelog.broker.replicas.leadership import Leadership


def preferred_replica(
    leadership: Leadership, rack: str, racks: Mapping[int, str], live: Container[int], offset: int
) -> int | None:
    """The broker in `rack` whose replica holds most of the log, `offset` included; None for the leader.
    `racks` has those of the brokers."""
    assigned = leadership.assigned
    if racks.get(assigned.leader_id) == rack:
        return None
    near = [each for each in assigned.isr if racks.get(each) == rack and each in live]
    return leadership.most_caught_up(near, offset)
