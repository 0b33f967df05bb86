"""The anomalies of transactions that append to lists and read them whole.

Owns the inference of Elle's list-append: the longest read of a list is the order of its elements; what nobody
read was appended after all that somebody read. Pure. https://github.com/jepsen-io/elle

Not checked: whether a transaction reads its own appends, which a reader of committed records never does.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from faults.histories.cycles import RW, SESSION, WR, WW, cycles_of
from faults.histories.history import (
    DUPLICATE_ELEMENT,
    G1A,
    G1B,
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
        self.history = history
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


def check(history: Sequence[Transaction]) -> list[Anomaly]:
    """Every anomaly: of single reads first, then the cycles."""
    lists = Lists(history)
    edges = [*write_edges(lists), *_read_edges(lists), *session_edges(history)]
    return [*check_reads(lists), *cycles_of(edges)]


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
        last = lists.writers.get((key, elements[-1])) if elements else None
        if last is not None and last is not reader:
            newest = lists.appended[last, key][-1]
            if elements[-1] != newest:
                text = f"{reader} read {key} up to {elements[-1]}, which {last} continued with {newest}"
                edge = Edge(last, WR, reader, f"{elements[-1]} in {key}, and not {newest}")
                yield Anomaly(G1B, text, (edge,))


def write_edges(lists: Lists) -> Iterator[Edge]:
    """ww: whose element follows whose."""
    for key, order in lists.orders.items():
        for before, after in pairwise(order):
            first, second = lists.writers.get((key, before)), lists.writers.get((key, after))
            if first is not None and second is not None:
                yield Edge(first, WW, second, f"{after} stands behind {before} in {key}")


def _read_edges(lists: Lists) -> Iterator[Edge]:
    places = {key: {each: place for place, each in enumerate(order)} for key, order in lists.orders.items()}
    unread: Mapping[Hashable, list[tuple[Any, Transaction]]] = defaultdict(list)
    for (key, element), writer in lists.writers.items():
        if writer.outcome is Outcome.COMMITTED and element not in places.get(key, ()):
            unread[key].append((element, writer))
    for reader, key, elements in lists.reads:
        last = lists.writers.get((key, elements[-1])) if elements else None
        if last is not None:
            yield Edge(last, WR, reader, f"it read {elements[-1]} in {key}")
        # An element of an incompatible order may not be in the longest read.
        place = places[key].get(elements[-1], len(elements) - 1) + 1 if elements else 0
        following = lists.orders.get(key, ())[place : place + 1]
        later = [(each, lists.writers.get((key, each))) for each in following] or unread[key]
        for element, overwriter in later:
            if overwriter is not None:
                yield Edge(reader, RW, overwriter, f"it read {key} without {element}")


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
