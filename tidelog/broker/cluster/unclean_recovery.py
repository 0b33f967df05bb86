"""An older catalog that is used again: which in-sync sets are invalid, and which replica leads then.

Owns both rules. A replica that is in sync in such a catalog may have left the set since, so its sets are
ignored: no replica of a partition with several is in sync or eligible. The longest log by leader epoch, then
by end, has all that is committed, if all replicas are asked: one of them was in sync, and has it.

Invariants: an epoch that a log knows never begins again; a partition waits until all its replicas are live,
or until an unclean election by an operator.

Pure. Source: KIP-966 (unclean recovery), Raft (which log is up to date).
"""

from collections.abc import Mapping, Set
from typing import Final, TypeAlias
from uuid import UUID

from tidelog.broker.cluster.catalog import NO_LEADER, Catalog, PartitionAssignment, PartitionsChanged

LatestEpochs: TypeAlias = Mapping[tuple[UUID, int], int]
"""Topic id and partition -> the leader epoch of the last record in a data folder."""
LogEnd: TypeAlias = tuple[int, int]
"""The leader epoch of the last record of a log, and its end offset."""
NO_LOG: Final[LogEnd] = (-1, -1)
"""Of a replica that does not say where its log ends."""


def without_in_sync_sets(catalog: Catalog, latest_epochs: LatestEpochs) -> list[PartitionsChanged]:
    """The deltas after which no in-sync set counts, and no epoch is older than one in the data folder."""
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

    The controller elects it then as any eligible replica: an unclean election gives up remote records.
    """
    if assigned != asked or not {*assigned.replicas} <= live:
        return None
    longest = max(assigned.replicas, key=ends.__getitem__)
    epoch = max(assigned.leader_epoch, *(epoch for epoch, _ in ends.values()))
    return assigned._replace(leader_epoch=epoch, elr=(longest,), partition_epoch=assigned.partition_epoch + 1)
