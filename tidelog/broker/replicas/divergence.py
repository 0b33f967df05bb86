"""Where a follower truncates its log when it diverges from the leader's.

Owns the rule, and which epochs a follower asks for because compaction hides them. Invariants: the follower
ends at or before the offset up to which both may have the same batches; it truncates again if the leader's
next answer requires it, until the epochs of the last batches agree. Each log knows where each of its epochs
began.

Pure. Source: KIP-101, KIP-279, KIP-595; Kafka's AbstractFetcherThread.getOffsetTruncationState.
"""

from collections.abc import Callable, Generator


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


def hidden_epochs(
    latest: int, end_offset: int, epoch: int
) -> Generator[int, tuple[int, int], list[tuple[int, int]]]:
    """(epoch, first offset) of the leader's epochs after `latest`, up to `epoch`, in ascending order: the
    follower's log ends at `end_offset` in epoch `latest`, and the next batch of the leader is one of `epoch`.

    Yields epochs for which it wants the leader's answer to OffsetForLeaderEpoch.
    """
    found = []
    while epoch > latest:
        before, start = (yield epoch - 1) if epoch else (latest, end_offset)
        found.append((epoch, max(start, end_offset)))
        if start <= end_offset:
            break
        epoch = before
    return found[::-1]
