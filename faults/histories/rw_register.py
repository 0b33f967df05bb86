"""The anomalies of transactions that read and write registers.

Owns the inference of Elle's rw-register: the initial None comes before each value, and what a transaction
writes comes after what it read before of the same key. `orders` adds what is known otherwise. Pure.
https://github.com/jepsen-io/elle
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from faults.histories.cycles import RW, WR, WW, cycles_of
from faults.histories.history import (
    CYCLIC_VERSIONS,
    G1A,
    G1B,
    GARBAGE_READ,
    LOST_UPDATE,
    Anomaly,
    Edge,
    Outcome,
    Transaction,
    Write,
)
from faults.histories.list_append import session_edges

_NOTHING_KNOWN: Final[Mapping[Hashable, Sequence[Any]]] = {}
_Version = tuple[Hashable, Any]


class _Registers:
    """Who wrote and who read each version from outside; which version follows which."""

    def __init__(self, history: Sequence[Transaction], orders: Mapping[Hashable, Sequence[Any]]) -> None:
        self.writers: dict[_Version, Transaction] = {}
        self.replaced: dict[_Version, Transaction] = {}
        """Versions that their own transaction replaced."""
        self.readers: dict[_Version, list[Transaction]] = defaultdict(list)
        self.updates: dict[_Version, list[Transaction]] = defaultdict(list)
        """Who read a version and wrote the next."""
        self.follows: dict[_Version, set[Any]] = defaultdict(set)
        for key, order in orders.items():
            for before, after in pairwise(order):
                self.follows[key, before].add(after)
        for transaction in history:
            if transaction.outcome is not Outcome.ABORTED:
                self._add(transaction)
            else:
                self.writers |= {
                    (each.key, each.value): transaction
                    for each in transaction.operations
                    if isinstance(each, Write)
                }
        for (key, value), writer in self.writers.items():
            if writer.outcome is Outcome.COMMITTED:
                self.follows[key, None].add(value)

    def _add(self, transaction: Transaction) -> None:
        read: dict[Hashable, Any] = {}
        written: dict[Hashable, Any] = {}
        for operation in transaction.operations:
            key, value = operation
            if isinstance(operation, Write):
                if key in written:
                    self.replaced[key, written[key]] = transaction
                written[key] = value
                self.writers[key, value] = transaction
            elif key not in written and transaction.outcome is Outcome.COMMITTED:
                read[key] = value
                self.readers[key, value].append(transaction)
        for key, value in written.items():
            if key in read:
                self.follows[key, read[key]].add(value)
                if transaction.outcome is Outcome.COMMITTED:
                    self.updates[key, read[key]].append(transaction)


def check(
    history: Sequence[Transaction], orders: Mapping[Hashable, Sequence[Any]] = _NOTHING_KNOWN
) -> list[Anomaly]:
    """Every anomaly. `orders`: versions of a key in their order."""
    registers = _Registers(history, orders)
    edges = [*_edges(registers), *session_edges(history)]
    return [*_check_reads(registers), *_check_versions(registers), *cycles_of(edges)]


def _check_reads(registers: _Registers) -> Iterator[Anomaly]:
    for (key, value), readers in registers.readers.items():
        if value is None:
            continue
        writer = registers.writers.get((key, value))
        for reader in readers:
            what = f"{key} = {value}"
            if writer is None:
                yield Anomaly(GARBAGE_READ, f"{reader} read {what}, which nobody wrote")
            elif writer.outcome is Outcome.ABORTED:
                edge = Edge(writer, WR, reader, what)
                yield Anomaly(G1A, f"{reader} read {what}, whose transaction {writer} was aborted", (edge,))
            elif registers.replaced.get((key, value)) not in (None, reader):
                edge = Edge(writer, WR, reader, f"{what}, which it replaced")
                yield Anomaly(G1B, f"{reader} read {what}, which {writer} replaced itself", (edge,))
    for (key, value), several in registers.updates.items():
        if len(several) > 1:
            names = " and ".join(map(str, several))
            edges = tuple(
                Edge(first, RW, second, f"both read {key} = {value} and wrote {key}")
                for first, second in pairwise((*several, several[0]))
            )
            yield Anomaly(LOST_UPDATE, f"{names} read {key} = {value}, and all wrote {key}", edges)


def _check_versions(registers: _Registers) -> Iterator[Anomaly]:
    edges = [
        Edge((key, before), WW, (key, after), f"{after} follows {before}")
        for (key, before), following in registers.follows.items()
        for after in following
    ]
    for found in cycles_of(edges):
        values = ", ".join(str(edge.source[1]) for edge in found.edges)
        yield Anomaly(CYCLIC_VERSIONS, f"{found.edges[0].source[0]}: the versions {values} form a cycle")


def _edges(registers: _Registers) -> Iterator[Edge]:
    for (key, value), readers in registers.readers.items():
        writer = registers.writers.get((key, value))
        if writer is not None and writer.outcome is not Outcome.ABORTED:
            yield from (Edge(writer, WR, reader, f"it read {key} = {value}") for reader in readers)
    for (key, before), following in registers.follows.items():
        first = registers.writers.get((key, before))
        for after in following:
            second = registers.writers.get((key, after))
            if second is None:
                continue
            if first is not None:
                yield Edge(first, WW, second, f"{key} = {after} follows {before}")
            for reader in registers.readers.get((key, before), ()):
                yield Edge(reader, RW, second, f"it read {key} = {before}, which {after} replaced")
