"""What is wrong with reads of lists has the names that Elle gives it.

The histories are of test/elle/list_append_test.clj.
"""

import pytest

from faults.histories.history import DUPLICATE_ELEMENT, G1A, GARBAGE_READ, INCOMPATIBLE_ORDER
from faults.histories.list_append import Lists, check_reads
from tests.unit.faults.histories.notation import lists


@pytest.mark.parametrize(
    ("texts", "failed", "names"),
    [
        ((), (), set()),
        (("ax1",), (), set()),
        (("rx",), (), set()),
        (("rx", "ax1", "rx1"), (), set()),
        # Adya, Liskov, O'Neil, figure 3: serializable.
        (("az1ax1ay1", "rx1ay2", "ry12az3", "rz13"), (), set()),
        (("rx1ax2", "rx12ry3", "ax1", "ay3"), (3,), {G1A}),
        (("ax1", "rx1"), (1,), {G1A}),
        (("ax1ry1", "ax2", "ax3ay1", "rx13", "rx123"), (), {INCOMPATIBLE_ORDER}),
        (("ax1", "rx11"), (), {DUPLICATE_ELEMENT}),
        (("rx1",), (), {GARBAGE_READ}),
    ],
)
def test_anomalies_have_their_names(texts: tuple[str, ...], failed: tuple[int, ...], names: set[str]) -> None:
    assert {each.name for each in check_reads(Lists(lists(*texts, failed=failed)))} == names
