"""What Kafka's transactions exclude is an anomaly, and what they allow is none."""

import pytest

from faults.histories.history import G0, G1A, G1C
from faults.histories.kafka_order import check
from tests.unit.faults.histories.notation import lists, registers

NOTHING = ("", "", "")


@pytest.mark.parametrize(
    ("appends", "sessions", "updates", "names"),
    [
        # Two open transactions: one is first in x, the other in y.
        (("ax1ay1", "ax2ay2", "rx12ry21"), "abc", NOTHING, set()),
        # The same of one transactional id, whose transactions follow each other.
        (("ax1ay1", "ax2ay2", "rx12ry21"), "aac", NOTHING, {f"{G0}-process"}),
        (("ax1", "ax2", "rx21"), "aac", NOTHING, {f"{G0}-process"}),
        # The appends of open transactions alternate in one partition.
        (("ax1ax3", "ax2", "rx123"), "abc", NOTHING, set()),
        # One transaction's appends stand in another order than it sent them.
        (("ax1ax2", "", "rx21"), "abc", NOTHING, {G0}),
        # A transaction read a committed offset whose transaction appended behind it.
        (("ax1", "ax2", "rx21"), "abc", ("wx5", "rx5wx7", ""), {G1C}),
        (("ax1", "ax2", "rx12"), "abc", ("wx5", "rx5wx7", ""), set()),
        # Each read what the other committed.
        (("ax1", "ay1", "rx1ry1"), "abc", ("rx1wy1", "ry1wx1", ""), {G1C}),
        # A reader of several partitions, and one that ends within a transaction.
        (("ax1ay1", "rx1ry", "rx1ry1"), "abc", NOTHING, set()),
        (("ax1ax2", "rx1", "rx12"), "abc", NOTHING, set()),
    ],
)
def test_only_what_is_excluded_is_an_anomaly(
    appends: tuple[str, ...], sessions: str, updates: tuple[str, ...], names: set[str]
) -> None:
    found = check(lists(*appends, sessions=sessions), registers(*updates))
    assert {each.name for each in found} == names


def test_an_aborted_read_is_an_anomaly() -> None:
    assert {each.name for each in check(lists("ax1", "rx1", failed=(1,)), [])} == {G1A}


def test_a_cycle_names_each_step() -> None:
    [found] = check(lists("ax1", "ax2", "rx21"), registers("wx5", "rx5wx7", ""))
    assert found.text == (
        "T1 ends before T2 begins: it read x = 5; T2 begins before T2 appends 2 to x: so it did it;"
        " T2 appends 2 to x before T1 appends 1 to x: 1 stands behind 2 in x;"
        " T1 appends 1 to x before T1 ends: so it did it"
    )
