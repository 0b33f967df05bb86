"""However many objects are alive, a collection examines few of them; and cycles of old objects are freed."""

import gc
from collections.abc import Iterator
from weakref import ref

import pytest

from tidelog.broker.collector import MOST_BLOCKS, Collector

OBJECTS_OF_A_REQUEST = 4 * MOST_BLOCKS


class Node:
    """A cycle by itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def collector() -> Iterator[Collector]:
    thresholds = gc.get_threshold()
    gc.collect()
    yield Collector()
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.fixture
def examined(collector: Collector) -> Iterator[list[int]]:
    """How many objects each collection examines."""
    counts: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            counts.append(sum(len(gc.get_objects(each)) for each in range(info["generation"] + 1)))

    gc.callbacks.append(note)
    yield counts
    gc.callbacks.remove(note)


def test_a_collection_examines_few_objects_while_large_requests_are_alive(
    collector: Collector, examined: list[int]
) -> None:
    alive = [[[number]] for number in range(OBJECTS_OF_A_REQUEST // 2)]
    collector.collect_old()
    collector.collect_old()
    alive.clear()
    alive += [[[number]] for number in range(OBJECTS_OF_A_REQUEST // 2)]  # In place of what is frozen.
    collector.collect_old()
    assert len(alive) == OBJECTS_OF_A_REQUEST // 2
    assert 0 < max(examined) < MOST_BLOCKS


def test_a_cycle_of_old_objects_is_freed_though_many_are_alive(collector: Collector) -> None:
    alive = [[[number]] for number in range(OBJECTS_OF_A_REQUEST // 2)]
    collector.collect_old()
    node = Node()
    gc.collect(1)  # Now it is old.
    seen = ref(node)
    del node
    collector.collect_old()
    assert seen() is None
    assert alive
