"""Whole brokers on virtual time, on failing networks and dying machines: what the design promises.

Some seeds are always played; others follow from the commit (see `seeds`), so no commit before had them. To
replay one: `python -m tests.simulation.transactions --first SEED --seeds 1`, with the options below.
"""

import pytest

from tests.simulation.seeds import commit, first_of
from tests.simulation.share_world import ShareWorld
from tests.simulation.transactions import play
from tests.simulation.world import ALONE, Shape, World

_FIRST = first_of(commit())
_DONE = {World: "transactions: its commit was confirmed", ShareWorld: "accepted records"}
_WORLDS = {
    "": (ALONE, World, range(8), 28),
    "--brokers 2": (Shape(2), World, [2], 0),
    "--brokers 3": (Shape(), World, [], 6),
    "--brokers 5": (Shape(5), World, [5], 0),
    "--brokers 3 --replicas 3": (Shape(replicas=3), World, [1, 4], 5),
    "--brokers 3 --replicas 3 --moves": (Shape(replicas=3, moves=True), World, [], 3),
    "--brokers 3 --replicas 3 --tiered": (Shape(replicas=3, is_tiered=True), World, [1], 3),
    "--share-groups": (Shape(brokers=1), ShareWorld, [0, 1], 4),
    "--share-groups --brokers 3": (Shape(), ShareWorld, [0, 1], 0),
    "--share-groups --brokers 3 --replicas 3": (Shape(replicas=3), ShareWorld, [0, 1], 4),
}
_NEW = {options: range(_FIRST, _FIRST + each[3]) for options, each in _WORLDS.items()}


@pytest.mark.parametrize(
    ("options", "seed"), [(options, seed) for options, each in _WORLDS.items() for seed in each[2]]
)
def test_brokers_lose_double_and_tear_nothing(options: str, seed: int) -> None:
    shape, world, *_ = _WORLDS[options]
    run = play(seed, shape, world)
    assert run.findings == []
    assert run.done[_DONE[world]] > 0
    assert shape.brokers == 1 or run.done["commits of the catalog"] > 10


@pytest.mark.parametrize(("options", "seed"), [(options, seed) for options in _NEW for seed in _NEW[options]])
def test_new_seeds_have_no_findings(options: str, seed: int) -> None:
    shape, world, *_ = _WORLDS[options]
    assert play(seed, shape, world).findings == []


@pytest.mark.parametrize("options", ["", "--share-groups --brokers 3"])
def test_a_seed_replays_exactly(options: str) -> None:
    shape, world, *_ = _WORLDS[options]
    first, again = play(1, shape, world), play(1, shape, world)
    assert first.done == again.done
    assert first.history == again.history
