"""Share groups over one broker and over three, under all faults: see `share_world`.

To replay a seed: `python -m tests.simulation.transactions --share-groups --brokers 3 --first SEED --seeds 1`.
"""

import pytest

from tests.simulation.share_world import ShareWorld
from tests.simulation.transactions import play
from tests.simulation.world import Shape


@pytest.mark.parametrize("shape", [Shape(brokers=1), Shape(), Shape(replicas=3)], ids=["1", "3", "replicas"])
@pytest.mark.parametrize("seed", [0, 1])
def test_each_record_is_accepted_once_or_archived_by_its_limit(seed: int, shape: Shape) -> None:
    run = play(seed, shape, ShareWorld)
    assert run.findings == []
    assert run.done["accepted records"] > 0


def test_a_seed_replays_exactly() -> None:
    assert play(1, Shape(), ShareWorld).done == play(1, Shape(), ShareWorld).done
