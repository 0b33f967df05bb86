"""The states of a group of the classic protocol, and the legal transitions between them.

Owns the table. Pure. Source: Kafka's ClassicGroupState, KIP-62.
"""

from collections.abc import Mapping
from enum import Enum


class GroupState(Enum):
    """The value is the name that clients see."""

    EMPTY = "Empty"
    """No members. It may have committed offsets, and member ids that have not joined yet."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for its members to join again, and for more of them."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A generation began: waits for the assignment of its leader."""
    STABLE = "Stable"
    """Every member can have its assignment."""
    DEAD = "Dead"
    """Deleted, or it never existed."""


TRANSITIONS: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset((GroupState.PREPARING_REBALANCE, GroupState.DEAD)),
    GroupState.PREPARING_REBALANCE: frozenset((GroupState.COMPLETING_REBALANCE, GroupState.EMPTY)),
    GroupState.COMPLETING_REBALANCE: frozenset((GroupState.STABLE, GroupState.PREPARING_REBALANCE)),
    GroupState.STABLE: frozenset((GroupState.PREPARING_REBALANCE,)),
    GroupState.DEAD: frozenset(),
}
"""State -> the states that may follow it."""


class IllegalTransition(Exception):
    """A broken invariant: the table does not allow this transition."""
