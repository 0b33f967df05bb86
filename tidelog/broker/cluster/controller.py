"""The decisions of the controller: which brokers are fenced, and which lead.

Owns the rules. Sessions decide one thing, that a broker is fenced; everything else depends on the catalog.

Invariants:
- a broker that is not fenced has a session, or is fenced soon. The commit compares that no session exists, so
  a broker with a session is not fenced, except one whose machine says that its process has ended
  (`exit_watcher`);
- a live broker leads a partition, one of its in-sync replicas, else one of its eligible ones, or none does. A
  leader stays while it is live. A broker that is not live leaves the in-sync set, unless no member of it is
  live: then no other broker can have led without it;
- a reassignment is completed once all that it adds are in sync, and enough of those that stay;
- a replica whose log failed counts as one of a broker that is not live, until that is started again. It stays
  in the sets like one, because it may be the only one with everything that is committed;
- each change of a leader raises both epochs of the partition by one, and so does each removal of replicas: a
  leader must not count what a replica had before its folder was removed;
- the controller is the live broker with the lowest id. Two brokers that act as the controller do no harm:
  each change is planned on the newest image, for which it is right.

Pure. Source: KIP-631 (fencing), KIP-966 (who may lead, unclean recovery), Raft (which log is up to date),
KIP-455 and Kafka's PartitionChangeBuilder (reassignments), its KafkaController (rebalance of leaders).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Set
from typing import Final, NamedTuple, TypeAlias
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
from tidelog.broker.cluster.in_sync import needed, partitions_changed, topic_to_change, with_in_sync
from tidelog.broker.cluster.store import BrokerSession

LeastInSync: TypeAlias = Callable[[Topic], int]
"""min.insync.replicas of a topic."""
Offline: TypeAlias = Mapping[tuple[UUID, int], Set[int]]
"""Topic id and partition -> the brokers whose replicas are offline."""
Election: TypeAlias = Callable[[PartitionAssignment, Set[int]], PartitionAssignment | None]
"""A partition and who is live -> the partition as it is to be, or None."""
LatestEpochs: TypeAlias = Mapping[tuple[UUID, int], int]
"""Topic id and partition -> the leader epoch of the last record in a data folder."""
LogEnd: TypeAlias = tuple[int, int]
"""The leader epoch of the last record of a log, and its end offset."""
NO_LOG: Final[LogEnd] = (-1, -1)
"""Of a replica that does not say where its log ends."""
_NONE: Final = frozenset[int]()


def live_brokers(catalog: Catalog) -> frozenset[int]:
    """Those that are not fenced."""
    return frozenset(node_id for node_id, broker in catalog.brokers.items() if not broker.is_fenced)


def offline_replicas(catalog: Catalog) -> Offline:
    """Those whose logs failed, as their brokers say."""
    offline: defaultdict[tuple[UUID, int], set[int]] = defaultdict(set)
    for broker in catalog.brokers.values():
        for partition in broker.offline:
            offline[partition].add(broker.node_id)
    return offline


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
    """The delta that fences a broker. Raises NothingToChange if it was fenced or registered again."""
    if broker.is_fenced or catalog.brokers.get(broker.node_id) != broker:
        raise NothingToChange
    return BrokerRegistered(broker._replace(is_fenced=True))


def needs_election(topic: Topic, live: Set[int], offline: Offline, least: int) -> bool:
    """Whether a partition of a topic has to get another leader, or none, or another in-sync set."""
    return any(
        elected(assigned, able_to_lead(live, offline, topic.topic_id, index), least) is not assigned
        for index, assigned in enumerate(topic.partitions)
    )


def able_to_lead(live: Set[int], offline: Offline, topic_id: UUID, index: int) -> Set[int]:
    """The live brokers that could lead a partition if they had a replica of it."""
    return live - offline.get((topic_id, index), _NONE)


def election(
    catalog: Catalog,
    topic_id: UUID,
    least_in_sync: LeastInSync,
    leaving: int = NO_LEADER,
    only: Container[int] | None = None,
) -> PartitionsChanged:
    """The delta that gives the partitions of a topic, or `only` these, their leaders and in-sync sets.

    `leaving` is a broker that gives up what another one can have. Raises NothingToChange.
    """
    topic = topic_to_change(catalog, topic_id)
    live, offline, least = live_brokers(catalog), offline_replicas(catalog), least_in_sync(topic)
    changed: dict[int, PartitionAssignment] = {}
    for index, assigned in enumerate(topic.partitions):
        if only is not None and index not in only:
            continue
        able = able_to_lead(live, offline, topic_id, index)
        wanted = able - {leaving} if able - {leaving} & {*assigned.isr} else able
        now = elected(assigned, wanted, least)
        if now is not assigned:
            changed[index] = now
    return partitions_changed(topic_id, changed)


def elected(assigned: PartitionAssignment, live: Set[int], least: int) -> PartitionAssignment:
    """A partition with the leader and the in-sync set that it has to have; the same object where it has them.

    `least` is min.insync.replicas: if one of so many in sync can lead, other replicas may lack committed
    records. If none can, nothing was committed since others became eligible, also with another `least`.
    """
    if _is_reassigned(assigned, live, least):
        return elected_without(assigned, assigned.removing, live, least)
    in_sync = [each for each in assigned.replicas if each in live and each in assigned.isr]
    if in_sync and assigned.elr and len(assigned.isr) >= needed(assigned, least):
        without = assigned._replace(elr=(), partition_epoch=assigned.partition_epoch + 1)
        return elected(without, live, least)._replace(partition_epoch=without.partition_epoch)
    if in_sync:
        leader_id = assigned.leader_id if assigned.leader_id in in_sync else in_sync[0]
    else:
        eligible = (each for each in assigned.replicas if each in live and each in assigned.elr)
        leader_id = next(eligible, NO_LEADER)
        if leader_id == NO_LEADER:
            return _led(assigned, assigned, NO_LEADER)
        in_sync = [leader_id]
    return _led(with_in_sync(assigned, in_sync, least), assigned, leader_id)


def _is_reassigned(assigned: PartitionAssignment, live: Set[int], least: int) -> bool:
    """Whether a reassignment is in progress that may be completed."""
    if not (assigned.adding or assigned.removing):
        return False
    staying = {*assigned.wanted_replicas}
    in_sync = staying & live & {*assigned.isr}
    return in_sync >= staying & {*assigned.adding} and len(in_sync) >= max(min(least, len(staying)), 1)


def elected_without(
    assigned: PartitionAssignment, removed: Collection[int], live: Set[int], least: int
) -> PartitionAssignment:
    """A partition without these replicas, with no reassignment under way, in an epoch of its own."""
    replicas, isr, elr = (
        tuple(each for each in some if each not in removed)
        for some in (assigned.replicas, assigned.isr, assigned.elr)
    )
    left = assigned._replace(replicas=replicas, isr=isr, elr=elr, adding=(), removing=())
    now = elected(left, live, least)
    is_new_epoch = bool(removed) or now.leader_id != assigned.leader_id
    return now._replace(
        leader_epoch=assigned.leader_epoch + is_new_epoch, partition_epoch=assigned.partition_epoch + 1
    )


def election_as_asked(
    catalog: Catalog, topic_id: UUID, indexes: Iterable[int], elect: Election
) -> PartitionsChanged:
    """The delta that an operator asks for: `elect` is one of the two that follow. Raises NothingToChange."""
    partitions = topic_to_change(catalog, topic_id).partitions
    live, offline = live_brokers(catalog), offline_replicas(catalog)
    wanted = {
        index: elect(partitions[index], able_to_lead(live, offline, topic_id, index))
        for index in indexes
        if index < len(partitions)
    }
    changed = {index: now for index, now in wanted.items() if now is not None}
    return partitions_changed(topic_id, changed)


def elected_as_preferred(assigned: PartitionAssignment, live: Set[int]) -> PartitionAssignment | None:
    """A partition led by the first of its replicas; None if that leads already, or may not."""
    preferred = assigned.replicas[0]
    if assigned.leader_id == preferred or preferred not in live or preferred not in assigned.isr:
        return None
    return _led(assigned, assigned, preferred)


def elected_uncleanly(
    assigned: PartitionAssignment, live: Set[int], ends: Mapping[int, LogEnd]
) -> PartitionAssignment | None:
    """The unclean election of an operator: a partition without an eligible leader gets the live replica with
    the longest log, which may lack acknowledged records. `ends` are those of the replicas that answered. None
    if it needs none, or no replica lives."""
    replicas = [each for each in assigned.replicas if each in live]
    if assigned.leader_id != NO_LEADER or not replicas:
        return None
    # The first of equals, and one that is being added may have nothing at all.
    leader_id = max(replicas, key=lambda each: (ends.get(each, NO_LOG), each not in assigned.adding))
    return _led(assigned._replace(isr=(leader_id,), elr=()), assigned, leader_id)


def without_disk(
    catalog: Catalog, topic_id: UUID, node_id: int, least_in_sync: LeastInSync
) -> PartitionsChanged:
    """The delta by which a broker that lost its disk is in no in-sync and no eligible set of a topic, except
    where it has the only replica. Raises NothingToChange."""
    topic = topic_to_change(catalog, topic_id)
    live, offline = live_brokers(catalog) - {node_id}, offline_replicas(catalog)
    least = least_in_sync(topic)
    changed: dict[int, PartitionAssignment] = {}
    for index, assigned in enumerate(topic.partitions):
        isr, elr = (tuple(each for each in some if each != node_id) for some in (assigned.isr, assigned.elr))
        if (isr, elr) != (assigned.isr, assigned.elr) and len(assigned.replicas) > 1:
            epoch = assigned.partition_epoch + 1
            left = assigned._replace(isr=isr, elr=elr, partition_epoch=epoch)
            now = elected(left, able_to_lead(live, offline, topic_id, index), least)
            changed[index] = now._replace(partition_epoch=epoch)
    return partitions_changed(topic_id, changed)


def _led(now: PartitionAssignment, before: PartitionAssignment, leader_id: int) -> PartitionAssignment:
    if leader_id == before.leader_id:
        return now
    return now._replace(
        leader_id=leader_id, leader_epoch=before.leader_epoch + 1, partition_epoch=before.partition_epoch + 1
    )


class LeaderRebalance(NamedTuple):
    """How often the controller looks, and the share of a broker's partitions that others may lead."""

    interval_seconds: float
    percentage: int


def led_by_others(catalog: Catalog, percentage: int) -> dict[UUID, list[int]]:
    """The partitions, by topic, whose first replica is in sync and is to lead them again: that of a broker of
    whose partitions others lead more than this share."""
    first: Counter[int] = Counter()
    elsewhere: Counter[int] = Counter()
    for topic in catalog.topics():
        for assigned in topic.partitions:
            first[assigned.replicas[0]] += 1
            elsewhere[assigned.replicas[0]] += assigned.leader_id != assigned.replicas[0]
    wanted: dict[UUID, list[int]] = {}
    imbalanced = {broker for broker, count in elsewhere.items() if count * 100 > first[broker] * percentage}
    for topic in catalog.topics() if imbalanced else ():
        for index, assigned in enumerate(topic.partitions):
            broker = assigned.replicas[0]
            if broker in imbalanced and broker in assigned.isr and assigned.leader_id != broker:
                wanted.setdefault(topic.topic_id, []).append(index)
    return wanted


def without_in_sync_sets(catalog: Catalog, latest_epochs: LatestEpochs) -> list[PartitionsChanged]:
    """The deltas after which no in-sync set counts, and no epoch is older than one in the data folder.

    They are for an older catalog that is used again: a replica that is in sync in it may have left the set
    since. A partition with several waits until all its replicas are live, or for an unclean election.
    """
    deltas = []
    for topic in catalog.topics():
        changed = {}
        for index, assigned in enumerate(topic.partitions):
            epoch = max(assigned.leader_epoch, latest_epochs.get((topic.topic_id, index), -1))
            now = assigned._replace(leader_epoch=epoch)
            if len(assigned.replicas) > 1 and not is_unknown(assigned):
                now = now._replace(leader_id=NO_LEADER, leader_epoch=epoch + 1, isr=(), elr=())
            if now != assigned:
                changed[index] = now._replace(partition_epoch=assigned.partition_epoch + 1)
        if changed:
            deltas.append(PartitionsChanged(topic.topic_id, changed))
    return deltas


def is_unknown(assigned: PartitionAssignment) -> bool:
    """Whether it is not known which replicas of a partition have all that is committed."""
    return not assigned.isr and not assigned.elr


def eligible_by_logs(
    assigned: PartitionAssignment, live: Set[int], *, asked: PartitionAssignment, ends: Mapping[int, LogEnd]
) -> PartitionAssignment | None:
    """A partition whose replica with the longest log may lead, `ends` being those of all replicas when the
    partition was as `asked`. None if it has changed since, or a replica does not live.

    The longest log by leader epoch, then by end, has all that is committed: one of them was in sync, and has
    it. An epoch that a log knows never begins again.
    The controller elects it then as any eligible replica: an unclean election gives up remote records.
    """
    if assigned != asked or not {*assigned.replicas} <= live:
        return None
    longest = max(assigned.replicas, key=ends.__getitem__)
    epoch = max(assigned.leader_epoch, *(epoch for epoch, _ in ends.values()))
    return assigned._replace(leader_epoch=epoch, elr=(longest,), partition_epoch=assigned.partition_epoch + 1)
