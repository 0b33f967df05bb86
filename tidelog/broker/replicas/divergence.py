"""Where a follower cuts its log back when the leader says that the two diverge.

Owns the rule. Invariants: the follower ends at or before the offset up to which both may have the same
batches; it cuts again where the leader's next answer says so, until the epochs of the last batches agree.

Pure. Source: KIP-101, KIP-279, KIP-595; Kafka's AbstractFetcherThread.getOffsetTruncationState.
"""

from collections.abc import Callable


def end_after_divergence(
    leader: tuple[int, int], own_end_for: Callable[[int], tuple[int, int]], end_offset: int
) -> int:
    """The end of the follower's log from now on, at most `end_offset`.

    `leader` is (epoch, end offset) of the latest epoch that it has, up to that of the last batch here.
    `own_end_for` answers the same question for the follower's log, with (-1, -1) where it has no such epoch.
    """
    epoch, leader_end = leader
    own_epoch, own_end = own_end_for(epoch)
    if own_epoch == epoch:
        return min(leader_end, own_end, end_offset)
    # The follower has no batch of that epoch: what it has of later ones goes, then the leader is asked again.
    return min(own_end if own_epoch >= 0 else leader_end, end_offset)
