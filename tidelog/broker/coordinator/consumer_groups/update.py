"""One operation on a group of the consumer protocol while it is decided.

Owns `GroupUpdate` and the steps that operations share: members that come, change and go, the epochs that rise
with them, and the target assignment. Invariants:
- the first change is made to a copy of the group, so a decision that is not carried out changes nothing;
- the group's epoch rises with each change of members, of what they read, or of those topics. Then the target
  of all members is computed again with the next heartbeat or join;
- a regular expression is kept as long as a member subscribes to it.

Pure. Source: Kafka's GroupMetadataManager (consumerGroupHeartbeat, consumerGroupFenceMember), KIP-848.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from functools import partial
from typing import Any, NamedTuple, Protocol

from tidelog.broker.coordinator.consumer_groups import records
from tidelog.broker.coordinator.consumer_groups.assignors import ASSIGNORS, AssignedMember
from tidelog.broker.coordinator.consumer_groups.group import (
    Assignment,
    ConsumerGroup,
    Current,
    MemberState,
    ResolvedRegex,
    Subscription,
)
from tidelog.broker.coordinator.consumer_groups.messages import ConsumerGroupSettings, TopicsView
from tidelog.broker.coordinator.consumer_groups.reconciliation import reconciled
from tidelog.broker.coordinator.decision import Decision, Timer
from tidelog.protocol.errors import ApiError, ErrorCode


class AskedToJoin(NamedTuple):
    """The change of a Decision: whether a classic member was asked to join again and has not yet."""

    group_id: str
    member_id: str
    is_asked: bool


class Expiries(Protocol):
    """The operations that run when a timer of a group expires."""

    def member_expired(self, group_id: str, member_id: str, now_ms: int) -> Decision[Any, None]: ...

    def revocation_expired(
        self, group_id: str, member_id: str, member_epoch: int, now_ms: int
    ) -> Decision[Any, None]: ...


def session_timer(group_id: str, member_id: str) -> Hashable:
    return ("consumer session", group_id, member_id)


def revocation_timer(group_id: str, member_id: str) -> Hashable:
    return ("revocation", group_id, member_id)


def rejoin_timer(group_id: str, member_id: str) -> Hashable:
    """Of a classic member that was asked to join again."""
    return ("rejoin", group_id, member_id)


def resync_timer(group_id: str, member_id: str) -> Hashable:
    """Of a classic member that joined and has not asked for its assignment yet."""
    return ("resync", group_id, member_id)


_MEMBER_TIMERS = (session_timer, revocation_timer, rejoin_timer, resync_timer)


class GroupUpdate:
    """The effect of one operation. `group` is the group as it will be."""

    def __init__(
        self,
        group: ConsumerGroup,
        now_ms: int,
        settings: ConsumerGroupSettings,
        topics: TopicsView,
        expiries: Expiries,
    ) -> None:
        self.group = group
        self.now_ms = now_ms
        self.settings = settings
        self.topics = topics
        self.records: list[Any] = []
        self.changes: list[Any] = []
        self.timers: dict[Hashable, Timer | None] = {}
        self.before = group
        self._expiries = expiries

    def decision(self, response: Any) -> Decision[Any, Any]:
        return Decision(self.records, response, self.timers, self.changes)

    @property
    def lost_its_last_consumer(self) -> bool:
        """Whether only members of the classic protocol are left, which was not so before."""
        count = len(self.group.members)
        had_consumers = self.before.classic_member_count < len(self.before.members)
        return bool(count) and had_consumers and self.group.classic_member_count == count

    def write(self, record: records.ConsumerGroupRecord) -> None:
        if self.group is self.before:
            self.group = self.group.copy()
        record.apply_to(self.group)
        self.records.append(record)

    # Timers

    def keep_alive(self, member_id: str, timeout_ms: int) -> None:
        """The member expires if it sends nothing for `timeout_ms`."""
        self._expires_in(session_timer, member_id, timeout_ms)

    def resume(self, member_id: str) -> None:
        """Set the timers of a member after a restart."""
        subscription = self.group.members[member_id]
        if subscription.classic is not None:
            self.keep_alive(member_id, subscription.classic.session_timeout_ms)
            return
        self.keep_alive(member_id, self.settings.session_timeout_ms)
        current = self.group.current(member_id)
        if current.state is MemberState.UNREVOKED_PARTITIONS:
            self._await_revocation(member_id, current)

    def must_sync_in(self, member_id: str, timeout_ms: int) -> None:
        self._expires_in(resync_timer, member_id, timeout_ms)

    def must_join_in(self, member_id: str, timeout_ms: int) -> None:
        """Does nothing if the member was asked before."""
        if member_id not in self.group.asked_to_join:
            self._expires_in(rejoin_timer, member_id, timeout_ms)
            self.changes.append(AskedToJoin(self.group.group_id, member_id, True))

    def has_joined(self, member_id: str) -> None:
        self.end_timer(rejoin_timer, member_id)
        if member_id in self.group.asked_to_join:
            self.changes.append(AskedToJoin(self.group.group_id, member_id, False))

    def end_timer(self, timer: Callable[[str, str], Hashable], member_id: str) -> None:
        self.timers[timer(self.group.group_id, member_id)] = None

    def end_timers(self, member_id: str) -> None:
        for timer in _MEMBER_TIMERS:
            self.end_timer(timer, member_id)

    def _expires_in(self, timer: Callable[[str, str], Hashable], member_id: str, timeout_ms: int) -> None:
        group_id = self.group.group_id
        operation = partial(self._expiries.member_expired, group_id, member_id)
        self.timers[timer(group_id, member_id)] = Timer(self.now_ms + timeout_ms, operation)

    # Members

    def subscribe(self, member_id: str, wanted: Subscription, regex: ResolvedRegex | None = None) -> bool:
        """Store the metadata of a member; whether that changed. `regex`: what its expression matches."""
        before = self.group.members.get(member_id)
        if before == wanted:
            return False
        self.write(records.MemberRecord(self.group.group_id, member_id, wanted))
        if before is not None and (before.topic_names, before.topic_regex) == (
            wanted.topic_names,
            wanted.topic_regex,
        ):
            return True
        if wanted.topic_regex and regex is not None and wanted.topic_regex not in self.group.regexes:
            self.write(records.RegexRecord(self.group.group_id, wanted.topic_regex, regex))
        self._forget_unused_regexes()
        self._members_changed()
        return True

    def check_memory(self, free_bytes: int) -> None:
        """Raise ApiError if the group has grown by more than this."""
        added_bytes = self.group.held_bytes - self.before.held_bytes
        if added_bytes > max(free_bytes, 0):
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "all groups together hold as much as groups.max.bytes allows",
            )

    def remove(self, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            self.end_timers(member_id)
            for record in records.removal_of_member(self.group.group_id, member_id):
                self.write(record)
        self._forget_unused_regexes()
        self._members_changed()

    def replace(self, old_id: str, new_id: str) -> None:
        """A static member came back under another id: it continues where it left."""
        group = self.group
        subscription, target = group.members[old_id], group.target(old_id)
        current = group.current(old_id)._replace(epoch=0, previous_epoch=0)
        self.end_timers(old_id)
        for record in records.removal_of_member(group.group_id, old_id):
            self.write(record)
        self.write(records.MemberRecord(group.group_id, new_id, subscription))
        self.write(records.TargetRecord(group.group_id, new_id, target))
        self.write(records.CurrentRecord(group.group_id, new_id, current))

    def _forget_unused_regexes(self) -> None:
        used = {each.topic_regex for each in self.group.members.values()}
        for regex in [each for each in self.group.regexes if each not in used]:
            self.write(records.RegexRecord(self.group.group_id, regex, None))

    def _members_changed(self) -> None:
        self._store_topics()
        self.raise_epoch()

    def raise_epoch(self) -> None:
        self.write(records.GroupEpochRecord(self.group.group_id, self.group.epoch + 1))

    def refresh_topics(self) -> None:
        """Topics were created, deleted, or got partitions: if members read them, the epoch rises."""
        self._store_topics()
        if self.records:
            self.raise_epoch()

    def _store_topics(self) -> None:
        """Store which subscribed topics exist, and their sizes."""
        topics = {}
        for name in sorted(self.group.subscribed_names):
            topic = self.topics.subscribed_topic(name)
            if topic is not None:
                topics[name] = topic
        if topics != self.group.topics:
            self.write(records.TopicsRecord(self.group.group_id, topics))

    # Assignments

    def assign(self) -> None:
        """Compute the targets of all members if the group changed since the last time."""
        group = self.group
        if group.epoch <= group.target_epoch:
            return
        members = {
            member_id: AssignedMember(each.instance_id, group.topic_ids_of(each), group.target(member_id))
            for member_id, each in group.members.items()
        }
        counts = {topic.topic_id: topic.partition_count for topic in group.topics.values()}
        targets = ASSIGNORS[group.assignor(self.settings.assignors[0])](members, counts)
        for member_id, target in targets.items():
            if target != group.targets.get(member_id):
                self.write(records.TargetRecord(group.group_id, member_id, target))
        self.write(records.TargetEpochRecord(group.group_id, group.epoch))

    def reconcile(self, member_id: str, owned: Assignment | None) -> Current:
        """Take the member one step on its way to its target, and return where it is then."""
        group = self.group
        before = group.current(member_id)
        current = reconciled(before, group.target_epoch, group.target(member_id), owned, group.is_owned)
        if current == before:
            return current
        # Nothing after this looks at the group, so it is not copied for it.
        self.records.append(records.CurrentRecord(group.group_id, member_id, current))
        if group.members[member_id].classic is None:
            self._await_revocation(member_id, current)
        return current

    def _await_revocation(self, member_id: str, current: Current) -> None:
        """A member that does not revoke its partitions within its rebalance timeout expires."""
        if current.state is not MemberState.UNREVOKED_PARTITIONS:
            self.end_timer(revocation_timer, member_id)
            return
        group_id = self.group.group_id
        timeout_ms = self.group.members[member_id].rebalance_timeout_ms
        operation = partial(self._expiries.revocation_expired, group_id, member_id, current.epoch)
        self.timers[revocation_timer(group_id, member_id)] = Timer(self.now_ms + timeout_ms, operation)


def is_subset(owned: Assignment | None, assigned: Assignment) -> bool:
    """Whether a member says that it owns no more than this."""
    if owned is None:
        return False
    none: Collection[int] = frozenset()
    return all(held <= frozenset(assigned.get(topic_id, none)) for topic_id, held in owned.items())
