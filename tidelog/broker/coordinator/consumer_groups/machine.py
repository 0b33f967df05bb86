"""The groups of the consumer protocol of one coordinator: a pure machine from requests to decisions.

Its records are those of `records`; its changes `AskedToJoin`, which a restart may lose. Invariant: a group
exists from its first member until its removal is written; without members it is empty.

Pure. Source: Kafka's GroupMetadataManager, for groups of type consumer.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tidelog.broker.coordinator.consumer_groups import classic_members, heartbeats, messages, records
from tidelog.broker.coordinator.consumer_groups.group import (
    LEAVING_EPOCH,
    LEFT_FOR_A_WHILE_EPOCH,
    ConsumerGroup,
    ResolvedRegex,
)
from tidelog.broker.coordinator.consumer_groups.update import AskedToJoin, GroupUpdate
from tidelog.broker.coordinator.decision import Decision, Timer
from tidelog.broker.coordinator.group_table import GroupTable
from tidelog.broker.coordinator.groups.messages import (
    JoinAnswer,
    JoinRequest,
    MemberIdentity,
    SyncAnswer,
    SyncRequest,
)
from tidelog.broker.coordinator.offsets.committed_offsets import Committer
from tidelog.protocol.errors import ApiError, ErrorCode

_CONSUMER_COMMITS_FROM = 9


Downgrade = Callable[[GroupUpdate, Any], Decision[Any, Any]]
"""(update, response) -> the decision."""


class ConsumerGroups(GroupTable[ConsumerGroup]):
    """Operations take `now_ms` last and return a Decision."""

    def __init__(
        self, settings: messages.ConsumerGroupSettings, topics: messages.TopicsView, downgrade: Downgrade
    ) -> None:
        """`downgrade` decides about a group that lost its last member of the consumer protocol."""
        super().__init__(ConsumerGroup, records.GroupEpochRecord)
        self.settings = settings
        self._downgrade = downgrade
        self._topics = topics

    def apply_change(self, change: AskedToJoin) -> None:
        group = self._groups.get(change.group_id)
        if group is None:
            return
        if change.is_asked:
            group.asked_to_join.add(change.member_id)
        else:
            group.asked_to_join.discard(change.member_id)

    # Queries

    @property
    def regexes(self) -> frozenset[str]:
        """All regular expressions to which members are subscribed."""
        return frozenset(regex for group in self._groups.values() for regex in group.regexes)

    def regexes_of(self, group_id: str) -> Collection[str]:
        """The regular expressions of one group; none if it does not exist."""
        group = self._groups.get(group_id)
        return () if group is None else list(group.regexes)

    # Members

    def update(self, group: ConsumerGroup, now_ms: int) -> GroupUpdate:
        settings = self.settings.of_group(self._topics.group_configs(group.group_id))
        return GroupUpdate(group, now_ms, settings, self._topics, self)

    def heartbeat(
        self, group: ConsumerGroup, request: messages.MemberHeartbeat, free_bytes: int, now_ms: int
    ) -> Decision[Any, messages.HeartbeatAnswer]:
        """Of a group that exists, or is new. Raises ApiError."""
        update = self.update(group, now_ms)
        if request.member_epoch in (LEAVING_EPOCH, LEFT_FOR_A_WHILE_EPOCH):
            return self._decided(update, heartbeats.leave(update, request))
        return update.decision(heartbeats.heartbeat(update, request, free_bytes))

    def _decided(self, update: GroupUpdate, response: Any) -> Decision[Any, Any]:
        if update.lost_its_last_consumer:
            return self._downgrade(update, response)
        return update.decision(response)

    # Members of the classic protocol

    def join(
        self, group: ConsumerGroup, request: JoinRequest, free_bytes: int, now_ms: int
    ) -> Decision[Any, JoinAnswer]:
        update = self.update(group, now_ms)
        try:
            return self._decided(update, classic_members.join(update, request, free_bytes))
        except ApiError as error:
            return Decision((), JoinAnswer(error.code, request.member_id))

    def sync(self, group: ConsumerGroup, request: SyncRequest, now_ms: int) -> Decision[Any, SyncAnswer]:
        update = self.update(group, now_ms)
        try:
            return update.decision(classic_members.sync(update, request))
        except ApiError as error:
            return Decision((), SyncAnswer(error.code))

    def classic_heartbeat(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> Decision[Any, ErrorCode]:
        update = self.update(group, now_ms)
        try:
            code = classic_members.heartbeat(update, member_id, instance_id, generation)
        except ApiError as error:
            return Decision((), error.code)
        return update.decision(code)

    def leave(
        self, group: ConsumerGroup, leaving: Sequence[MemberIdentity], now_ms: int
    ) -> Decision[Any, list[ErrorCode]]:
        update = self.update(group, now_ms)
        return update.decision(classic_members.leave(update, leaving))

    # Offsets

    def check_commit(self, group_id: str, committer: Committer, now_ms: int) -> Mapping[Any, Timer | None]:
        """Raise ApiError if offsets of this group may not be committed; returns the timers to set: none.

        Without members, any client may commit without an epoch (-1).
        """
        group = self._groups[group_id]
        if committer.generation < 0 and not group.members:
            return {}
        try:
            self._check_member(group, committer.member_id, committer.generation)
        except ApiError as error:
            if committer.is_in_transaction and error.code == ErrorCode.STALE_MEMBER_EPOCH:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION, error.message) from None
            raise
        if committer.is_in_transaction:
            return {}
        if (
            group.members[committer.member_id].classic is None
            and committer.api_version < _CONSUMER_COMMITS_FROM
        ):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"members of the consumer protocol need OffsetCommit {_CONSUMER_COMMITS_FROM} or later",
            )
        return {}

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Raise ApiError if this client may not read the offsets of a known group."""
        group = self.committed(group_id) or ConsumerGroup(group_id)
        if member_id is not None or member_epoch >= 0:
            self._check_member(group, member_id or "", member_epoch)

    def _check_member(self, group: ConsumerGroup, member_id: str, member_epoch: int) -> None:
        subscription = group.members.get(member_id)
        if subscription is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        expected = group.current(member_id).epoch
        if member_epoch == expected:
            return
        if subscription.classic is not None:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        raise ApiError(ErrorCode.STALE_MEMBER_EPOCH, f"expected member epoch {expected}, got {member_epoch}")

    def check_offset_delete(self, group_id: str) -> None:
        """Offsets may be deleted while the group has members, as long as these do not read the topic."""

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        return topic in self._groups[group_id].subscribed_names

    def idle_since_ms(self, group_id: str, commit_timestamp_ms: int) -> int | None:
        """An offset of a topic that no member reads is kept for the retention after its commit."""
        return commit_timestamp_ms

    # Operators

    def describe(self, group_id: str) -> messages.DescribedConsumerGroup | None:
        """None for a group that does not exist."""
        group = self.committed(group_id)
        if group is None:
            return None
        members = [
            messages.DescribedConsumerMember(
                member_id,
                each.instance_id,
                each.rack_id,
                group.current(member_id).epoch,
                each.client_id,
                each.client_host,
                each.topic_names,
                each.topic_regex,
                group.current(member_id).assigned,
                group.target(member_id),
                each.classic is not None,
            )
            for member_id, each in group.members.items()
        ]
        named = {
            topic_id: self._topics.topic_name(topic_id)
            for member in members
            for assignment in (member.assigned, member.target)
            for topic_id in assignment
        }
        return messages.DescribedConsumerGroup(
            group_id,
            group.state,
            group.epoch,
            group.target_epoch,
            group.assignor(self.settings.assignors[0]),
            members,
            {topic_id: name for topic_id, name in named.items() if name is not None},
        )

    def deletion(self, group_id: str) -> Sequence[records.ConsumerGroupRecord]:
        """The records that delete a group without members. Raises ApiError."""
        if self._groups[group_id].members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        return self.deletion_if_empty(group_id)

    def deletion_if_empty(self, group_id: str) -> Sequence[records.ConsumerGroupRecord]:
        """The records that delete a group; none if it has members."""
        group = self._groups[group_id]
        return () if group.members else tuple(records.removal_of_group(group))

    # Topics

    def topics_changed(
        self, group_id: str, resolved: Mapping[str, ResolvedRegex], now_ms: int
    ) -> Decision[Any, None]:
        """Topics were created, deleted or got partitions. `resolved`: what expressions match now."""
        group = self._groups.get(group_id)
        if group is None:
            return Decision((), None)
        update = self.update(group, now_ms)
        for regex, present in group.regexes.items():
            found = resolved.get(regex)
            if found is not None and found.revision > present.revision and found.topics != present.topics:
                update.write(records.RegexRecord(group_id, regex, found))
        update.refresh_topics()
        return update.decision(None)

    # Time

    def loaded(self, group_ids: Sequence[str], now_ms: int) -> Decision[Any, None]:
        """Call after all records were applied: from now on members of these groups must send heartbeats."""
        timers: dict[Any, Timer | None] = {}
        for group_id in group_ids:
            group = self._groups.get(group_id)
            if group is None:
                continue
            timers.update(self.resumed(group, now_ms))
        return Decision((), None, timers)

    def resumed(self, group: ConsumerGroup, now_ms: int) -> Mapping[Any, Timer | None]:
        """The timers of all members of a group that was not made by their requests."""
        update = self.update(group, now_ms)
        for member_id in group.members:
            update.resume(member_id)
        return update.timers

    def member_expired(self, group_id: str, member_id: str, now_ms: int) -> Decision[Any, None]:
        group = self._groups.get(group_id)
        if group is None or member_id not in group.members:
            return Decision((), None)
        update = self.update(group, now_ms)
        update.remove((member_id,))
        return self._decided(update, None)

    def revocation_expired(
        self, group_id: str, member_id: str, member_epoch: int, now_ms: int
    ) -> Decision[Any, None]:
        """The member did not revoke its partitions within its rebalance timeout."""
        group = self._groups.get(group_id)
        if group is None or group.current(member_id).epoch != member_epoch:
            return Decision((), None)
        return self.member_expired(group_id, member_id, now_ms)
