"""Groups of all types: each request goes to the machine of its group's type.

Owns which type a group has, and when that changes. Invariants:
- an id belongs to a group of one type;
- a group without members changes its type with the first request that joins it by the other protocol;
- a share group stays one;
- a classic group of consumers becomes one of the consumer protocol when a member joins by that protocol, and
  a classic one again when its last such member is gone, as far as `group.consumer.migration.policy` allows.

Pure. Source: Kafka's GroupMetadataManager, KIP-848, KIP-932.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Any

from tidelog.broker.coordinator.consumer_groups.group import JOINING_EPOCH, ConsumerGroup
from tidelog.broker.coordinator.consumer_groups.heartbeats import check_request
from tidelog.broker.coordinator.consumer_groups.machine import ConsumerGroups
from tidelog.broker.coordinator.consumer_groups.messages import (
    ConsumerGroupSettings,
    HeartbeatAnswer,
    MemberHeartbeat,
    TopicsView,
)
from tidelog.broker.coordinator.consumer_groups.migration import downgrade, upgrade
from tidelog.broker.coordinator.consumer_groups.records import removal_of_group
from tidelog.broker.coordinator.consumer_groups.update import GroupUpdate
from tidelog.broker.coordinator.decision import Decision
from tidelog.broker.coordinator.groups import messages
from tidelog.broker.coordinator.groups.group import CONSUMER_PROTOCOL_TYPE, Group
from tidelog.broker.coordinator.groups.joining import refusal
from tidelog.broker.coordinator.groups.machine import Groups
from tidelog.broker.coordinator.groups.states import GroupState
from tidelog.broker.coordinator.share_groups import machine as share
from tidelog.protocol.errors import ApiError, ErrorCode

CLASSIC = "classic"
CONSUMER = "consumer"
SHARE = "share"
_JOINS = (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)


class GroupTypes:
    """Operations take `now_ms` last and return a Decision."""

    def __init__(
        self,
        limits: messages.GroupLimits,
        settings: ConsumerGroupSettings,
        share_settings: share.ShareGroupSettings,
        topics: TopicsView,
    ) -> None:
        self.consumer = ConsumerGroups(settings, topics, self._downgraded)
        self.share = share.ShareGroups(share_settings, topics, self._free_bytes)
        self._topics = topics
        self.classic = Groups(limits, lambda: self.consumer.held_bytes + self.share.held_bytes)

    def of(self, group_id: str) -> Groups | ConsumerGroups | share.ShareGroups | None:
        """The machine of the group's type; None: the group has no state besides its offsets."""
        machines = (self.consumer, self.classic, self.share)
        return next((each for each in machines if each.knows(group_id)), None)

    def ids(self) -> Collection[str]:
        return [*self.classic.ids(), *self.consumer.ids(), *self.share.ids()]

    def uncommitted_ids(self) -> Iterator[str]:
        return chain(
            self.classic.uncommitted_ids(), self.consumer.uncommitted_ids(), self.share.uncommitted_ids()
        )

    # Members

    def join(self, request: messages.JoinRequest, now_ms: int) -> Decision[Any, messages.JoinAnswer]:
        group = self.consumer.get(request.group_id)
        if self.share.knows(request.group_id):
            refused = messages.JoinAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
            return Decision((), refused)
        if group is None:
            return self.classic.join(request, now_ms)
        if not group.members:
            return self._joined_anew(group, request, now_ms)
        code = refusal(request, self.classic.limits)
        if code is not None:
            return Decision((), messages.JoinAnswer(code, request.member_id))
        return self.consumer.join(group, request, self._free_bytes(), now_ms)

    def _joined_anew(
        self, group: ConsumerGroup, request: messages.JoinRequest, now_ms: int
    ) -> Decision[Any, messages.JoinAnswer]:
        """A group without members becomes a classic one, if the join is not refused."""
        decision = self.classic.join(request, now_ms)
        answer = decision.response
        if isinstance(answer, messages.JoinAnswer) and answer.error_code not in _JOINS:
            return decision
        return decision._replace(records=[*removal_of_group(group), *decision.records])

    def sync(self, request: messages.SyncRequest, now_ms: int) -> Decision[Any, messages.SyncAnswer]:
        group = self.consumer.get(request.group_id)
        if group is None:
            return self.classic.sync(request, now_ms)
        return self.consumer.sync(group, request, now_ms)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> Decision[Any, ErrorCode]:
        group = self.consumer.get(group_id)
        if group is None:
            return self.classic.heartbeat(group_id, member_id, instance_id, generation, now_ms)
        return self.consumer.classic_heartbeat(group, member_id, instance_id, generation, now_ms)

    def leave(
        self, group_id: str, leaving: Sequence[messages.MemberIdentity], now_ms: int
    ) -> Decision[Any, list[ErrorCode]]:
        """An error code for each leaving member, in their order."""
        group = self.consumer.get(group_id)
        if group is None:
            return self.classic.leave(group_id, leaving, now_ms)
        return self.consumer.leave(group, leaving, now_ms)

    def consumer_heartbeat(self, request: MemberHeartbeat, now_ms: int) -> Decision[Any, HeartbeatAnswer]:
        """Raises ApiError."""
        check_request(request, self.consumer.settings.assignors)
        group = self.consumer.get(request.group_id)
        if group is not None:
            return self.consumer.heartbeat(group, request, self._free_bytes(), now_ms)
        if request.member_epoch != JOINING_EPOCH or self.share.knows(request.group_id):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
        if self.classic.knows(request.group_id):
            return self._joined_by_consumer(request, now_ms)
        return self.consumer.heartbeat(ConsumerGroup(request.group_id), request, self._free_bytes(), now_ms)

    def share_heartbeat(
        self, request: share.ShareHeartbeat, now_ms: int
    ) -> Decision[Any, share.ShareHeartbeatAnswer]:
        """Raises ApiError."""
        share.check_request(request)
        if self.consumer.knows(request.group_id) or self.classic.knows(request.group_id):
            raise share.not_found(request.group_id)
        return self.share.heartbeat(request, now_ms)

    def _free_bytes(self) -> int:
        held_bytes = self.classic.held_bytes + self.consumer.held_bytes + self.share.held_bytes
        return self.classic.limits.max_bytes - held_bytes

    # Changes of the protocol

    def _joined_by_consumer(self, request: MemberHeartbeat, now_ms: int) -> Decision[Any, HeartbeatAnswer]:
        """A member of the consumer protocol joins a classic group, which becomes one of its protocol."""
        before, ended = self.classic.given_up(request.group_id, now_ms)
        group = ConsumerGroup(request.group_id)
        records: list[Any] = []
        if before.members:
            self._check_upgrade(before)
            records = list(upgrade(before, self._topics))
            for record in records:
                record.apply_to(group)
        free_bytes = self._free_bytes() + before.held_bytes - group.held_bytes
        joined = self.consumer.heartbeat(group, request, free_bytes, now_ms)
        resumed = self.consumer.resumed(group, now_ms)
        return Decision(
            [*ended.records, *records, *joined.records],
            joined.response,
            {**ended.timers, **resumed, **joined.timers},
            joined.changes,
            ended.released,
        )

    def _check_upgrade(self, group: Group) -> None:
        settings = self.consumer.settings
        if not settings.may_upgrade:
            reason = "group.consumer.migration.policy does not allow it to become one"
        elif group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            reason = f"its members are not consumers: their protocol type is {group.protocol_type}"
        elif len(group.members) > settings.max_size:
            reason = f"it has {len(group.members)} members, more than group.consumer.max.size"
        else:
            return
        raise ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group: {reason}"
        )

    def _downgraded(self, update: GroupUpdate, response: Any) -> Decision[Any, Any]:
        """The last member of the consumer protocol is gone: the group becomes a classic one, if it may."""
        before, after = update.before, update.group
        may_downgrade = self.consumer.settings.may_downgrade
        if not may_downgrade or len(after.members) > self.classic.limits.max_size:
            return update.decision(response)
        was_replaced = len(after.members) == len(before.members)
        # Members that stay know the generation from before the other one left.
        generation = after.epoch if was_replaced else before.epoch
        made = downgrade(after, generation, self._topics, update.now_ms)
        for member_id in after.members:
            update.end_timers(member_id)
        begun = self.classic.taken_over(made, response, rebalances=not was_replaced, now_ms=update.now_ms)
        return begun._replace(
            records=[*removal_of_group(before), *begun.records], timers={**update.timers, **begun.timers}
        )

    # Operators

    def describe(self, group_id: str) -> messages.DescribedGroup:
        """A group that does not exist, or is of the consumer protocol, is described as dead."""
        return self.classic.describe(group_id)

    def listed(self, group_id: str) -> messages.ListedGroup | None:
        """None for a group that has no state besides its offsets."""
        group = self.consumer.committed(group_id)
        if group is not None:
            return messages.ListedGroup(group_id, group.state.value, CONSUMER, CONSUMER)
        share_group = self.share.committed(group_id)
        if share_group is not None:
            return messages.ListedGroup(group_id, share_group.state.value, SHARE, SHARE)
        described = self.classic.describe(group_id)
        if described.state is GroupState.DEAD:
            return None
        return messages.ListedGroup(group_id, described.state.value, described.protocol_type, CLASSIC)

    # Time

    def loaded(self, group_ids: Sequence[str], now_ms: int) -> Decision[Any, None]:
        """Call after all records were applied: from now on members of these groups must send heartbeats."""
        consumer = self.consumer.loaded(group_ids, now_ms)
        classic = self.classic.loaded([each for each in group_ids if self.classic.knows(each)], now_ms)
        of_share = self.share.loaded(group_ids, now_ms)
        return classic._replace(timers={**classic.timers, **consumer.timers, **of_share})
