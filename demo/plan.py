"""The plan of faults, made from a random seed, so that a run can be repeated.

Owns the mix of faults. Marks are shares of the events that the broker has acknowledged, so the plan does not
depend on the speed of the machine. Pure; `demo.shipment` carries it out.
"""

import random
from enum import Enum
from typing import NamedTuple

FAULTS = 40
_FIRST_MARK, _LAST_MARK = 0.02, 0.96
_MOST_IN_FLIGHT = 5


class Kind(Enum):
    """What happens to the network or the broker."""

    DROP_ACKS = "connection cut after acknowledgements were lost on it"
    CUT_BEFORE = "connection cut before the request reached the broker"
    CUT_AFTER = "connection cut after the request, before its answer"
    CUT_ALL = "every connection cut at once"
    REFUSE = "connections cut and refused for a while"
    KILL = "broker killed with kill -9 and started again"


class Step(NamedTuple):
    """At `mark` (share of events acknowledged) `kind` happens; `frames` says how many acks are dropped."""

    mark: float
    kind: Kind
    frames: int


def make_plan(seed: int, faults: int = FAULTS) -> list[Step]:
    """`faults` network faults, each kind as often as any other, and one kill in the middle, spread evenly."""
    draw = random.Random(seed)
    kinds = [kind for kind in Kind if kind is not Kind.KILL]
    chosen: list[Kind] = [kinds[number % len(kinds)] for number in range(faults)]
    draw.shuffle(chosen)
    chosen.insert(faults // 2, Kind.KILL)
    step = (_LAST_MARK - _FIRST_MARK) / max(faults, 1)
    return [
        Step(_FIRST_MARK + number * step, kind, _frames(kind, draw)) for number, kind in enumerate(chosen)
    ]


def _frames(kind: Kind, draw: random.Random) -> int:
    return draw.randint(1, _MOST_IN_FLIGHT) if kind is Kind.DROP_ACKS else 1
