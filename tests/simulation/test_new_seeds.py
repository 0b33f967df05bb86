"""Fifty seeds that no commit before had, in worlds of all kinds. They follow from the commit: see `seeds`.

To replay a seed: `python -m tests.simulation.transactions --first SEED --seeds 1`, with the options below.
"""

import pytest

from tests.simulation.seeds import commit, first_of
from tests.simulation.share_world import ShareWorld
from tests.simulation.transactions import play
from tests.simulation.world import ALONE, Shape, World

_FIRST = first_of(commit())
_WORLDS = {
    "": (ALONE, World, 28),
    "--brokers 3": (Shape(), World, 6),
    "--brokers 3 --replicas 3": (Shape(replicas=3), World, 5),
    "--brokers 3 --replicas 3 --moves": (Shape(replicas=3, moves=True), World, 3),
    "--share-groups": (Shape(brokers=1), ShareWorld, 4),
    "--share-groups --brokers 3 --replicas 3": (Shape(replicas=3), ShareWorld, 4),
}


@pytest.mark.parametrize(
    ("options", "seed"),
    [(options, _FIRST + number) for options, (_, _, count) in _WORLDS.items() for number in range(count)],
)
def test_new_seeds_have_no_findings(options: str, seed: int) -> None:
    shape, world, _ = _WORLDS[options]
    assert play(seed, shape, world).findings == []
