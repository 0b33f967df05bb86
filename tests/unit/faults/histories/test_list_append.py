"""The known bad histories of Elle's tests and documentation have the anomalies that Elle names.

The histories are those of test/elle/list_append_test.clj, of Elle's README and of its paper. A G1b is also
the cycle that Elle names G-single.
"""

import pytest

from faults.histories.history import (
    DUPLICATE_ELEMENT,
    G0,
    G1A,
    G1B,
    G1C,
    G2_ITEM,
    G_SINGLE,
    GARBAGE_READ,
    INCOMPATIBLE_ORDER,
    Outcome,
    Read,
    Transaction,
    Write,
)
from faults.histories.list_append import check
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
        (("ax1ay1", "ax2ay2", "rx12ry21"), (), {G0}),
        (("rx1ax2", "rx12ry3", "ax1", "ay3"), (3,), {G1A}),
        (("ax1", "rx1"), (1,), {G1A}),
        (("ax1ax2", "rx1"), (), {G1B, G_SINGLE}),
        # Of Elle's README; and with another read.
        (("ax1ry1", "ax2ay1", "rx12"), (), {G1C}),
        (("ax1ry1", "ax2ay1", "rx12ry1"), (), {G1C}),
        (("ax1ay1", "ax2ry", "rx12"), (), {G_SINGLE}),
        (("ax1ry", "ay1rx"), (), {G2_ITEM}),
        (("rx", "ax1", "ax2"), (), set()),
        (("ax1ry1", "ax2", "ax3ay1", "rx13", "rx123"), (), {INCOMPATIBLE_ORDER, G1C}),
        (("ax1", "rx11"), (), {DUPLICATE_ELEMENT}),
        (("rx1",), (), {GARBAGE_READ}),
    ],
)
def test_anomalies_have_their_names(texts: tuple[str, ...], failed: tuple[int, ...], names: set[str]) -> None:
    assert {each.name for each in check(lists(*texts, failed=failed))} == names


def test_a_cycle_that_needs_the_order_of_a_session_says_so() -> None:
    found = check(lists("ax1", "ax2", "rx1", "rx12", sessions="abbc"))
    assert [each.name for each in found] == ["G-single-process"]


def test_what_an_uncertain_transaction_read_is_not_known() -> None:
    uncertain = Transaction("T1", (Write("x", 2), Read("y", ())), Outcome.UNCERTAIN)
    assert check([uncertain, *lists("ax1ay1", "rx12ry1")]) == []


def test_the_cycle_of_the_paper_is_found() -> None:
    history = [
        Transaction("T1", tuple(Write(*each) for each in ((253, 1), (253, 3), (253, 4), (255, 2), (255, 5)))),
        Transaction("T2", (Write(255, 8), Read(253, (1, 3, 4)))),
        Transaction("T3", (Write(256, 4), Read(255, (2, 5, 8)), Read(256, (1, 2, 4)), Read(253, (1, 3, 4)))),
        Transaction("T4", (Write(250, 10), Read(253, (1, 3, 4)), Read(255, (2, 5)), Write(256, 3))),
        Transaction("T0", (Write(256, 1), Write(256, 2))),
        Transaction("T5", (Read(256, (1, 2, 4, 3)),)),
    ]
    [found] = check(history)
    # T4 did not read what T2 appended, T3 read it, and T4 appended behind T3.
    assert found.name == G_SINGLE
    assert [str(edge.source) for edge in found.edges] == ["T4", "T2", "T3"]
    assert [edge.kind for edge in found.edges] == ["rw", "wr", "ww"]
