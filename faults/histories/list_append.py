"""The anomalies of lists that transactions append to and read whole.

Owns Elle's inference of orders: the longest read of a list is the order of its elements. Pure.
https://github.com/jepsen-io/elle

Not checked: whether a transaction reads its own appends, which a reader of committed records never does.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

from faults.histories.cycles import SESSION, WR
from faults.histories.history import (
    DUPLICATE_ELEMENT,
    G1A,
    GARBAGE_READ,
    INCOMPATIBLE_ORDER,
    Anomaly,
    Edge,
    Outcome,
    Transaction,
    Write,
)


class Lists:
    """A history as lists: `writers` of (key, element), `reads` that count, and the `orders` of keys."""

    def __init__(self, history: Sequence[Transaction]) -> None:
        self.writers: dict[tuple[Hashable, Any], Transaction] = {}
        self.appended: dict[tuple[Transaction, Hashable], list[Any]] = defaultdict(list)
        self.reads: list[tuple[Transaction, Hashable, tuple[Any, ...]]] = []
        self.orders: dict[Hashable, tuple[Any, ...]] = {}
        for transaction in history:
            for operation in transaction.operations:
                if isinstance(operation, Write):
                    self.writers[operation.key, operation.value] = transaction
                    self.appended[transaction, operation.key].append(operation.value)
                elif transaction.outcome is Outcome.COMMITTED:
                    self.reads.append((transaction, operation.key, operation.value))
                    if len(operation.value) > len(self.orders.get(operation.key, ())):
                        self.orders[operation.key] = operation.value


def check_reads(lists: Lists) -> Iterator[Anomaly]:
    """What is wrong with one read alone, or with two of one key."""
    for reader, key, elements in lists.reads:
        if elements and elements != lists.orders[key][: len(elements)]:
            text = f"{reader} read {_text(elements)} of {key}, another read {_text(lists.orders[key])}"
            yield Anomaly(INCOMPATIBLE_ORDER, text)
        for element, count in Counter(elements).items():
            if count > 1:
                yield Anomaly(DUPLICATE_ELEMENT, f"{reader} read {element} {count} times in {key}")
            writer = lists.writers.get((key, element))
            if writer is None:
                yield Anomaly(GARBAGE_READ, f"{reader} read {element} in {key}, which nobody appended")
            elif writer.outcome is Outcome.ABORTED:
                why = f"{element} in {key}"
                text = f"{reader} read {why}, whose transaction {writer} was aborted"
                yield Anomaly(G1A, text, (Edge(writer, WR, reader, why),))


def session_edges(history: Iterable[Transaction]) -> Iterator[Edge]:
    """Of each session, what follows what. An aborted transaction left nothing that others depend on."""
    latest: dict[str, Transaction] = {}
    for transaction in history:
        session = transaction.session
        if session is not None and transaction.outcome is not Outcome.ABORTED:
            if session in latest:
                yield Edge(latest[session], SESSION, transaction, f"both are of {session}")
            latest[session] = transaction


def _text(elements: Sequence[Any]) -> str:
    return f"[{' '.join(map(str, elements))}]"
