"""The index of producers: finds what was added, forgets what was removed, never stops to grow."""

import random

import pytest

from tidelog.broker.storage.producer_index import SPREAD, SlotIndex

MOST_LOOKED_AT_BY_AN_ADD = 40
LONGEST_WALK = 64


class Slots:
    """Producer ids by slot, as a table keeps them; counts how often one is asked for."""

    def __init__(self) -> None:
        self.ids = [-1]
        self.free: list[int] = []
        self.asked = 0
        self.index = SlotIndex(self.id_of)
        self.slots: dict[int, int] = {}

    def id_of(self, slot: int) -> int:
        self.asked += 1
        return self.ids[slot]

    def add(self, producer_id: int) -> None:
        if self.free:
            slot = self.free.pop()
            self.ids[slot] = producer_id
        else:
            slot = len(self.ids)
            self.ids.append(producer_id)
        self.index.add(producer_id, slot, len(self.ids) - 1)
        self.slots[producer_id] = slot

    def remove(self, producer_id: int) -> None:
        slot = self.slots.pop(producer_id)
        self.index.remove(producer_id, slot)
        self.ids[slot] = -1
        self.free.append(slot)

    def walk(self, producer_id: int) -> tuple[int, int]:
        """The slot of a producer or 0, and how many cells were looked at."""
        cells = self.index.cells
        at, steps = producer_id * SPREAD % len(cells), 1
        while (slot := cells[at]) and self.ids[slot] != producer_id:
            at, steps = (at + 1) % len(cells), steps + 1
        return slot, steps

    def check(self) -> None:
        assert len(self.index) == len(self.slots)
        assert [self.walk(producer_id)[0] for producer_id in self.slots] == list(self.slots.values())


def test_it_finds_what_a_dictionary_would_through_adding_removing_and_growing() -> None:
    chooser = random.Random(7)
    slots = Slots()
    for step in range(6_000):
        producer_id = chooser.randrange(2_000)
        if producer_id not in slots.slots:
            slots.add(producer_id)
        elif chooser.random() < 0.7:
            slots.remove(producer_id)
        if step % 100 == 0:
            slots.check()
            assert all(slots.walk(other)[0] == 0 for other in range(2_000) if other not in slots.slots)
    for producer_id in list(slots.slots):
        slots.remove(producer_id)
    assert not any(slots.index.cells)


def test_growing_takes_a_little_of_each_append_and_no_append_waits_for_it() -> None:
    slots = Slots()
    sizes = set()
    for producer_id in range(5_000):
        slots.asked = 0
        slots.add(producer_id)
        assert slots.asked <= MOST_LOOKED_AT_BY_AN_ADD
        sizes.add(len(slots.index.cells))
    assert len(sizes) > 5
    slots.check()


@pytest.mark.parametrize(
    "ids",
    [
        range(20_000),
        range(0, 20_000_000, 1_000),
        range(0, 1 << 40, 1 << 26),
        range((1 << 62) - 20_000, 1 << 62),
    ],
    ids=["one after the other", "one a block", "a power of two apart", "the largest"],
)
def test_ids_that_lie_evenly_are_found_in_few_steps(ids: range) -> None:
    slots = Slots()
    for producer_id in ids:
        slots.add(producer_id)
    steps = [slots.walk(producer_id)[1] for producer_id in ids]
    assert max(steps) <= LONGEST_WALK
    assert sum(steps) / len(steps) < 2


def test_runs_of_the_same_cells_do_not_cause_long_searches() -> None:
    slots = Slots()
    for producer_id in range(5_000):
        slots.add(producer_id)
    size = len(slots.index.cells)
    for producer_id in range(size, size + 1_000):
        slots.add(producer_id)
    assert max(slots.walk(producer_id)[1] for producer_id in slots.slots) <= LONGEST_WALK
    slots.check()
