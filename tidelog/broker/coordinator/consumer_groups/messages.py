"""Requests to a group of the consumer protocol and its answers, independent of the wire format.

Owns the values that the handlers and the machine exchange, and the settings of such groups.
Invariant: all of them are copies, so none refers to a received frame.

Pure.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, Self
from uuid import UUID

from tidelog.broker.coordinator.consumer_groups import group


class ConsumerGroupSettings(NamedTuple):
    """The settings `group.consumer.*` of a broker. The first assignor is the default."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_size: int
    assignors: Sequence[str]
    may_upgrade: bool
    """Whether classic groups may become groups of the consumer protocol while they have members."""
    may_downgrade: bool
    """Whether groups of the consumer protocol may become classic ones while they have members."""

    def of_group(self, own: Mapping[str, str]) -> Self:
        """With what was set for one group alone."""
        if not own:
            return self
        session_timeout_ms = own.get("consumer.session.timeout.ms", self.session_timeout_ms)
        heartbeat_interval_ms = own.get("consumer.heartbeat.interval.ms", self.heartbeat_interval_ms)
        return self._replace(
            session_timeout_ms=int(session_timeout_ms), heartbeat_interval_ms=int(heartbeat_interval_ms)
        )


class TopicsView(Protocol):
    """The topics of the cluster, and the settings of groups, as they are now."""

    def subscribed_topic(self, name: str) -> group.SubscribedTopic | None:
        """None: no topic has this name."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """None: no topic has this id."""

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """What was set for this group alone, by Kafka's names; checked, as text."""


class MemberHeartbeat(NamedTuple):
    """None, and -1 for the timeout: as in the last heartbeat. `regex` is what `topic_regex` matched."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...] | None
    topic_regex: str | None
    server_assignor: str | None
    owned: group.Assignment | None
    regex: group.ResolvedRegex | None = None


class HeartbeatAnswer(NamedTuple):
    """`assignment` is None if the member has it already."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: group.Assignment | None = None


class DescribedConsumerMember(NamedTuple):
    """A member of a group, as ConsumerGroupDescribe shows it."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: Sequence[str]
    topic_regex: str | None
    assigned: group.Assignment
    target: group.Assignment
    is_classic: bool


class DescribedConsumerGroup(NamedTuple):
    """A group as operators see it. `topics`: id -> name of the topics that its members read."""

    group_id: str
    state: group.ConsumerGroupState
    epoch: int
    target_epoch: int
    assignor: str
    members: Sequence[DescribedConsumerMember]
    topics: Mapping[UUID, str]
