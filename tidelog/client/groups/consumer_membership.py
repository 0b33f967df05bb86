"""A consumer's membership in a group of the consumer protocol: which request or callback comes next.

Owns: the member's epoch, its assignment by the broker, and what each error code means for them. Invariants:
- `owned` is exactly what the application may read. A partition leaves it only by `revoked`, after the
  application's callbacks, and enters it only by `adopted`;
- the broker learns that a partition is given up by a heartbeat that no longer names it. So no other member
  gets it before;
- partitions are given up as lost, without a commit, if the broker no longer counts them as this member's;
- a heartbeat names everything, so a lost answer costs nothing but a repetition.
Pure. Source: KIP-848, Kafka's ConsumerMembershipManager and ConsumerHeartbeatRequestManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from tidelog.client.errors import FencedInstanceError
from tidelog.client.groups import steps
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode, error_code
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import TopicPartition
from tidelog.wire.errors import ClientError, broker_error

JOINING: Final = 0
LEAVING: Final = -1
"""What a heartbeat has instead of an epoch."""
_LEAVING_FOR_A_WHILE: Final = -2
_FORGOTTEN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
_OTHER_OWNER: Final = frozenset({ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID})


class ConsumerMembership(steps.GroupMembership):
    """`member_id` is a new unique text. `assignor` is the broker's, None for its default. Times are in
    milliseconds."""

    api_key = ApiKey.CONSUMER_GROUP_HEARTBEAT

    def __init__(
        self,
        group_id: str,
        member_id: str,
        *,
        group_instance_id: str | None,
        rebalance_timeout_ms: int,
        heartbeat_interval_ms: int,
        assignor: str | None,
    ) -> None:
        super().__init__(group_id, member_id, group_instance_id, heartbeat_interval_ms)
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._assignor = assignor
        self.topics: frozenset[str] | None = None
        """Those that the application reads; None: it wants to be no member."""
        # What the broker assigned, until the names of all its topics are known.
        self._unresolved: tuple[tuple[UUID, tuple[int, ...]], ...] | None = None
        self._topic_ids: dict[str, UUID] = {}
        # It sent a heartbeat since it last left, so the broker may count it.
        self._may_be_member = False

    # What the application wants

    def subscribe(self, topics: frozenset[str] | None) -> None:
        """Be a member that reads these topics; None: be no member."""
        if topics != self.topics:
            self.topics = topics
            self.must_report = True

    def poll_interval_exceeded(self) -> None:
        """The application asks for no records: leave, so that other members read its partitions."""
        self._is_away = True

    def polled(self) -> None:
        """The application asks for records again."""
        self.must_report |= self._is_away
        self._is_away = False

    def metadata_changed(self, partition_counts: Mapping[str, int]) -> None:
        """Nothing to do: the broker sees new partitions itself."""

    # What comes next

    def next_step(self) -> steps.Step:
        """The same until something changes. Heartbeats are sent beside the steps."""
        if self._is_lost or self.error is not None:
            return steps.Revoke(self.owned, True) if self.owned else steps.Rest()
        if self._is_away:
            # It must leave first: meanwhile the application is at work, and its callback would come late.
            return self._leave() or (steps.Revoke(self.owned, True) if self.owned else steps.Rest())
        if self.topics is None:
            return steps.Revoke(self.owned, False) if self.owned else self._leave() or steps.Rest()
        if self._unresolved is not None:
            return steps.ResolveTopics()
        if self.owned - self._target:
            return steps.Revoke(self.owned - self._target, False)
        if self._target - self.owned:
            return steps.Adopt(self._target - self.owned)
        return steps.FindCoordinator() if self.coordinator is None else steps.Rest()

    @property
    def is_subscribed(self) -> bool:
        """Whether it is or wants to be a member."""
        return self.topics is not None

    @property
    def is_stable(self) -> bool:
        """Whether it has its assignment, as far as it knows."""
        return self.identity.generation >= 0 and self.owned == self._target and self._unresolved is None

    @property
    def can_heartbeat(self) -> bool:
        """Whether a heartbeat may be sent. The first one joins, and needs that nothing is owned."""
        is_wanted = self.is_subscribed and not self._is_away and self.error is None
        is_clean = self.identity.generation >= 0 or not self.owned
        return is_wanted and is_clean and not self._is_lost

    def heartbeat(self) -> tuple[ApiKey, Mapping[str, object]]:
        """The request. It is sent now."""
        self.must_report = False
        self._may_be_member = True
        return self.api_key, self.heartbeat_values()

    def heartbeat_values(self) -> Mapping[str, object]:
        """Everything that the broker must know of the member."""
        member_id, epoch = self.identity
        values: DictOf[types.ConsumerGroupHeartbeatRequest] = {
            "group_id": self.group_id,
            "member_id": member_id,
            "member_epoch": max(epoch, JOINING),
            "instance_id": self.group_instance_id,
            "rebalance_timeout_ms": self._rebalance_timeout_ms,
            "subscribed_topic_names": sorted(self.topics or ()),
            "server_assignor": self._assignor,
            "topic_partitions": self._owned_by_id(),
        }
        return values

    def leave_values(self) -> Mapping[str, object]:
        """A static member leaves for a while: its partitions wait for it until its session expires."""
        values: DictOf[types.ConsumerGroupHeartbeatRequest] = {
            "group_id": self.group_id,
            "member_id": self.identity.member_id,
            "member_epoch": LEAVING if self.group_instance_id is None else _LEAVING_FOR_A_WHILE,
            "instance_id": self.group_instance_id,
        }
        return values

    def _owned_by_id(self) -> list[DictOf[types.TopicPartitions]]:
        found: dict[UUID, list[int]] = {}
        for topic, partition in sorted(self.owned):
            found.setdefault(self._topic_ids[topic], []).append(partition)
        return [{"topic_id": each, "partitions": partitions} for each, partitions in found.items()]

    def _leave(self) -> steps.Step | None:
        if not self._may_be_member:
            return None
        if self.coordinator is None:
            return steps.FindCoordinator()
        return steps.Leave(self.api_key, self.leave_values())

    # What came of the steps

    def coordinator_found(self, node_id: int) -> None:
        self.coordinator = node_id
        self.must_report = True

    def heartbeat_received(self, asked: steps.Identity, answer: types.ConsumerGroupHeartbeatResponse) -> None:
        """`asked` is the identity that sent the heartbeat."""
        code = error_code(answer.error_code)
        if code is not ErrorCode.NONE:
            self.heartbeat_answered(asked, code, answer.error_message)
            return
        if asked != self.identity or not self._may_be_member:
            return
        self.failures = 0
        self.heartbeat_interval_ms = answer.heartbeat_interval_ms or self.heartbeat_interval_ms
        self.identity = steps.Identity(asked.member_id, answer.member_epoch)
        if answer.assignment is not None:
            self._unresolved = tuple(
                (each.topic_id, tuple(each.partitions)) for each in answer.assignment.topic_partitions
            )
            self.resolved(self._topic_ids)

    def heartbeat_answered(self, asked: steps.Identity, code: ErrorCode, message: str | None = None) -> None:
        """The error of a heartbeat or of a commit. `asked` is the identity that sent it."""
        if asked != self.identity:
            return
        is_deleted = code is ErrorCode.GROUP_ID_NOT_FOUND and asked.generation > JOINING
        if code in _FORGOTTEN or is_deleted:
            self._forget()
        elif code in steps.MOVED:
            self.coordinator = None
            self.failures += 1
        elif code in _OTHER_OWNER:
            text = f"group {self.group_id!r}: {message or code.message}"
            self._fail(FencedInstanceError(code, text))
        elif code is ErrorCode.STALE_MEMBER_EPOCH:
            self.must_report = True
        elif code.retriable:
            self.failures += 1
            self.must_report = True
        elif code is not ErrorCode.NONE:
            self._fail(broker_error(code, f"group {self.group_id!r}", message))

    def resolved(self, topic_ids: Mapping[str, UUID]) -> bool:
        """`topic_ids` has the ids of the known topics. False if one is missing: call again with newer
        metadata."""
        names = {topic_id: name for name, topic_id in topic_ids.items()}
        unresolved = self._unresolved or ()
        if any(topic_id not in names for topic_id, _ in unresolved):
            return False
        target = frozenset(
            TopicPartition(names[topic_id], partition)
            for topic_id, partitions in unresolved
            for partition in partitions
        )
        self._topic_ids.update((names[topic_id], topic_id) for topic_id, _ in unresolved)
        self.rebalances += target != self._target
        self._target, self._unresolved = target, None
        return True

    def revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.owned -= partitions
        self.must_report = True
        if not self.owned:
            self._is_lost = False

    def adopted(self, partitions: frozenset[TopicPartition]) -> None:
        if not self._is_lost:
            self.owned |= partitions & self._target
            self.must_report = True

    def left(self) -> None:
        self._may_be_member = False
        self._forget()

    def _forget(self) -> None:
        """The broker no longer counts this member, or not in this epoch."""
        self.identity = steps.Identity(self.identity.member_id, steps.NO_GENERATION)
        self._target, self._unresolved = frozenset(), None
        self._is_lost = bool(self.owned)
        self.must_report = True

    def _fail(self, error: ClientError) -> None:
        self.error = error
        self._forget()
