"""The known bad histories of Elle's tests have the anomalies that Elle names, and lost updates are found.

The histories are those of test/elle/rw_register_test.clj.
"""

from collections.abc import Mapping, Sequence

import pytest

from faults.histories.history import (
    CYCLIC_VERSIONS,
    G0,
    G1A,
    G1B,
    G1C,
    G2_ITEM,
    G_SINGLE,
    GARBAGE_READ,
    LOST_UPDATE,
)
from faults.histories.rw_register import check
from tests.unit.faults.histories.notation import registers


@pytest.mark.parametrize(
    ("texts", "failed", "names"),
    [
        (("wx1", "rx1"), (), set()),
        (("wx1wy2", "wx2wy1"), (), set()),
        (("rx2", "wx2"), (2,), {G1A}),
        (("rx2", "wx2wx1"), (), {G1B}),
        (("wx1wx2", "rx2"), (), set()),
        # Circular information flow, over one register and over two.
        (("rx0wx1", "rx1wx0"), (), {CYCLIC_VERSIONS, G1C, G0}),
        (("rx0wy1", "ry1wx0"), (), {G1C}),
        (("wx1wy1", "rx1ry_"), (), {G_SINGLE}),
        (("rx_wy1", "ry_wx1"), (), {G2_ITEM}),
        (("rx7",), (), {GARBAGE_READ}),
        (("wx1", "rx1wx2", "rx1wx3"), (), {LOST_UPDATE, G2_ITEM}),
    ],
)
def test_anomalies_have_their_names(texts: tuple[str, ...], failed: tuple[int, ...], names: set[str]) -> None:
    assert {each.name for each in check(registers(*texts, failed=failed))} == names


@pytest.mark.parametrize(
    ("orders", "names"),
    [({"x": (1, 2), "y": (1, 2)}, {G0}), ({"x": (1, 2), "y": (2, 1)}, set())],
)
def test_a_known_order_of_versions_shows_a_cycle_of_writes(
    orders: Mapping[str, Sequence[int]], names: set[str]
) -> None:
    assert {each.name for each in check(registers("wx1wy2", "wx2wy1"), orders)} == names


def test_a_known_order_tells_a_lost_update_from_the_one_that_overwrote_it() -> None:
    found = check(registers("wx1", "rx1wx2", "rx1wx3", "rx3"), {"x": (1, 2, 3)})
    assert {each.name for each in found} == {LOST_UPDATE, G_SINGLE}
