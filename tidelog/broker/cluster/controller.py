"""Who is fenced and who leads: what the controller changes, and no one else has to.

Owns the rules. Sessions decide one thing, that a broker is fenced; all that follows comes from the catalog.

Invariants:
- a broker that is not fenced has a session, or is fenced soon. The commit compares that no session lives, so
  nobody fences a broker that has one;
- a live broker leads a partition, one of its in-sync replicas, or none does. A leader stays while it lives;
- each change of a leader raises both epochs of the partition by one;
- the controller is the lowest broker that lives. Two that take themselves for it do no harm: each change is
  planned on the newest image, where it is right whoever commits it.

Pure. Source: KIP-631 (fencing), KIP-966 (who may lead).
"""

from collections.abc import Set
from uuid import UUID

from tidelog.broker.cluster.catalog import (
    NO_LEADER,
    BrokerRegistered,
    BrokerRegistration,
    Catalog,
    NothingToChange,
    PartitionAssignment,
    PartitionsChanged,
    Topic,
)
from tidelog.broker.cluster.store import BrokerSession


def live_brokers(catalog: Catalog) -> frozenset[int]:
    """Those that are not fenced."""
    return frozenset(node_id for node_id, broker in catalog.brokers.items() if not broker.is_fenced)


def controller_of(catalog: Catalog, sessions: Set[BrokerSession]) -> int:
    """The lowest live broker whose session lives; -1 where there is none."""
    live = live_brokers(catalog)
    return min(
        (
            each.node_id
            for each in sessions
            if each.node_id in live and catalog.brokers[each.node_id].incarnation == each.incarnation
        ),
        default=NO_LEADER,
    )


def without_session(catalog: Catalog, sessions: Set[BrokerSession]) -> list[BrokerRegistration]:
    """The live brokers that have to be fenced.

    One that is being started again has a session of another incarnation: it fences itself.
    """
    present = {each.node_id for each in sessions}
    return [catalog.brokers[node_id] for node_id in sorted(live_brokers(catalog) - present)]


def fencing(catalog: Catalog, broker: BrokerRegistration) -> BrokerRegistered:
    """The delta that fences a broker. Raises NothingToChange where it was fenced or registered again."""
    if broker.is_fenced or catalog.brokers.get(broker.node_id) != broker:
        raise NothingToChange
    return BrokerRegistered(broker._replace(is_fenced=True))


def needs_election(topic: Topic, live: Set[int]) -> bool:
    """Whether a partition of a topic has to get another leader, or none."""
    return any(elected(assigned, live) is not assigned for assigned in topic.partitions)


def election(catalog: Catalog, topic_id: UUID) -> PartitionsChanged:
    """The delta that gives the partitions of a topic their leaders. Raises NothingToChange."""
    topic, live = catalog.topic_by_id(topic_id), live_brokers(catalog)
    changed = {
        index: now
        for index, assigned in enumerate(() if topic is None else topic.partitions)
        if (now := elected(assigned, live)) is not assigned
    }
    if not changed:
        raise NothingToChange
    return PartitionsChanged(topic_id, changed)


def elected(assigned: PartitionAssignment, live: Set[int]) -> PartitionAssignment:
    """A partition with the leader that it has to have; the same object where it has it."""
    if assigned.leader_id in live:
        return assigned
    leader_id = next((each for each in assigned.replicas if each in live and each in assigned.isr), NO_LEADER)
    if leader_id == assigned.leader_id:
        return assigned
    return assigned._replace(
        leader_id=leader_id,
        leader_epoch=assigned.leader_epoch + 1,
        partition_epoch=assigned.partition_epoch + 1,
    )
