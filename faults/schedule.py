"""Which fault comes when: an endless plan that a seed decides.

Owns the kinds of faults, how often each comes and how strong. Pure. The same seed gives the same steps in the
same order.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Self, TypeVar

T = TypeVar("T")
_NOW: Final = "now"
_COUNTED: Final = "{0.frames} times"


class Plan(NamedTuple):
    """How often a kind comes, relative to the others, by what there is; and for how long at most."""

    shared: int = 0
    """Where brokers are behind proxies, for writers and processors."""
    writers: int = 0
    processors: int = 0
    machines: int = 0
    """Where three brokers share an etcd, each has a network and a disk, and partitions have replicas."""
    longest_ms: int = 400
    detail: str = "{0.duration_ms} ms"
    """How a step is described."""


class FaultKind(StrEnum):
    """What is done to the broker, to the network, to a writer or to a processor of transactions."""

    plan: Plan

    def __new__(cls, text: str, plan: Plan) -> Self:
        kind = str.__new__(cls, text)
        kind._value_, kind.plan = text, plan
        return kind

    KILL = "kill -9, start", Plan(shared=6, machines=6, detail=_NOW)
    KILL_IN_FLIGHT = "kill -9 with answers on their way", Plan(shared=6, machines=4)
    KILL_STARTING = (
        "kill -9 while it starts",
        Plan(shared=2, machines=2, detail="after {0.draw:.2f} of a start"),
    )
    POWER_CUT = "power cut, start", Plan(shared=8, machines=6, detail=_NOW)
    TERMINATE = "SIGTERM, start", Plan(shared=5, machines=6, detail=_NOW)
    PAUSE = "SIGSTOP, SIGCONT", Plan(shared=5, machines=4, longest_ms=2_500)
    KILL_PAUSED = "SIGSTOP, kill -9, start", Plan(shared=2, machines=2)
    CUT = "cut all connections", Plan(shared=8, detail=_NOW)
    CUT_BEFORE = "cut before the request", Plan(shared=8, detail=_COUNTED)
    CUT_WITHIN = "cut within the request", Plan(shared=5, detail=_COUNTED)
    CUT_AFTER = "cut after the request", Plan(shared=8, machines=3, detail=_COUNTED)
    DROP = "drop acknowledgements, cut", Plan(shared=10, machines=3, detail=_COUNTED)
    MUTE = "drop acknowledgements, stay silent", Plan(shared=3, detail=_COUNTED)
    DELAY = "delay every answer", Plan(shared=6, longest_ms=1_500)
    REFUSE = "refuse connections", Plan(shared=3, longest_ms=1_500)
    RENEW = "close a writer, open another", Plan(writers=4, detail=_NOW)
    KILL_PROCESSOR = "kill -9 of a processor, start another", Plan(processors=14, detail=_NOW)
    PAUSE_PROCESSOR = "SIGSTOP of a processor, SIGCONT", Plan(processors=5, longest_ms=6_000)
    TWO_PROCESSORS = "a second processor with the same id", Plan(processors=6, detail=_NOW)
    ZOMBIE = (
        "SIGSTOP of a processor, a second with the same id, SIGCONT",
        Plan(processors=8, longest_ms=6_000),
    )
    KILL_ALL = "kill -9 of all brokers, start", Plan(machines=1, detail=_NOW)
    OUTLIVE = "SIGSTOP longer than the session, SIGCONT", Plan(machines=6, longest_ms=4_000)
    CUT_OFF = "a broker cut off from etcd", Plan(machines=8, longest_ms=6_000)
    KILL_MEMBER = "kill -9 of a member of etcd, start", Plan(machines=3, longest_ms=3_000)
    PAUSE_MEMBER = "SIGSTOP of the leader of etcd, SIGCONT", Plan(machines=3, longest_ms=3_000)
    NO_QUORUM = "SIGSTOP of two members of etcd, SIGCONT", Plan(machines=4, longest_ms=5_000)
    LOSE_PEERS = "a broker cut off from the others", Plan(machines=8, longest_ms=6_000)
    LOSE_CLIENTS = "a broker cut off from its clients", Plan(machines=4, longest_ms=4_000)
    LOSE_ALL = "a broker cut off from all", Plan(machines=8, longest_ms=6_000)
    DEAF = "a broker that hears nobody", Plan(machines=6, longest_ms=6_000)
    MUTED = "a broker that nobody hears", Plan(machines=6, longest_ms=6_000)
    ONE_WAY = "a broker that does not hear another one", Plan(machines=6, longest_ms=6_000)
    LOSSY = "a broker that loses packets at random", Plan(machines=6, longest_ms=6_000)
    FULL_DISK = "disk full, emptied, kill -9, start", Plan(machines=4, longest_ms=3_000)
    FAILING_DISK = "disk fails with EIO, kill -9, repaired, start", Plan(machines=4, longest_ms=3_000)
    EMPTY_DISK = "kill -9, start on an empty disk", Plan(machines=4, detail=_NOW)
    STEP_CLOCK = "clock stepped", Plan(machines=5, detail=_NOW)
    ELECT = "preferred leaders elected", Plan(machines=6, detail=_NOW)
    REASSIGN = "a partition taken from a broker and given back", Plan(machines=6, longest_ms=4_000)


def weights(*fields: str) -> dict[FaultKind, int]:
    """How often each kind comes, by these fields of `Plan`."""
    found = {kind: sum(getattr(kind.plan, field) for field in fields) for kind in FaultKind}
    return {kind: weight for kind, weight in found.items() if weight}


class Step(NamedTuple):
    """After `wait_ms` comes `kind`, for `duration_ms` where it lasts, on `frames` frames where it counts.

    `draw` in [0, 1) decides whatever else the step leaves open.
    """

    wait_ms: int
    kind: FaultKind
    duration_ms: int
    frames: int
    draw: float

    def pick(self, several: Sequence[T]) -> T:
        """One of them, whatever else `draw` decides."""
        return several[int(self.draw * 1009 % 1 * len(several))]

    def __str__(self) -> str:
        return f"{self.kind} ({self.kind.plan.detail.format(self)})"


MACHINES_WAIT_MS: Final = 1000
"""Faults of machines last longer, so they come less often."""
MEAN_WAIT_MS: Final = 250


def schedule(seed: int, often: Mapping[FaultKind, int], mean_wait_ms: int = MEAN_WAIT_MS) -> Iterator[Step]:
    """The steps of `seed`, without end. The first kinds come once each in a random order, then by weight."""
    rng = random.Random(seed)
    first = list(often)
    rng.shuffle(first)
    while True:
        kind = first.pop() if first else rng.choices(list(often), list(often.values()))[0]
        wait_ms = min(int(rng.expovariate(1 / mean_wait_ms)), 6 * mean_wait_ms)
        duration_ms = int(rng.random() ** 2 * kind.plan.longest_ms)
        yield Step(wait_ms, kind, duration_ms, rng.randint(1, 6), rng.random())
