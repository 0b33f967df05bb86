"""Each rule of Jepsen's workload for Kafka finds the history that breaks it."""

from dataclasses import replace

import pytest

from faults.histories.history import GARBAGE_READ
from faults.histories.record_rules import (
    ABORTED_READ,
    DUPLICATE,
    DUPLICATE_OF_CLIENT,
    INCONSISTENT_OFFSETS,
    LOST_WRITE,
    NONMONOTONIC_POLL,
    NONMONOTONIC_SEND,
    POLL_SKIP,
    STALE_READ,
    UNSEEN,
    Look,
    Records,
    Send,
    Stored,
    check,
)

GOOD = Records(
    sends=[Send("p", 0, value, offset) for offset, value in enumerate("abcd")],
    polls={each: {0: list(enumerate("abcd"))} for each in ("r", "s")},
    stored={0: [Stored(offset, value, 7, 0, offset) for offset, value in enumerate("abcd")]},
    looks=[Look(0, 4, 4), Look(0, 2, 3)],
)


def polled(*log: tuple[int, str]) -> Records:
    """One of two readers got something else."""
    return replace(GOOD, polls={**GOOD.polls, "s": {0: log}})


def sent(*sends: Send) -> Records:
    return replace(GOOD, sends=[*GOOD.sends, *sends])


def stored_twice(epoch: int) -> Records:
    return replace(GOOD, stored={0: [Stored(0, "a", 7, 0, 0), Stored(1, "a", 7, epoch, 0)]})


@pytest.mark.parametrize(
    ("broken", "names"),
    [
        (GOOD, set()),
        (Records(), set()),
        (polled((0, "a"), (1, "d"), (2, "c"), (3, "d")), {INCONSISTENT_OFFSETS}),
        (polled((0, "a"), (2, "c"), (3, "d")), {POLL_SKIP}),
        (polled((0, "a"), (1, "b"), (1, "b"), (2, "c"), (3, "d")), {NONMONOTONIC_POLL}),
        (polled((0, "a"), (1, "b")), set()),
        (sent(Send("q", 0, "e", None)), {LOST_WRITE}),
        (sent(Send("q", 0, "e", 2)), {LOST_WRITE, INCONSISTENT_OFFSETS}),
        (sent(Send("q", 0, "e", 9)), {UNSEEN}),
        (sent(Send("q", 0, "e", None, acknowledged=False)), set()),
        (replace(GOOD, sends=[*GOOD.sends[:2], GOOD.sends[3], GOOD.sends[2]]), {NONMONOTONIC_SEND}),
        (replace(GOOD, sends=GOOD.sends[1:]), {GARBAGE_READ}),
        (replace(GOOD, sends=[*GOOD.sends[:3], Send("p", 0, "d", None, failed=True)]), {ABORTED_READ}),
        (replace(GOOD, looks=[Look(0, 3, 2)]), {STALE_READ}),
        (stored_twice(epoch=0), {DUPLICATE}),
        (stored_twice(epoch=1), {DUPLICATE_OF_CLIENT}),
    ],
)
def test_each_broken_rule_has_its_name(broken: Records, names: set[str]) -> None:
    assert {each.name for each in check(broken)} == names
    assert all(each.edges for each in check(broken))
