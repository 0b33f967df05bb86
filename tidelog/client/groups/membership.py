"""A consumer's membership in a classic group: which request or callback comes next.

Owns: the member's id, generation, assignment, and what each error code of the coordinator means for them.
`next_step` says what to do; the answer goes into the method named after the step.
Invariants:
- `owned` is exactly what the application may read. A partition leaves it only by `revoked`, after the
  application's callbacks, and enters it only by `adopted`;
- partitions are given up as lost, without a commit, if the coordinator no longer counts them as this
  member's: it forgot the member, or another one has its instance id;
- an eager member gives up everything before it joins again. A cooperative one gives up only what its next
  assignment lacks, and then joins again so that others get it;
- an answer to a request of an earlier identity changes nothing.
Pure. Source: Kafka's AbstractCoordinator and ConsumerCoordinator, KIP-345, KIP-394, KIP-429.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from tidelog.client.errors import FencedInstanceError
from tidelog.client.groups import steps
from tidelog.client.groups.assignors import ASSIGNORS
from tidelog.client.groups.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from tidelog.protocol import message_types as types
from tidelog.protocol.errors import ErrorCode, ProtocolError, error_code
from tidelog.protocol.messages.declaration import DictOf
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.types import TopicPartition
from tidelog.wire.errors import ClientError, broker_error

PROTOCOL_TYPE: Final = "consumer"
NO_MEMBER_ID: Final = ""


class Phase(Enum):
    """What the member does. The order is that of a rebalance."""

    JOINING = "asks to join"
    ASSIGNING = "leads, and has to assign"
    SYNCING = "waits for its assignment"
    REVOKING = "gives up what its new assignment lacks"
    ADOPTING = "takes over what is new"
    STABLE = "has its assignment"


_FORGOTTEN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_FINAL: Final = frozenset({ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED})


class Membership(steps.GroupMembership):
    """`assignors` in the order of preference. Times are in milliseconds."""

    def __init__(
        self,
        group_id: str,
        assignors: Sequence[str],
        *,
        group_instance_id: str | None,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        heartbeat_interval_ms: int,
    ) -> None:
        super().__init__(group_id, NO_MEMBER_ID, group_instance_id, heartbeat_interval_ms)
        self._assignors = [ASSIGNORS[name] for name in assignors]
        self._is_cooperative = all(each.is_cooperative for each in self._assignors)
        self._timeouts: DictOf[types.JoinGroupRequest] = {
            "session_timeout_ms": session_timeout_ms,
            "rebalance_timeout_ms": rebalance_timeout_ms,
        }
        self._topics: frozenset[str] | None = None
        self._phase = Phase.JOINING
        self._must_rejoin = False
        self._previous: frozenset[TopicPartition] = frozenset()
        self._protocol = ""
        # As the leader: the group keeps its assignment (KIP-814).
        self._keeps_assignment = False
        self._members: dict[str, Subscription] = {}
        self._assignments: dict[str, bytes] = {}
        # As the leader: the partition counts that it assigned by. Else empty.
        self._assigned_counts: dict[str, int] = {}

    # What the application wants

    def subscribe(self, topics: frozenset[str] | None) -> None:
        """Be a member that reads these topics; None: be no member."""
        if topics != self._topics:
            self._topics = topics
            self._must_rejoin = True

    def poll_interval_exceeded(self) -> None:
        """The application asks for no records: leave, so that other members read its partitions. A static
        member does not leave, but sends no more heartbeats."""
        self._is_away = True
        if self.group_instance_id is not None:
            self._forget(self.identity.member_id)

    def polled(self) -> None:
        """The application asks for records again."""
        self._is_away = False

    def metadata_changed(self, partition_counts: Mapping[str, int]) -> None:
        """A leader assigns again if topics of the group have other partitions than when it assigned."""
        if self._phase is Phase.STABLE and any(
            partition_counts.get(topic, 0) != count for topic, count in self._assigned_counts.items()
        ):
            self._must_rejoin = True

    # What comes next

    def next_step(self) -> steps.Step:
        """The same until something changes."""
        if self._is_lost or self.error is not None:
            return steps.Revoke(self.owned, True) if self.owned else self._rejoin()
        if self._topics is None:
            return steps.Revoke(self.owned, False) if self.owned else self._leave()
        if self._is_away:
            # It must leave first: meanwhile the application is at work, and its callback would come late.
            leaving = self._leave()
            return (
                leaving
                if isinstance(leaving, steps.Leave) or not self.owned
                else steps.Revoke(self.owned, True)
            )
        match self._phase:
            case Phase.REVOKING:
                return steps.Revoke(self.owned - self._target, False)
            case Phase.ADOPTING:
                return steps.Adopt(self._target - self.owned)
            case Phase.STABLE if not self._must_rejoin:
                return steps.FindCoordinator() if self.coordinator is None else steps.Rest()
            case Phase.STABLE | Phase.JOINING:
                return self._rejoin()
        if self.coordinator is None:
            return steps.FindCoordinator()
        if self._phase is Phase.ASSIGNING:
            return steps.AssignAll(frozenset().union(*(each.topics for each in self._members.values())))
        return steps.Sync(self._sync_values())

    @property
    def can_heartbeat(self) -> bool:
        """Whether the coordinator expects heartbeats. It needs none of a member whose join it has."""
        is_member = self.is_subscribed and not self._is_away and self.identity.generation >= 0
        return is_member and not self.awaits_join

    @property
    def is_subscribed(self) -> bool:
        """Whether it is or wants to be a member."""
        return self._topics is not None

    @property
    def is_stable(self) -> bool:
        """Whether it has its assignment, as far as it knows."""
        return self._phase is Phase.STABLE and not self._must_rejoin and not self._is_lost

    def _rejoin(self) -> steps.Step:
        if self.error is not None or self._topics is None:
            return steps.Rest()
        if self.owned and self.identity.generation >= 0:
            topics = self._topics
            unread = frozenset(each for each in self.owned if each.topic not in topics)
            to_give_up = unread if self._is_cooperative else self.owned
            if to_give_up:
                return steps.Revoke(to_give_up, False)
        return steps.FindCoordinator() if self.coordinator is None else steps.Join(self._join_values())

    def _leave(self) -> steps.Step:
        """A static member stays: it comes back, or its session expires."""
        if self.identity.member_id == NO_MEMBER_ID or self.group_instance_id is not None:
            return steps.Rest()
        if self.coordinator is None:
            return steps.FindCoordinator()
        member = {"member_id": self.identity.member_id, "group_instance_id": None}
        return steps.Leave(ApiKey.LEAVE_GROUP, {"group_id": self.group_id, "members": [member]})

    def _join_values(self) -> DictOf[types.JoinGroupRequest]:
        topics = self._topics or frozenset()
        generation = self.identity.generation
        metadata = [
            (each.name, each.metadata(topics, self.owned, self._previous, generation))
            for each in self._assignors
        ]
        return {
            "group_id": self.group_id,
            **self._timeouts,
            "member_id": self.identity.member_id,
            "group_instance_id": self.group_instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": name, "metadata": data} for name, data in metadata],
        }

    def _sync_values(self) -> DictOf[types.SyncGroupRequest]:
        return {
            **self._request_values(),
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": self._protocol,
            "assignments": [
                {"member_id": member_id, "assignment": data} for member_id, data in self._assignments.items()
            ],
        }

    def heartbeat(self) -> tuple[ApiKey, DictOf[types.HeartbeatRequest]]:
        """The request."""
        return ApiKey.HEARTBEAT, self._request_values()

    def _request_values(self) -> DictOf[types.HeartbeatRequest]:
        """The fields by which SyncGroup and Heartbeat name the member."""
        return {
            "group_id": self.group_id,
            "generation_id": self.identity.generation,
            "member_id": self.identity.member_id,
            "group_instance_id": self.group_instance_id,
        }

    # What came of the steps

    def join_begun(self) -> None:
        """A Join is sent. Until it is answered, the coordinator may be in the next generation already."""
        self.awaits_join = True

    def coordinator_found(self, node_id: int) -> None:
        self.coordinator = node_id

    def joined(self, answer: types.JoinGroupResponse) -> None:
        self.awaits_join = False
        code = error_code(answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.identity = steps.Identity(answer.member_id, steps.NO_GENERATION)
            return
        if code is not ErrorCode.NONE:
            self._refused(code)
            self.failures += code is ErrorCode.REBALANCE_IN_PROGRESS
            return
        self.failures = 0
        self._must_rejoin = False
        self.identity = steps.Identity(answer.member_id, answer.generation_id)
        self._protocol = answer.protocol_name or ""
        self._assignments, self._assigned_counts = {}, {}
        if self._protocol not in {each.name for each in self._assignors}:
            names = ", ".join(each.name for each in self._assignors)
            text = f"group {self.group_id!r} uses the assignor {self._protocol!r}, this member {names}"
            self._fail(broker_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text))
        elif answer.leader != answer.member_id:
            self._phase = Phase.SYNCING
        else:
            self._keeps_assignment = answer.skip_assignment
            try:
                self._members = {
                    each.member_id: decode_subscription(each.metadata, each.group_instance_id)
                    for each in answer.members
                }
                self._phase = Phase.ASSIGNING
            except ProtocolError as error:
                self._fail(ClientError(f"group {self.group_id!r}: a member's subscription is wrong: {error}"))

    def assigned(self, partition_counts: Mapping[str, int]) -> None:
        """`partition_counts` has those of the topics that exist."""
        topics = frozenset().union(*(each.topics for each in self._members.values()))
        counts = {topic: partition_counts.get(topic, 0) for topic in topics}
        (assignor,) = [each for each in self._assignors if each.name == self._protocol]
        shares = assignor.assign({topic: count for topic, count in counts.items() if count}, self._members)
        self._assigned_counts = counts
        if not self._keeps_assignment:
            self._assignments = {member: encode_assignment(share) for member, share in shares.items()}
        self._phase = Phase.SYNCING

    def synced(self, answer: types.SyncGroupResponse) -> None:
        code = error_code(answer.error_code)
        if code is not ErrorCode.NONE:
            self._phase = Phase.JOINING
            self._refused(code)
            return
        try:
            self._target = decode_assignment(answer.assignment)
        except ProtocolError as error:
            self._fail(ClientError(f"group {self.group_id!r}: the assignment is wrong: {error}"))
            return
        self.failures = 0
        self.rebalances += 1
        self._previous = self._target
        self._phase = Phase.REVOKING if self.owned - self._target else Phase.ADOPTING

    def revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.owned -= partitions
        if self._is_lost and not self.owned:
            self._is_lost = False
        elif self._phase is Phase.REVOKING:
            self._phase = Phase.ADOPTING
            # Others wait for what this member gave up.
            self._must_rejoin = True

    def adopted(self, partitions: frozenset[TopicPartition]) -> None:
        if self._phase is Phase.ADOPTING and not self._is_lost:
            self.owned |= partitions
            self._phase = Phase.STABLE

    def left(self) -> None:
        self._forget(NO_MEMBER_ID)

    def heartbeat_received(self, asked: steps.Identity, answer: types.HeartbeatResponse) -> None:
        self.heartbeat_answered(asked, error_code(answer.error_code))

    def heartbeat_answered(self, asked: steps.Identity, code: ErrorCode) -> None:
        """Also for a commit. `asked` is the identity that sent it."""
        if asked != self.identity:
            return
        if code is ErrorCode.NONE:
            self.failures = 0
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_rejoin = True
        elif code is ErrorCode.ILLEGAL_GENERATION and self.awaits_join:
            return
        elif code in _FORGOTTEN or code in _FINAL or code in steps.MOVED:
            self._refused(code)

    def _refused(self, code: ErrorCode) -> None:
        """A request of this identity was answered with an error."""
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_rejoin = True
        elif code in _FORGOTTEN:
            is_same_member = code is ErrorCode.ILLEGAL_GENERATION
            self._forget(self.identity.member_id if is_same_member else NO_MEMBER_ID)
        elif code in steps.MOVED:
            self.coordinator = None
            self.failures += 1
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            text = f"another consumer joined group {self.group_id!r} as {self.group_instance_id!r}"
            self._fail(FencedInstanceError(code, text))
        elif code.retriable:
            self.failures += 1
        else:
            self._fail(broker_error(code, f"group {self.group_id!r}"))

    def _forget(self, member_id: str) -> None:
        """The coordinator no longer counts this member, or not in this generation."""
        self.identity = steps.Identity(member_id, steps.NO_GENERATION)
        self._phase = Phase.JOINING
        self._assigned_counts = {}
        self._is_lost = bool(self.owned)

    def _fail(self, error: ClientError) -> None:
        self.error = error
        self._forget(NO_MEMBER_ID)
