"""The progress of one to five replicas is that of a model that decides each offset anew after each event."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.broker.replicas.progress import CommitWaiter, Mark, Progress
from tidelog.broker.storage.open_transactions import OpenTransactions
from tidelog.protocol.errors import ErrorCode


class Model:
    """Which offsets were ever committed or shown, and where each transaction began and ended."""

    def __init__(self) -> None:
        self.written = self.durable = self.shown = 0
        self.follower_ends = dict.fromkeys(range(1, 5), 0)
        self.stored: set[int] = set()
        self.joining: set[int] = set()
        self.least = 1
        self.committed = {0}
        self.readable = {0}
        self.transactions: dict[int, tuple[int, int | None]] = {}
        self.waiting: dict[str, list[int]] = {"flushed": [], "committed": []}

    def look(self) -> None:
        held = [self.follower_ends[member] for member in self.stored | self.joining]
        if 1 + len(self.stored) >= self.least:
            for offset in range(self.written + 1):
                if all(end >= offset for end in held):
                    self.committed |= {offset} if offset <= self.durable else set()
                    self.readable |= {offset} if offset <= max(self.durable, self.shown) else set()

    def ends(self) -> tuple[int, int, int, int]:
        """Flushed, committed, high watermark, last stable offset."""
        committed, high_watermark = max(self.committed), max(self.readable)
        unstable = [
            first for first, marker in self.transactions.values() if marker is None or marker >= committed
        ]
        return self.durable, committed, high_watermark, min([*unstable, high_watermark])

    def answered(self, name: str) -> int:
        """How many of those who ever waited for a mark are answered: each after all before it."""
        reached = self.durable if name == "flushed" else max(self.committed)
        waiting = self.waiting[name]
        return next((n for n, offset in enumerate(waiting) if offset > reached), len(waiting))


class Told(CommitWaiter):
    def __init__(self) -> None:
        self.slots: list[int] = []

    def partition_committed(self, slot: int) -> None:
        self.slots.append(slot)

    def partition_failed(self, slot: int, code: ErrorCode) -> None:
        raise AssertionError("nothing fails here")


@settings(max_examples=150)
@given(st.integers(1, 5), st.data())
def test_the_ends_and_the_answers_are_those_of_the_model(replicas: int, data: st.DataObject) -> None:
    model, transactions = Model(), OpenTransactions()
    progress, told = Progress(0, transactions, 0), {"flushed": Told(), "committed": Told()}
    ids = st.sampled_from(range(1, replicas)) if replicas > 1 else st.nothing()
    events = ["data", "marker", "flush", "flush", "show", "hide", "wait"]
    events += ["follower", "follower", "follower", "in sync"] if replicas > 1 else []

    def draw(strategy: st.SearchStrategy[Any]) -> Any:
        return data.draw(strategy)

    for event in draw(st.lists(st.sampled_from(events), max_size=40)):
        match event:
            case "data":
                if draw(st.booleans()):
                    transactions.begin(model.written, model.written)
                    model.transactions[model.written] = model.written, None
                model.written += draw(st.integers(1, 3))
            case "marker":
                is_open = [each for each, (_, marker) in model.transactions.items() if marker is None]
                if is_open:
                    producer = draw(st.sampled_from(is_open))
                    transactions.end(producer, model.written)
                    model.transactions[producer] = model.transactions[producer][0], model.written
                    model.written += 1
            case "flush":
                model.durable = draw(st.integers(model.durable, model.written))
                progress.flushed_to(model.durable)
            case "show" | "hide":
                model.shown = model.written if event == "show" else 0
                progress.show(model.shown)
            case "follower":
                follower, end = draw(ids), draw(st.integers(0, model.written))
                model.follower_ends[follower] = end
                progress.follower_flushed_to(follower, end)
            case "in sync":
                model.stored, model.joining = draw(st.sets(ids)), draw(st.sets(ids))
                model.least = draw(st.integers(1, replicas))
                progress.set_in_sync(model.stored, model.joining, model.least)
            case "wait":
                name, offset = draw(st.sampled_from(sorted(told))), draw(st.integers(0, model.written))
                mark: Mark = getattr(progress, name)
                mark.waiting.append((offset, told[name], len(model.waiting[name])))
                model.waiting[name].append(offset)
        model.look()
        progress.check(0)
        progress.answer()
        found = progress.flushed.offset, progress.committed.offset, progress.high_watermark
        assert (*found, progress.last_stable(0)) == model.ends()
        for name, waiter in told.items():
            assert waiter.slots == list(range(model.answered(name)))
    assert len(progress.take_waiting()) == sum(
        len(model.waiting[name]) - model.answered(name) for name in told
    )
