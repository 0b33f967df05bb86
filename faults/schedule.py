"""Which fault comes when: an endless plan that a seed decides.

Owns the kinds of faults, how often each comes and how strong. Pure. The same seed gives the same steps in the
same order.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")


class FaultKind(StrEnum):
    """What is done to the broker, to the network, to a writer or to a processor of transactions."""

    KILL = "kill -9, start"
    KILL_IN_FLIGHT = "kill -9 with answers on their way"
    KILL_STARTING = "kill -9 while it starts"
    POWER_CUT = "power cut, start"
    TERMINATE = "SIGTERM, start"
    PAUSE = "SIGSTOP, SIGCONT"
    KILL_PAUSED = "SIGSTOP, kill -9, start"
    CUT = "cut all connections"
    CUT_BEFORE = "cut before the request"
    CUT_WITHIN = "cut within the request"
    CUT_AFTER = "cut after the request"
    DROP = "drop acknowledgements, cut"
    MUTE = "drop acknowledgements, stay silent"
    DELAY = "delay every answer"
    REFUSE = "refuse connections"
    RENEW = "close a writer, open another"
    KILL_PROCESSOR = "kill -9 of a processor, start another"
    PAUSE_PROCESSOR = "SIGSTOP of a processor, SIGCONT"
    TWO_PROCESSORS = "a second processor with the same id"
    ZOMBIE = "SIGSTOP of a processor, a second with the same id, SIGCONT"
    KILL_EACH = "kill -9, start of each broker in turn"
    KILL_ALL = "kill -9 of all brokers, start"
    OUTLIVE = "SIGSTOP longer than the session, SIGCONT"
    CUT_OFF = "a broker cut off from etcd"
    KILL_MEMBER = "kill -9 of a member of etcd, start"
    PAUSE_MEMBER = "SIGSTOP of the leader of etcd, SIGCONT"
    NO_QUORUM = "SIGSTOP of two members of etcd, SIGCONT"
    LOSE_PEERS = "a broker cut off from the others"
    LOSE_CLIENTS = "a broker cut off from its clients"
    LOSE_ALL = "a broker cut off from all"
    DEAF = "a broker that hears nobody"
    MUTED = "a broker that nobody hears"
    ONE_WAY = "a broker that does not hear another one"
    LOSSY = "a broker that loses packets at random"
    FULL_DISK = "disk full, emptied, kill -9, start"
    FAILING_DISK = "disk fails with EIO, kill -9, repaired, start"
    EMPTY_DISK = "kill -9, start on an empty disk"
    STEP_CLOCK = "clock stepped"
    ELECT = "preferred leaders elected"
    REASSIGN = "a partition taken from a broker and given back"


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
        return f"{self.kind} ({_DETAILS.get(self.kind, '{0.duration_ms} ms').format(self)})"


_COUNTED: Final = "{0.frames} times"
_DETAILS: Final = {
    FaultKind.KILL: "now",
    FaultKind.POWER_CUT: "now",
    FaultKind.TERMINATE: "now",
    FaultKind.KILL_STARTING: "after {0.draw:.2f} of a start",
    FaultKind.CUT: "now",
    FaultKind.CUT_BEFORE: _COUNTED,
    FaultKind.CUT_WITHIN: _COUNTED,
    FaultKind.CUT_AFTER: _COUNTED,
    FaultKind.DROP: _COUNTED,
    FaultKind.MUTE: _COUNTED,
    FaultKind.RENEW: "now",
    FaultKind.KILL_PROCESSOR: "now",
    FaultKind.TWO_PROCESSORS: "now",
    FaultKind.KILL_EACH: "now",
    FaultKind.KILL_ALL: "now",
    FaultKind.EMPTY_DISK: "now",
    FaultKind.STEP_CLOCK: "now",
    FaultKind.ELECT: "now",
}
_SHARED: Final = {
    FaultKind.KILL: 6,
    FaultKind.KILL_IN_FLIGHT: 6,
    FaultKind.KILL_STARTING: 2,
    FaultKind.POWER_CUT: 8,
    FaultKind.TERMINATE: 5,
    FaultKind.PAUSE: 5,
    FaultKind.KILL_PAUSED: 2,
    FaultKind.CUT: 8,
    FaultKind.CUT_BEFORE: 8,
    FaultKind.CUT_WITHIN: 5,
    FaultKind.CUT_AFTER: 8,
    FaultKind.DROP: 10,
    FaultKind.MUTE: 3,
    FaultKind.DELAY: 6,
    FaultKind.REFUSE: 3,
}
WRITERS: Final[Mapping[FaultKind, int]] = {**_SHARED, FaultKind.RENEW: 4}
"""How often each fault comes, relative to the others, where writers work."""
OF_PROCESSORS: Final[Mapping[FaultKind, int]] = {
    FaultKind.KILL_PROCESSOR: 14,
    FaultKind.PAUSE_PROCESSOR: 5,
    FaultKind.TWO_PROCESSORS: 6,
    FaultKind.ZOMBIE: 8,
}
PROCESSORS: Final[Mapping[FaultKind, int]] = {**_SHARED, **OF_PROCESSORS}
"""The same where processors work in transactions."""
OF_SEVERAL: Final[Mapping[FaultKind, int]] = {
    FaultKind.KILL_EACH: 4,
    FaultKind.KILL_ALL: 2,
    FaultKind.OUTLIVE: 8,
    FaultKind.CUT_OFF: 10,
    FaultKind.KILL_MEMBER: 5,
    FaultKind.PAUSE_MEMBER: 5,
}
"""What comes besides where several brokers share an etcd."""
MACHINES: Final[Mapping[FaultKind, int]] = {
    FaultKind.KILL: 6,
    FaultKind.KILL_IN_FLIGHT: 4,
    FaultKind.KILL_STARTING: 2,
    FaultKind.POWER_CUT: 6,
    FaultKind.TERMINATE: 6,
    FaultKind.PAUSE: 4,
    FaultKind.OUTLIVE: 6,
    FaultKind.KILL_PAUSED: 2,
    FaultKind.CUT_AFTER: 3,
    FaultKind.DROP: 3,
    FaultKind.KILL_ALL: 1,
    FaultKind.CUT_OFF: 8,
    FaultKind.LOSE_PEERS: 8,
    FaultKind.LOSE_CLIENTS: 4,
    FaultKind.LOSE_ALL: 8,
    FaultKind.DEAF: 6,
    FaultKind.MUTED: 6,
    FaultKind.ONE_WAY: 6,
    FaultKind.LOSSY: 6,
    FaultKind.KILL_MEMBER: 3,
    FaultKind.PAUSE_MEMBER: 3,
    FaultKind.NO_QUORUM: 4,
    FaultKind.FULL_DISK: 4,
    FaultKind.FAILING_DISK: 4,
    FaultKind.EMPTY_DISK: 4,
    FaultKind.STEP_CLOCK: 5,
    FaultKind.ELECT: 6,
    FaultKind.REASSIGN: 6,
}
"""What comes where each broker has a network and a disk of its own, and its partitions have replicas."""
MACHINES_WAIT_MS: Final = 1000
"""These last longer, so they come less often."""
_LONGEST_MS: Final = {
    FaultKind.PAUSE: 2500,
    FaultKind.DELAY: 1500,
    FaultKind.REFUSE: 1500,
    FaultKind.PAUSE_PROCESSOR: 6000,
    FaultKind.ZOMBIE: 6000,
    FaultKind.OUTLIVE: 4000,
    FaultKind.CUT_OFF: 6000,
    FaultKind.KILL_MEMBER: 3000,
    FaultKind.PAUSE_MEMBER: 3000,
    FaultKind.NO_QUORUM: 5000,
    FaultKind.LOSE_PEERS: 6000,
    FaultKind.LOSE_CLIENTS: 4000,
    FaultKind.LOSE_ALL: 6000,
    FaultKind.DEAF: 6000,
    FaultKind.MUTED: 6000,
    FaultKind.ONE_WAY: 6000,
    FaultKind.LOSSY: 6000,
    FaultKind.FULL_DISK: 3000,
    FaultKind.FAILING_DISK: 3000,
    FaultKind.REASSIGN: 4000,
}
_LONGEST_OTHER_MS: Final = 400
MEAN_WAIT_MS: Final = 250


def schedule(
    seed: int, weights: Mapping[FaultKind, int] = WRITERS, mean_wait_ms: int = MEAN_WAIT_MS
) -> Iterator[Step]:
    """The steps of `seed`, without end. The first kinds come once each in a random order, then by weight."""
    rng = random.Random(seed)
    first = list(weights)
    rng.shuffle(first)
    while True:
        kind = first.pop() if first else rng.choices(list(weights), list(weights.values()))[0]
        wait_ms = min(int(rng.expovariate(1 / mean_wait_ms)), 6 * mean_wait_ms)
        duration_ms = int(rng.random() ** 2 * _LONGEST_MS.get(kind, _LONGEST_OTHER_MS))
        yield Step(wait_ms, kind, duration_ms, rng.randint(1, 6), rng.random())
