"""The cycles that Kafka's transactions exclude.

Kafka does not isolate writes: of two open transactions one may come first in one partition and second in
another (G0), readers of several partitions see one before the other (G-single, G2-item), and a read of
committed records may end within a transaction that another, open one delays (G1b). So only an order in time
is checked. Pure.

The order: a transaction begins, appends, ends. Elements stand in a partition in the order of their appends. A
transaction that read a committed offset began after the end of the one that committed it. Of one
transactional id, a transaction begins after the end of the one before. A cycle in this order is an anomaly,
whatever it is called.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from faults.histories.cycles import SESSION, WITHIN, WR, WW, cycles_of
from faults.histories.history import Anomaly, Edge, Outcome, Transaction, Write
from faults.histories.list_append import Lists, check_reads, session_edges


class Step(NamedTuple):
    """What a transaction does at one moment."""

    transaction: str
    what: str

    def __str__(self) -> str:
        return f"{self.transaction} {self.what}"


def check(appends: Sequence[Transaction], updates: Sequence[Transaction]) -> list[Anomaly]:
    """`appends`: the lists that transactions wrote, and reads of lists; `updates`: the committed offsets that
    the same transactions, by their names, read as they began and wrote as they ended."""
    lists = Lists(appends)
    edges = [*_steps(lists), *_orders(lists), *_updated(updates)]
    edges += [
        Edge(_end(edge.source), SESSION, _begin(edge.target), edge.why) for edge in session_edges(appends)
    ]
    return [*check_reads(lists), *cycles_of(edges)]


def _begin(transaction: Transaction) -> Step:
    return Step(transaction.name, "begins")


def _end(transaction: Transaction) -> Step:
    return Step(transaction.name, "ends")


def _append(transaction: Transaction, key: Any, element: Any) -> Step:
    return Step(transaction.name, f"appends {element} to {key}")


def _steps(lists: Lists) -> Iterator[Edge]:
    for (transaction, key), elements in lists.appended.items():
        if transaction.outcome is Outcome.ABORTED:
            continue
        steps = [_append(transaction, key, element) for element in elements]
        path = (_begin(transaction), *steps, _end(transaction))
        for before, after in pairwise(path):
            yield Edge(before, WITHIN, after, "so it did it")


def _orders(lists: Lists) -> Iterator[Edge]:
    for key, order in lists.orders.items():
        known = [(lists.writers[key, each], each) for each in order if (key, each) in lists.writers]
        for (first, before), (second, after) in pairwise(known):
            why = f"{after} stands behind {before} in {key}"
            yield Edge(_append(first, key, before), WW, _append(second, key, after), why)


def _updated(updates: Sequence[Transaction]) -> Iterator[Edge]:
    written: dict[Any, list[Transaction]] = defaultdict(list)
    for transaction in updates:
        for operation in transaction.operations:
            if isinstance(operation, Write):
                written[operation].append(transaction)
    for transaction in updates:
        for operation in transaction.operations:
            if isinstance(operation, Write) or transaction.outcome is not Outcome.COMMITTED:
                continue
            for writer in written.get(Write(*operation), ()):
                why = f"it read {operation.key} = {operation.value}"
                yield Edge(_end(writer), WR, _begin(transaction), why)
