"""The state of a leader with followers, in one epoch.

Owns the members of the maximal in-sync set (those in the catalog and those that are being added), who may be
added to it and who has to leave, whether another replica may lead by now, and how many bytes clients may read
when the committed end moves.

Invariants: a follower that is being added counts as a member from before the commit that adds it until it is
certain that no such commit is stored; nothing is committed while the catalog has a replica that may lead
without being in sync, because that replica would lack it, and nothing under a state of the catalog that a
start with an older one would not notice.

Pure: the time is passed in, in milliseconds of one clock. Source: KIP-497 and Kafka's Partition (maximal
in-sync set).
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping

from tidelog.broker.cluster.catalog import PartitionAssignment
from tidelog.broker.cluster.in_sync import InSyncWanted, needed
from tidelog.broker.replicas.followers import Followers
from tidelog.broker.replicas.progress import Progress

_MOST_PASSAGES = 1024
_NEVER = 1 << 31


class Leadership:
    """Keeps the state of one replica while it leads with followers, in one epoch."""

    def __init__(self, assigned: PartitionAssignment, epoch_start: int, now_ms: float) -> None:
        self.assigned = assigned
        self.epoch_start = epoch_start
        """Where the log ended when the epoch began."""
        self.is_noted = False
        """Whether the data folder knows that the catalog says so (`catalog_checkpoint`)."""
        self._followers = Followers(epoch_start, now_ms)
        self._start_offsets: dict[int, int] = {}
        """Where the logs of followers begin."""
        self._joining: dict[int, int] = {}
        """Broker id -> the replica epoch under which it is being added."""
        self._passages: deque[tuple[int, int]] = deque()
        """(end offset, bytes appended up to it), for those that are not visible yet."""

    @property
    def _others(self) -> list[int]:
        return [each for each in self.assigned.isr if each != self.assigned.leader_id]

    def tell(self, progress: Progress, least: int) -> None:
        """Let `progress` follow the in-sync set, of which at least this number of members is needed.

        While others are eligible to lead, nothing is committed, whatever their brokers hold for the least.
        """
        waits = self.assigned.elr or not self.is_noted
        progress.set_in_sync(self._others, self._joining, _NEVER if waits else least)

    def needed(self, least: int) -> int:
        """How many replicas have to be in sync; `least` is min.insync.replicas."""
        return needed(self.assigned, least)

    def has_others_eligible(self, least: int) -> bool:
        """Whether replicas outside the in-sync set are eligible, although this number is in sync."""
        return bool(self.assigned.elr) and len(self.assigned.isr) >= least

    def fetched(
        self,
        broker_id: int,
        replica_epoch: int,
        offset: int,
        start_offset: int,
        end_offset: int,
        now_ms: float,
        asked_after_ms: float,
    ) -> None:
        """As `Followers.fetched`, by a follower whose log begins at `start_offset`."""
        self._start_offsets[broker_id] = start_offset
        self._followers.fetched(broker_id, replica_epoch, offset, end_offset, now_ms, asked_after_ms)

    def may_have_ended(self, since_ms: float) -> bool:
        """Whether another replica may have been elected before `since_ms`: one that did not fetch in this
        epoch after it. An unclean election by an operator is not known."""
        others = {*self.assigned.isr, *self.assigned.elr, *self._joining} - {self.assigned.leader_id}
        return not self._followers.have_asked_since(others, since_ms)

    def low_watermark(self, own_start_offset: int, live: Container[int]) -> int:
        """Where the log begins on this replica and on those of the other live brokers."""
        others = (each for each in self.assigned.replicas if each != self.assigned.leader_id and each in live)
        return min((self._start_offsets.get(each, -1) for each in others), default=own_start_offset)

    def preferred_replica(
        self, rack: str, racks: Mapping[int, str], live: Callable[[int], bool], offset: int
    ) -> int | None:
        """The broker in `rack` whose replica holds most of the log, `offset` included, of those in sync; None
        for the leader, if it is in that rack too or there is no other. `racks` has those of the brokers.
        Source: KIP-392, Kafka's RackAwareReplicaSelector and ReplicaManager.findPreferredReadReplica."""
        if racks.get(self.assigned.leader_id) == rack:
            return None
        near = [each for each in self.assigned.isr if racks.get(each) == rack and live(each)]
        ends = {each: self._followers.end_offset(each) for each in near}
        holding = [
            each for each, end in ends.items() if self._start_offsets.get(each, offset + 1) <= offset <= end
        ]
        return max(holding, key=ends.__getitem__, default=None)

    def may_join(self, broker_id: int, high_watermark: int) -> bool:
        """Whether a follower that fetched is to be added to the in-sync set."""
        return (
            broker_id not in self.assigned.isr
            and broker_id not in self._joining
            and self._followers.may_join(broker_id, high_watermark)
        )

    def begin_joining(self, high_watermark: int) -> dict[int, int]:
        """The followers that are to be added now, and under which epochs; they count from now on."""
        joining = {
            each: self._followers.replica_epoch(each)
            for each in self.assigned.replicas
            if each != self.assigned.leader_id and self.may_join(each, high_watermark)
        }
        self._joining |= joining
        return joining

    def end_joining(self, joined: Iterable[int]) -> None:
        """The catalog shows whether these were added, or never will."""
        for each in joined:
            self._joining.pop(each, None)

    def late(self, end_offset: int, now_ms: float, lag_ms: float) -> frozenset[int]:
        """Who has to leave the in-sync set, as `Followers.late`."""
        return self._followers.late(self._others, end_offset, now_ms, lag_ms)

    def is_outrun(self, flushed_end_offset: int, least: int) -> bool:
        """Whether so many others in sync as are needed have stored more than the leader has."""
        ahead = [each for each in self._others if self._followers.end_offset(each) > flushed_end_offset]
        return len(ahead) >= self.needed(least)

    def wanted(self, joining: dict[int, int], leaving: Iterable[int] = ()) -> InSyncWanted:
        """The change of the in-sync set, in this epoch."""
        return InSyncWanted(self.assigned.leader_epoch, joining, frozenset(leaving))

    def note_written(self, end_offset: int, appended_bytes: int) -> None:
        """This number of bytes was appended up to the end of the log."""
        if len(self._passages) == _MOST_PASSAGES:
            self._passages.pop()
        self._passages.append((end_offset, appended_bytes))

    def visible_bytes(self, before: int, high_watermark: int) -> int:
        """How many bytes the high watermark has passed by now, `before` before: more than that, and at
        places that were noted exactly so many."""
        passages, visible = self._passages, before + 1
        while passages and passages[0][0] <= high_watermark:
            visible = max(visible, passages.popleft()[1])
        return visible
