"""What Produce and Fetch have in common: how they name a topic, a leader, and where leaders are."""

from typing import Any, Final, NamedTuple
from uuid import UUID

NO_LEADER: Final = (-1, -1)

FIRST_BY_ID: Final = 13
"""Produce and Fetch name topics by id from this version on (KIP-516)."""

TopicKey = str | UUID
"""A topic as a request names it: its name or, from version FIRST_BY_ID on, its id."""


class NodeEndpoint(NamedTuple):
    """A broker that leads a partition of an answer, at the address that it advertises (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def leader_of(partition: Any) -> tuple[int, int]:
    """Leader id and leader epoch of a decoded partition (KIP-951)."""
    return partition.current_leader.leader_id, partition.current_leader.leader_epoch


def leader_values(leader: tuple[int, int]) -> dict[str, int]:
    """Leader id and leader epoch as values to encode."""
    return {"leader_id": leader[0], "leader_epoch": leader[1]}


def node_endpoints_of(response: Any) -> list[NodeEndpoint]:
    """The brokers that the decoded answer names (KIP-951)."""
    return [NodeEndpoint(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]
