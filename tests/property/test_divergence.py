"""A follower cuts its log back, as often as its leader says, to exactly what both logs begin with.

Logs are compacted behind what is committed, and copied with the gaps that this leaves.
"""

from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.broker.replicas.divergence import end_after_divergence, hidden_epochs
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.leader_epochs import LeaderEpochs


class Log:
    """The epoch and the number of each record that is left, by its offset."""

    def __init__(self) -> None:
        self.records: dict[int, tuple[int, int]] = {}
        self.end = 0
        self.committed = 0
        """What this replica knows to be committed."""
        self.epochs = LeaderEpochs(Disk(), Path())

    def append(self, offset: int, record: tuple[int, int]) -> None:
        self.records[offset], self.end = record, offset + 1
        self.epochs.note(record[0], offset)

    def cut(self, end: int) -> None:
        """As `truncation` and the opening after it."""
        self.records = {offset: record for offset, record in self.records.items() if offset < end}
        self.end = end
        entries, self.epochs = self.epochs.entries, LeaderEpochs(Disk(), Path())
        for epoch, start in entries:
            if start < end:
                self.epochs.note(epoch, start)

    def end_for(self, epoch: int, current: int = -1) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.end, current)


def learn(leader: Log, follower: Log, epoch: int, current: int) -> None:
    wanted = hidden_epochs(follower.epochs.latest, follower.end, epoch)
    try:
        asked = next(wanted)
        while True:
            asked = wanted.send(leader.end_for(asked, current))
    except StopIteration as end:
        follower.epochs.foretell(end.value)


def cut_back(leader: Log, follower: Log, current: int, *, may_lose: bool) -> int:
    """How often the follower cuts its log back until the leader finds that it is the beginning of its own."""
    cuts = 0
    while (last := follower.epochs.latest) >= 0:
        told = leader.end_for(last, current)
        if told[0] == last and told[1] >= follower.end:
            break
        end = end_after_divergence(told, follower.end_for, follower.end)
        assert end < follower.end
        assert may_lose or end >= follower.committed, "it goes offline, or loses what was acknowledged"
        follower.cut(end)
        cuts += 1
    return cuts


def copy(leader: Log, follower: Log, count: int, current: int) -> None:
    following = sorted(offset for offset in leader.records if offset >= follower.end)
    for offset in following[:count]:
        record = leader.records[offset]
        if offset > follower.end and follower.epochs.is_unknown(record[0]):
            learn(leader, follower, record[0], current)
            assert not follower.epochs.is_unknown(record[0])
        follower.append(offset, record)
    follower.committed = max(follower.committed, min(leader.committed, follower.end))


_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("lead", "write", "write", "copy", "copy", "copy", "compact", "lose")),
        st.integers(0, 2),
        st.integers(1, 4),
    ),
    max_size=60,
)


_HIDDEN_EPOCH = [
    *(("lead", 0, 1), ("write", 0, 2), ("copy", 1, 4), ("copy", 2, 4)),
    *(("lead", 0, 1), ("write", 0, 2), ("copy", 1, 4), ("copy", 2, 4)),
    *(("lead", 0, 1), ("write", 0, 2), ("copy", 1, 4), ("compact", 0, 3), ("lose", 1, 1), ("copy", 1, 4)),
    *(("lead", 1, 1), ("write", 1, 1), ("copy", 2, 4)),
]


@given(_EVENTS, st.booleans())
@example(events=_HIDDEN_EPOCH, is_clean=True)
def test_a_follower_keeps_what_both_logs_begin_with_and_nothing_else(
    events: list[tuple[str, int, int]], is_clean: bool
) -> None:
    """Whoever leads next; in clean elections, one that has all that was committed: what two of three held."""
    logs, written = [Log(), Log(), Log()], [dict[int, tuple[int, int]]() for _ in range(3)]
    leader = epoch = number = 0
    for what, broker, count in events:
        mine, theirs = logs[leader], logs[broker]
        if what == "lead":
            if not is_clean or _has(written, broker, logs):
                leader, epoch = broker, epoch + 1
        elif what == "write":
            for _ in range(count):
                written[leader][mine.end] = epoch, number
                mine.append(mine.end, (epoch, number))
                number += 1
        elif what == "compact":
            gone = [offset for offset in sorted(theirs.records) if offset < theirs.committed - 1]
            for offset in gone[count - 1 :]:
                del theirs.records[offset]
        elif what == "lose":
            if broker != leader:
                logs[broker], written[broker] = Log(), {}
        elif broker != leader:
            common = _common(written[leader], written[broker])
            assert cut_back(mine, theirs, epoch, may_lose=not is_clean) <= epoch + 1
            assert theirs.end == common
            written[broker] = {at: record for at, record in written[broker].items() if at < common}
            copy(mine, theirs, count, epoch)
            written[broker] |= {
                at: record for at, record in written[leader].items() if common <= at < theirs.end
            }
            if is_clean:
                mine.committed = max(mine.committed, theirs.end)


def _common(one: dict[int, tuple[int, int]], other: dict[int, tuple[int, int]]) -> int:
    """Up to where both logs were the same before compaction."""
    at = 0
    while at in one and one[at] == other.get(at):
        at += 1
    return at


def _has(written: list[dict[int, tuple[int, int]]], broker: int, logs: list[Log]) -> bool:
    """Whether a broker has all that any broker knows to be committed."""
    known = max(range(3), key=lambda each: logs[each].committed)
    return _common(written[known], written[broker]) >= logs[known].committed
