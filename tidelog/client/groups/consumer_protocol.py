"""The consumer protocol: what members of a classic group send to their leader, and what it assigns to them.

Owns: the bytes of subscriptions, assignments and the sticky assignors' user data. Invariants: bytes of a
newer version are read as the newest one known here, because later versions only append fields; user data that
cannot be read counts as absent, so no member can stop the group by it. Pure.
Source: ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json, Kafka's AbstractStickyAssignor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from tidelog.client.groups.steps import NO_GENERATION
from tidelog.protocol import message_types as types
from tidelog.protocol.codecs import Codec
from tidelog.protocol.errors import ProtocolError
from tidelog.protocol.messages.consumer_groups import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    StickyAssignorUserData,
)
from tidelog.protocol.messages.declaration import DictOf, message_of
from tidelog.protocol.types import TopicPartition

_SUBSCRIPTION_VERSION: Final = 3
_ASSIGNMENT_VERSION: Final = 3
_VERSION_BYTES: Final = 2
_GENERATION_BYTES: Final = 4
_MAX_ELEMENTS: Final = 1_000_000


class Subscription(NamedTuple):
    """What one member wants and has. `generation` is that in which it got `owned`, -1 if it says none."""

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION
    group_instance_id: str | None = None


def encode_subscription(
    topics: Iterable[str], owned: Iterable[TopicPartition], generation: int, user_data: bytes | None
) -> bytes:
    """The metadata of a member for one assignor."""
    values: DictOf[types.ConsumerProtocolSubscription] = {
        "topics": sorted(topics),
        "user_data": user_data,
        "owned_partitions": _by_topic(owned),
        "generation_id": generation,
        "rack_id": None,
    }
    return _encode(ConsumerProtocolSubscription, _SUBSCRIPTION_VERSION, values)


def decode_subscription(data: bytes, group_instance_id: str | None = None) -> Subscription:
    """A member's metadata. Raises ProtocolError."""
    values: types.ConsumerProtocolSubscription = _decode(
        ConsumerProtocolSubscription, data, _SUBSCRIPTION_VERSION
    )
    owned, generation = _partitions(values.owned_partitions), values.generation_id
    if values.user_data:
        sticky, sticky_generation = _read_user_data(values.user_data)
        owned = owned or sticky
        generation = max(generation, sticky_generation)
    return Subscription(frozenset(values.topics), owned, generation, group_instance_id)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """What a leader assigns to one member."""
    values: DictOf[types.ConsumerProtocolAssignment] = {
        "assigned_partitions": _by_topic(partitions),
        "user_data": None,
    }
    # Version 0 has the same fields, and every member can read it.
    return _encode(ConsumerProtocolAssignment, 0, values)


def decode_assignment(data: bytes) -> frozenset[TopicPartition]:
    """The partitions assigned to this member; none for no bytes. Raises ProtocolError."""
    if not data:
        return frozenset()
    return _partitions(_decode(ConsumerProtocolAssignment, data, _ASSIGNMENT_VERSION).assigned_partitions)


def sticky_user_data(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """The user data of the assignor `sticky`: the previous assignment and its generation."""
    values: DictOf[types.StickyAssignorUserData] = {
        "previous_assignment": _by_topic(owned),
        "generation": generation,
    }
    return _codec(StickyAssignorUserData, 1).encode(values)


def cooperative_user_data(generation: int) -> bytes:
    """The user data of the assignor `cooperative-sticky`, as Kafka's Java client writes it."""
    return generation.to_bytes(_GENERATION_BYTES, "big", signed=True)


def _read_user_data(data: bytes) -> tuple[frozenset[TopicPartition], int]:
    """Owned partitions and generation, from the user data of either sticky assignor."""
    if len(data) == _GENERATION_BYTES:
        return frozenset(), int.from_bytes(data, "big", signed=True)
    for version in (1, 0):
        try:
            values: types.StickyAssignorUserData = _codec(StickyAssignorUserData, version).decode(data)
        except ProtocolError:
            continue
        return _partitions(values.previous_assignment), values.generation
    return frozenset(), NO_GENERATION


def _by_topic(partitions: Iterable[TopicPartition]) -> list[DictOf[types.PartitionsByName]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in found.items()]


def _partitions(
    topics: Iterable[types.PartitionsByName | types.PartitionsByName | types.PartitionsByName],
) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(each.topic, partition) for each in topics or () for partition in each.partitions
    )


def _encode(declaration: Any, version: int, values: Mapping[str, object]) -> bytes:
    return version.to_bytes(_VERSION_BYTES, "big") + _codec(declaration, version).encode(values)


def _decode(declaration: Any, data: bytes, newest: int) -> Any:
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or version < 0:
        raise ProtocolError(f"{declaration.__name__}: expected a version of 0 or more, got {data[:2]!r}")
    return _codec(declaration, min(version, newest)).decode(data[_VERSION_BYTES:])


@cache
def _codec(declaration: Any, version: int) -> Codec:
    return Codec(message_of(declaration), version, _MAX_ELEMENTS, whole=False)
