"""Each way in which a compacted topic can be wrong is a finding; what is right is none."""

import pytest

from faults.checker import REFUSED, UNCERTAIN, Finding, Kind, Ledger
from faults.latest_values import KEYS, Version, check_latest, is_tombstone

LIFE = 7 * KEYS
"""Records of a writer: each key gets seven, the fifth of which is a tombstone."""
TOMBSTONE = 4 * KEYS


def findings(left: list[int], fates: dict[int, int] | None = None) -> set[Kind]:
    """What the check says of these counters, each at its own offset, after all records were acknowledged."""
    ledger = Ledger(0, "writer")
    for counter in range(LIFE):
        ledger.sent(0)
        ledger.record_outcome(0, counter, (fates or {}).get(counter, counter))
    found: list[Finding] = check_latest(
        [ledger], {0: [Version(counter, 0, counter, is_tombstone(counter)) for counter in left]}
    )
    return {finding.kind for finding in found}


LATEST = list(range(LIFE - KEYS, LIFE))


def test_the_last_value_of_each_key_is_enough() -> None:
    assert findings(LATEST) == set()
    assert findings(list(range(LIFE))) == set()


def test_a_key_may_be_gone_after_its_tombstone_and_not_otherwise() -> None:
    others = LATEST[1:]
    assert findings(others) == {Kind.MISSING}
    uncertain = dict.fromkeys((5 * KEYS, 6 * KEYS), UNCERTAIN)
    assert findings(others, uncertain) == set()
    assert findings(others, {**uncertain, TOMBSTONE: REFUSED}) == {Kind.MISSING}


def test_a_key_that_comes_back_is_found() -> None:
    uncertain = dict.fromkeys((5 * KEYS, 6 * KEYS), UNCERTAIN)
    assert findings([0, *LATEST[1:]], uncertain) == {Kind.MISSING}
    assert findings([TOMBSTONE, *LATEST[1:]], uncertain) == set()


@pytest.mark.parametrize(
    ("left", "kind"),
    [
        ([LATEST[1], LATEST[0], *LATEST[2:]], Kind.REORDERED),
        ([*LATEST, LIFE], Kind.INVENTED),
        ([*LATEST, LATEST[-1]], Kind.REORDERED),
    ],
)
def test_records_out_of_order_or_never_sent_are_found(left: list[int], kind: Kind) -> None:
    assert kind in findings(left)


def test_a_record_at_another_offset_than_acknowledged_is_found() -> None:
    assert findings(LATEST, {LATEST[3]: LATEST[3] + 1000}) == {Kind.WRONG_OFFSET}
    assert findings(LATEST, {LATEST[3]: REFUSED}) == {Kind.NOT_REFUSED}
