"""A follower cuts its log back, as often as its leader says, to exactly what both logs begin with."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.replicas.divergence import end_after_divergence
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.leader_epochs import LeaderEpochs

Log = list[tuple[int, int]]
"""The epoch and the number of each record."""


def epochs_of(log: Log) -> LeaderEpochs:
    epochs = LeaderEpochs(Disk(), Path())
    for offset, (epoch, _) in enumerate(log):
        epochs.note(epoch, offset)
    return epochs


def both_begin_with(one: Log, other: Log) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))


def follow(leader: Log, follower: Log, leader_epoch: int) -> int:
    """How often the follower cuts its log back until the leader finds that it is the beginning of its own."""
    cuts = 0
    while follower:
        last = follower[-1][0]
        told = epochs_of(leader).end_offset_for(last, len(leader), leader_epoch)
        if told[0] == last and told[1] >= len(follower):
            break
        own = epochs_of(follower)
        end = end_after_divergence(
            told, lambda epoch, own=own: own.end_offset_for(epoch, len(follower)), len(follower)
        )
        assert end < len(follower)
        del follower[end:]
        cuts += 1
    return cuts


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("lead", "write", "write", "copy", "copy")), st.integers(0, 2), st.integers(1, 4)
        ),
        max_size=40,
    )
)
def test_a_follower_keeps_what_both_logs_begin_with_and_nothing_else(
    events: list[tuple[str, int, int]],
) -> None:
    """Whoever leads next, clean election or not."""
    logs: list[Log] = [[], [], []]
    leader = epoch = number = 0
    for what, broker, count in events:
        if what == "lead":
            leader, epoch = broker, epoch + 1
        elif what == "write":
            logs[leader] += [(epoch, number + each) for each in range(count)]
            number += count
        elif broker != leader:
            common = both_begin_with(logs[leader], logs[broker])
            assert follow(logs[leader], logs[broker], epoch) <= epoch + 1
            assert len(logs[broker]) == common
            logs[broker] += logs[leader][common : common + count]
