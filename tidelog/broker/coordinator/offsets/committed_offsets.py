"""Committed offsets of groups: a pure machine that takes commits, deletions and the time.

Owns the offsets of the groups of one internal partition, and the rule which clients may commit for a group
without members.

Invariants:
- the state changes only by `apply`, so it is the same after a replay;
- an offset belongs to the topic that had its name at the commit: if the name now has another topic, or none,
  the offset is never returned, and `sweep` removes it;
- an offset expires at its own time, else when its group has been idle for the retention. A group without
  members is idle from each commit on;
- one step of a sweep examines some thousand offsets, however many exist;
- a query shows what is committed. A partition is unstable until the marker of the last transaction that
  committed its offset is committed too;
- what a transaction commits is seen once its marker is written. An offset that an open transaction may
  replace does not expire, and `sweep` does not remove it;
- a deletion also removes what open transactions have committed so far. This also holds in the log: a cleaner
  keeps the later of the two records.

Pure. Source: Kafka's OffsetMetadataManager, KIP-211, KIP-447, KIP-496.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from tidelog.broker.coordinator.decision import Decision, Timer
from tidelog.broker.coordinator.offsets.offset_records import NO_TOPIC_ID, CommittedOffset, OffsetRecord
from tidelog.broker.coordinator.pending_records import InTransaction, PendingRecords
from tidelog.broker.coordinator.uncommitted import Uncommitted
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.records import TransactionMarker
from tidelog.protocol.types import NO_TIMESTAMP

SWEPT_AT_ONCE = 2_000
"""How many offsets one step of a sweep examines; each topic of a group counts as one more."""
REMOVED_BYTES_AT_ONCE = 500_000
"""Bytes of the keys that one step of a sweep removes, so that they fit into one batch."""
_LARGEST_KEY_OVERHEAD = 32
_BYTES_PER_CHARACTER = 4
_SAYS_THAT_THE_GROUP_IS_MISSING_FROM = 9
Timers = Mapping[Hashable, Timer | None]
"""Key -> the new timer under it, as in a Decision."""
TopicIds = Callable[[str], UUID | None]
"""Topic name -> the id of the topic that has it now, or None."""


class Committer(NamedTuple):
    """The client that commits. Without a generation (-1) it is not a member, such as a consumer that assigns
    its own partitions, or an admin."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    api_version: int = 0
    """The version of the OffsetCommit."""
    is_in_transaction: bool = False

    @property
    def is_anonymous(self) -> bool:
        return self.generation < 0 and not self.member_id and self.instance_id is None


class Membership(Protocol):
    """The rules of group members about offsets, for a group that has a state besides its offsets."""

    def check_commit(self, group_id: str, committer: Committer, now_ms: int) -> Timers:
        """Raise ApiError unless this client may commit; returns the timers that a commit sets."""

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Raise ApiError if this client may not read the offsets; without an id and an epoch, any may."""

    def check_offset_delete(self, group_id: str) -> None:
        """Raise ApiError (NON_EMPTY_GROUP) for a group whose offsets may not be deleted."""

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        """Whether members read the topic, so that its offsets are needed."""

    def idle_since_ms(self, group_id: str, commit_timestamp_ms: int) -> int | None:
        """When the retention of an offset of that commit begins; None: the offset is still needed."""


_Offsets = dict[str, dict[int, CommittedOffset]]
_Pending = PendingRecords[tuple[str, int], CommittedOffset | None]


class _Before(NamedTuple):
    """A partition before a record that is not committed. `is_unstable`: whether a transaction had committed
    an offset for it by then, so that this one may not be the last."""

    committed: CommittedOffset | None
    is_unstable: bool


class CommittedOffsets:
    """The offsets of many groups: group, topic, partition."""

    def __init__(self, membership_of: Callable[[str], Membership | None], retention_ms: int) -> None:
        """`membership_of` gives None for a group that has no state besides its offsets."""
        self._membership_of = membership_of
        self.retention_ms = retention_ms
        self._groups: dict[str, _Offsets] = {}
        self._pending: dict[str, _Pending] = {}
        """By group, so that a look at one does not depend on the others."""
        self._groups_in: dict[int, dict[str, None]] = {}
        """Producer id -> the groups that its open transaction has committed offsets of."""
        self._uncommitted: dict[str, Uncommitted[tuple[str, int], _Before]] = {}
        self._ended: deque[list[tuple[str, tuple[str, int]]]] = deque()
        """What each marker that is not committed changed: group, topic and partition."""
        self._groups_to_sweep: deque[str] = deque()
        self._topics_to_sweep: deque[tuple[str, str]] = deque()

    def apply(self, record: OffsetRecord) -> None:
        pending = self._pending.get(record.group_id)
        if pending is not None:
            pending.overwritten((record.topic, record.partition))
        self._apply(record)

    def write(self, record: OffsetRecord) -> None:
        """Apply a record that is not committed yet."""
        key = record.topic, record.partition
        self._written(record.group_id, key, is_unstable=key in self._pending_in(record.group_id))
        self.apply(record)

    def _written(self, group_id: str, key: tuple[str, int], *, is_unstable: bool) -> None:
        uncommitted = self._uncommitted.get(group_id)
        if uncommitted is None:
            uncommitted = self._uncommitted[group_id] = Uncommitted()
        topic, partition = key
        before = self._groups.get(group_id, {}).get(topic, {}).get(partition)
        uncommitted.written(key, _Before(before, is_unstable))

    def settle(self, record: OffsetRecord) -> None:
        """The oldest record of its partition that was not committed is."""
        self._settle(record.group_id, (record.topic, record.partition))

    def _settle(self, group_id: str, key: tuple[str, int]) -> None:
        uncommitted = self._uncommitted[group_id]
        uncommitted.committed(key)
        if not uncommitted:
            del self._uncommitted[group_id]

    def apply_pending(self, written: InTransaction) -> None:
        """A record that counts once its transaction commits."""
        group_id, topic, partition, committed = written.record
        pending = self._pending.get(group_id)
        if pending is None:
            pending = self._pending[group_id] = PendingRecords()
        pending.add(written.producer_id, written.producer_epoch, (topic, partition), committed)
        self._groups_in.setdefault(written.producer_id, {})[group_id] = None

    def write_end(self, marker: TransactionMarker) -> None:
        """A transaction ended by a marker that is not committed yet."""
        self._ended.append([])
        self._end(marker, self._ended[-1])

    def settle_end(self, marker: TransactionMarker) -> None:
        """The oldest marker that was not committed is."""
        for group_id, key in self._ended.popleft():
            self._settle(group_id, key)

    def apply_end(self, marker: TransactionMarker) -> None:
        """A transaction ended."""
        self._end(marker, None)

    def _end(self, marker: TransactionMarker, ended: list[tuple[str, tuple[str, int]]] | None) -> None:
        """Let what the transaction committed count; adds it to `ended`, if the marker is not committed."""
        for group_id in self._groups_in.pop(marker.producer_id, ()):
            pending = self._pending.get(group_id)
            if pending is None:  # All that waited was overwritten.
                continue
            counting = pending.end(marker.producer_id, is_commit=marker.is_commit)
            for (topic, partition), committed in counting.items():
                if ended is not None:
                    self._written(group_id, (topic, partition), is_unstable=True)
                    ended.append((group_id, (topic, partition)))
                self._apply(OffsetRecord(group_id, topic, partition, committed))
            if not pending.keys():
                del self._pending[group_id]

    def _apply(self, record: OffsetRecord) -> None:
        group_id, topic, partition, committed = record
        if committed is not None:
            self._groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed
            return
        topics = self._groups.get(group_id, {})
        partitions = topics.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            topics.pop(topic, None)
        if not topics:
            self._groups.pop(group_id, None)

    @property
    def group_ids(self) -> Collection[str]:
        """The groups that have committed offsets, with all that was written."""
        return self._groups.keys()

    def uncommitted_ids(self) -> Collection[str]:
        return self._uncommitted.keys()

    def has_committed(self, group_id: str) -> bool:
        """Whether the group has committed offsets to be shown."""
        held, uncommitted = self._groups.get(group_id, {}), self._uncommitted.get(group_id)
        if uncommitted is None:
            return bool(held)
        before = {key: values[0].committed for key, values in uncommitted}
        return any(each is not None for each in before.values()) or any(
            (topic, partition) not in before for topic, partitions in held.items() for partition in partitions
        )

    def _shown(self, group_id: str, names: Collection[str] | None) -> _Offsets:
        """What may be shown of these topics of a group (None: of all)."""
        held = self._groups.get(group_id, {})
        uncommitted = self._uncommitted.get(group_id)
        if names is not None:
            held = {name: held[name] for name in held.keys() & names}
        if uncommitted is None:
            return held
        shown = {name: dict(partitions) for name, partitions in held.items()}
        for (name, partition), (before, *_) in uncommitted:
            if names is not None and name not in names:
                continue
            if before.committed is not None:
                shown.setdefault(name, {})[partition] = before.committed
            elif name in shown:
                shown[name].pop(partition, None)
        return {name: partitions for name, partitions in shown.items() if partitions}

    def of_group(self, group_id: str) -> list[tuple[str, list[tuple[int, CommittedOffset]]]]:
        """All that the group has committed, by topic; check each offset with `is_of` before it is shown."""
        topics = self._shown(group_id, None)
        return [(topic, list(partitions.items())) for topic, partitions in topics.items()]

    def commit(
        self, group_id: str, committer: Committer, records: Sequence[OffsetRecord]
    ) -> Callable[[int], Decision[OffsetRecord, None]]:
        """Commit `records`, which all belong to this group. Raises ApiError, by Kafka's rules."""

        def operation(now_ms: int) -> Decision[OffsetRecord, None]:
            return Decision(records, None, self._check_commit(group_id, committer, now_ms))

        return operation

    def commit_in_transaction(
        self, group_id: str, committer: Committer, producer: tuple[int, int], records: Sequence[OffsetRecord]
    ) -> Callable[[int], Decision[Any, None]]:
        """Commit `records` with the transaction of this producer id and epoch. Raises ApiError as `commit`.

        A client that is no member may do so beside members, because the first versions of TxnOffsetCommit
        name no member.
        """

        def operation(now_ms: int) -> Decision[Any, None]:
            timers = self._check_commit(group_id, committer, now_ms)
            return Decision([InTransaction(*producer, record) for record in records], None, timers)

        return operation

    def end_transaction(self, marker: TransactionMarker, now_ms: int) -> Decision[TransactionMarker, None]:
        """Let what the transaction committed count, or forget it."""
        return Decision((marker,), None)

    def unstable(self, group_id: str) -> Collection[tuple[str, int]]:
        """The topics and partitions of the group that transactions have committed offsets for, if they are
        open, or their end is not committed."""
        unstable = set(self._pending_in(group_id))
        for key, before in self._uncommitted.get(group_id, ()):
            if any(each.is_unstable for each in before):
                unstable.add(key)
        return unstable

    def _check_commit(self, group_id: str, committer: Committer, now_ms: int) -> Timers:
        if committer.is_in_transaction and committer.is_anonymous:
            return {}
        try:
            return self._check_member(group_id, committer, now_ms)
        except ApiError as error:
            if committer.is_in_transaction and error.code == ErrorCode.REBALANCE_IN_PROGRESS:
                return {}
            raise

    def _check_member(self, group_id: str, committer: Committer, now_ms: int) -> Timers:
        membership = self._membership_of(group_id)
        if membership is not None:
            return membership.check_commit(group_id, committer, now_ms)
        if committer.generation < 0:
            return {}
        if group_id in self._groups:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if committer.api_version >= _SAYS_THAT_THE_GROUP_IS_MISSING_FROM:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)

    def fetch(
        self,
        group_id: str,
        topics: Iterable[str] | None,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """The committed offsets of the group in `topics` (None: in all) at one time, by topic and partition.

        Check each with `is_of` before a client gets it. Raises ApiError if this member may not read them.
        """
        membership = self._membership_of(group_id)
        if membership is not None:
            membership.check_fetch(group_id, member_id, member_epoch)
        shown = self._shown(group_id, None if topics is None else set(topics))
        return {name: dict(partitions) for name, partitions in shown.items()}

    def delete(
        self, group_id: str, wanted: Sequence[tuple[str, Iterable[int]]]
    ) -> Callable[[int], Decision[OffsetRecord, Mapping[str, ErrorCode]]]:
        """Remove the committed offsets of the group in these partitions; returns a code per topic.

        Raises ApiError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """

        def operation(now_ms: int) -> Decision[OffsetRecord, Mapping[str, ErrorCode]]:
            membership = self._membership_of(group_id)
            if membership is not None:
                membership.check_offset_delete(group_id)
            elif not self.knows(group_id):
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
            held, pending = self._groups.get(group_id, {}), self._pending_in(group_id)
            codes: dict[str, ErrorCode] = {}
            records: list[OffsetRecord] = []
            for topic, partitions in wanted:
                if membership is not None and membership.is_subscribed(group_id, topic):
                    codes[topic] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                    continue
                codes[topic] = ErrorCode.NONE
                present = held.get(topic, {})
                records += [
                    OffsetRecord(group_id, topic, index, None)
                    for index in sorted(set(partitions))
                    if index in present or (topic, index) in pending
                ]
            return Decision(records, codes)

        return operation

    def removal(self, group_id: str) -> Iterator[OffsetRecord]:
        """The records that remove all offsets of a group."""
        held = self._groups.get(group_id, {})
        for topic, partitions in held.items():
            for partition in partitions:
                yield OffsetRecord(group_id, topic, partition, None)
        for topic, partition in self._pending_in(group_id):
            if partition not in held.get(topic, ()):
                yield OffsetRecord(group_id, topic, partition, None)

    def knows(self, group_id: str) -> bool:
        """Whether the group has committed offsets, or an open transaction has committed some for it."""
        return group_id in self._groups or bool(self._pending_in(group_id))

    def _pending_in(self, group_id: str) -> Collection[tuple[str, int]]:
        pending = self._pending.get(group_id)
        return () if pending is None else pending.keys()

    def begin_sweep(self, now_ms: int) -> Decision[OffsetRecord, None]:
        """Let `sweep` examine all offsets that exist now."""
        self._groups_to_sweep = deque(self._groups)
        return Decision((), None)

    def sweep(self, now_ms: int, topic_ids: TopicIds) -> Decision[OffsetRecord, bool]:
        """Remove some offsets that expired or whose topic was deleted; returns whether to call it again."""
        records: list[OffsetRecord] = []
        looks, room_bytes = SWEPT_AT_ONCE, REMOVED_BYTES_AT_ONCE
        while looks > 0 and room_bytes > 0 and (found := self._next_to_sweep()) is not None:
            group_id, topic = found
            topic_id = topic_ids(topic)
            partitions = self._groups.get(group_id, {}).get(topic, {})
            pending = self._pending_in(group_id)
            looks -= 1 + len(partitions)
            for partition, committed in partitions.items():
                if (topic, partition) in pending or (
                    is_of(committed, topic_id) and not self._is_expired(group_id, topic, committed, now_ms)
                ):
                    continue
                records.append(OffsetRecord(group_id, topic, partition, None))
                room_bytes -= _LARGEST_KEY_OVERHEAD + _BYTES_PER_CHARACTER * (len(group_id) + len(topic))
                if room_bytes <= 0:
                    self._topics_to_sweep.appendleft(found)  # The next step examines the rest of it.
                    break
        return Decision(records, bool(self._topics_to_sweep or self._groups_to_sweep))

    def _next_to_sweep(self) -> tuple[str, str] | None:
        """The next group and one of its topics."""
        while not self._topics_to_sweep:
            if not self._groups_to_sweep:
                return None
            group_id = self._groups_to_sweep.popleft()
            self._topics_to_sweep.extend((group_id, topic) for topic in self._groups.get(group_id, ()))
        return self._topics_to_sweep.popleft()

    def _is_expired(self, group_id: str, topic: str, committed: CommittedOffset, now_ms: int) -> bool:
        idle_since_ms: int | None = committed.commit_timestamp_ms
        membership = self._membership_of(group_id)
        if membership is not None:
            if membership.is_subscribed(group_id, topic):
                return False
            idle_since_ms = membership.idle_since_ms(group_id, committed.commit_timestamp_ms)
        if idle_since_ms is None:
            return False
        if committed.expire_timestamp_ms != NO_TIMESTAMP:
            return now_ms >= committed.expire_timestamp_ms
        return now_ms - idle_since_ms >= self.retention_ms


def is_of(committed: CommittedOffset, topic_id: UUID | None) -> bool:
    """Whether an offset was committed for the topic that has its name now, whose id is `topic_id`."""
    return topic_id is not None and committed.topic_id in (NO_TOPIC_ID, topic_id)
