"""What members of the classic protocol write into their metadata, and what they read from their assignment.

Owns both encodings between bytes and values of this package. Invariant: a version that is newer than the
known ones is read as the last known one, because versions only add fields at the end.

Pure. Source: ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json, Kafka's ConsumerProtocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from tidelog.broker.coordinator.consumer_groups.group import Assignment, ClassicMember, Subscription
from tidelog.broker.coordinator.consumer_groups.messages import TopicsView
from tidelog.broker.coordinator.groups.group import Member
from tidelog.broker.coordinator.groups.messages import JoinRequest
from tidelog.protocol import message_types as types
from tidelog.protocol.codecs import Codec
from tidelog.protocol.coordinator_records import record_version
from tidelog.protocol.messages.consumer_groups import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tidelog.protocol.messages.declaration import DictOf, message_of

_LAST_VERSION = 3
_MAX_ELEMENTS = 100_000
_VERSION_BYTES = 2


class ClassicSubscription(NamedTuple):
    """What a member reads, and owns. `version` is the one in which it reads its assignment too."""

    version: int
    topic_names: tuple[str, ...]
    rack_id: str | None
    owned: Assignment

    def stored(self, member: JoinRequest | Member) -> Subscription:
        """The metadata of the member that wrote this, as its group keeps it."""
        return Subscription(
            member.group_instance_id,
            self.rack_id,
            member.client_id,
            member.client_host,
            self.topic_names,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicMember(member.session_timeout_ms, member.protocols),
        )


class ClassicAssignment(NamedTuple):
    """`has_user_data`: the assignor of a client keeps data of its own in it."""

    assigned: Assignment
    has_user_data: bool


def read_subscription(metadata: bytes, topics: TopicsView) -> ClassicSubscription:
    """Partitions of topics that do not exist are left out. Raises ProtocolError."""
    values: types.ConsumerProtocolSubscription
    version, values = _read(ConsumerProtocolSubscription, metadata)
    return ClassicSubscription(
        version, tuple(sorted(set(values.topics))), values.rack_id, _by_id(values.owned_partitions, topics)
    )


def read_assignment(data: bytes, topics: TopicsView) -> ClassicAssignment:
    """A member that was assigned nothing yet has no bytes. Raises ProtocolError."""
    if not data:
        return ClassicAssignment({}, False)
    values: types.ConsumerProtocolAssignment
    _, values = _read(ConsumerProtocolAssignment, data)
    return ClassicAssignment(_by_id(values.assigned_partitions, topics), bool(values.user_data))


def written_assignment(assigned: Assignment, version: int, topics: TopicsView) -> bytes:
    version = min(version, _LAST_VERSION)
    named = ((topics.topic_name(topic_id), partitions) for topic_id, partitions in assigned.items())
    partitions: list[DictOf[types.PartitionsByName]] = [
        {"topic": name, "partitions": sorted(partitions)} for name, partitions in named if name is not None
    ]
    body = _codec(ConsumerProtocolAssignment, version).encode({"assigned_partitions": partitions})
    return version.to_bytes(_VERSION_BYTES, "big") + body


def _read(declaration: Any, data: bytes) -> tuple[int, Any]:
    version = max(0, record_version(data))
    known = min(version, _LAST_VERSION)
    return version, _codec(declaration, known).decode(data[_VERSION_BYTES:])


def _by_id(named: Iterable[types.PartitionsByName], topics: TopicsView) -> Assignment:
    found: dict[UUID, frozenset[int]] = {}
    for each in named:
        topic = topics.subscribed_topic(each.topic)
        if topic is not None and each.partitions:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | frozenset(each.partitions)
    return found


@cache
def _codec(declaration: Any, version: int) -> Codec:
    return Codec(message_of(declaration), version, _MAX_ELEMENTS, whole=False)
