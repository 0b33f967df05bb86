"""Transactions as a checker of isolation sees them, and what it finds. Pure.

The terms are those of Adya, Liskov and O'Neil, "Generalized Isolation Level Definitions" (2000), as Elle uses
them: https://github.com/jepsen-io/elle.

Invariant: no value is written twice to a key, so a value names its writer.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

G0: Final = "G0"
"""A cycle of writes."""
G1A: Final = "G1a"
"""A read of what was aborted."""
G1B: Final = "G1b"
"""A read of what its writer replaced or continued in the same transaction."""
G1C: Final = "G1c"
"""A cycle of writes and reads."""
G_SINGLE: Final = "G-single"
"""A cycle with one read of what was overwritten: read skew."""
G2_ITEM: Final = "G2-item"
"""A cycle with several reads of what was overwritten: write skew."""
LOST_UPDATE: Final = "lost update"
"""Two transactions replaced the same value, which both had read."""
GARBAGE_READ: Final = "garbage read"
DUPLICATE_ELEMENT: Final = "duplicate element"
INCOMPATIBLE_ORDER: Final = "incompatible order"
CYCLIC_VERSIONS: Final = "cyclic versions"


class Outcome(StrEnum):
    """What is known of the end of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNCERTAIN = "uncertain"


class Write(NamedTuple):
    """An append to a list, or the new value of a register."""

    key: Hashable
    value: Any


class Read(NamedTuple):
    """`value` is the tuple of a list's elements, or the value of a register, None before the first write."""

    key: Hashable
    value: Any


@dataclass(frozen=True)
class Transaction:
    """`session`: of one session, a transaction begins after the one before it in the history has ended; None
    if it has none. What it read counts only if it committed."""

    name: str
    operations: tuple[Write | Read, ...]
    outcome: Outcome = Outcome.COMMITTED
    session: str | None = None

    def __str__(self) -> str:
        return self.name


class Edge(NamedTuple):
    """`source` must come before `target`; `kind` is ww, wr or rw, or says which order it is."""

    source: Any
    kind: str
    target: Any
    why: str


class Anomaly(NamedTuple):
    """What contradicts what; `edges` show it, of a cycle the whole cycle."""

    name: str
    text: str
    edges: tuple[Edge, ...] = ()
