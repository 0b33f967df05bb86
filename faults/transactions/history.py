"""What was observed of transactions: the attempts, what each reported, and what readers found.

Owns the identities (an attempt is one transaction of one process, an output is a record of one), and their
layouts: the key and value of an output, and the lines of a process's journal. Pure.

Invariants: an output's place follows from its source, so an attempt's sources say which records it writes. A
line is in the journal before the process takes the step that it names, the first one with the sources. An end
is there only after the client has confirmed it.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from faults.checker import Stored

FIRST_TOPIC: Final = "out-first"
SECOND_TOPIC: Final = "out-second"
PARTITIONS: Final[Mapping[str, int]] = {FIRST_TOPIC: 3, SECOND_TOPIC: 2}


class Place(NamedTuple):
    """A partition that outputs go to."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


PLACES: Final = tuple(Place(topic, index) for topic, count in PARTITIONS.items() for index in range(count))


class Source(NamedTuple):
    """A record of the input."""

    partition: int
    offset: int


class AttemptId(NamedTuple):
    """The `number`th transaction of a process."""

    process: str
    number: int

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.process}"

    @property
    def slot(self) -> str:
        """Of the process; its processes have one transactional id."""
        return self.process.rpartition("-")[0]


class Output(NamedTuple):
    """Identifies an output record: what an attempt made of a source in one place."""

    attempt: AttemptId
    source: Source
    place: Place

    def __str__(self) -> str:
        return f"input {self.source.partition}@{self.source.offset} in {self.attempt} on {self.place}"


class Outcome(StrEnum):
    """What the process knows of its attempt."""

    OPEN = "its end was never asked for"
    UNCERTAIN = "its commit was asked for"
    COMMITTED = "its commit was confirmed"
    ABORTED = "its abort was confirmed"

    @property
    def may_be_visible(self) -> bool:
        return self in (Outcome.UNCERTAIN, Outcome.COMMITTED)


@dataclass
class Attempt:
    """`begun_s` is the machine's monotonic time."""

    outcome: Outcome = Outcome.OPEN
    sources: tuple[Source, ...] = ()
    begun_s: float = 0.0


class Ends(NamedTuple):
    """What one Fetch said of a partition."""

    last_stable: int
    high_watermark: int


@dataclass
class History:
    """What was observed in one run. `visible` is what a reader of committed records finds at the end;
    `followed` what readers found meanwhile, by their names; `ends` and `committed`, the offsets of each input
    partition, in the order of observation; `inputs` the number of input records and `positions` the last
    committed offsets."""

    attempts: Mapping[AttemptId, Attempt] = field(default_factory=dict)
    visible: Mapping[Place, Sequence[Stored]] = field(default_factory=dict)
    followed: Mapping[str, Mapping[Place, Sequence[Stored]]] = field(default_factory=dict)
    ends: Mapping[str, Sequence[Ends]] = field(default_factory=dict)
    committed: Mapping[int, Sequence[int]] = field(default_factory=dict)
    inputs: Mapping[int, int] = field(default_factory=dict)
    positions: Mapping[int, int] = field(default_factory=dict)


def places_of(source: Source) -> tuple[Place, ...]:
    """Where the outputs of a record go: one to three partitions, mostly of both topics."""
    drawn = zlib.crc32(b"%d/%d" % source)
    first = Place(FIRST_TOPIC, drawn % PARTITIONS[FIRST_TOPIC])
    second = Place(SECOND_TOPIC, drawn // 8 % PARTITIONS[SECOND_TOPIC])
    another = Place(FIRST_TOPIC, (first.partition + 1) % PARTITIONS[FIRST_TOPIC])
    return ((first,), (first, second), (first, second), (first, another, second))[drawn // 64 % 4]


def outputs_of(attempt: AttemptId, sources: Iterable[Source]) -> list[Output]:
    return [Output(attempt, source, place) for source in sources for place in places_of(source)]


def record_of(output: Output) -> tuple[bytes, bytes]:
    """Key and value; the place is where the record is sent to."""
    (process, number), (partition, offset), place = output
    return b"%s/%d" % (process.encode(), number), b"%d/%d/%s" % (partition, offset, str(place).encode())


def output_of(key: object, value: object) -> Output | None:
    """The output with this key and value; None if no attempt makes such a record."""
    if not isinstance(key, bytes) or not isinstance(value, bytes):
        return None
    process, _, number = key.decode(errors="replace").rpartition("/")
    fields = value.decode(errors="replace").split("/")
    if len(fields) != 3 or not number.isdigit() or not all(map(str.isdigit, fields[:2])):
        return None
    source = Source(int(fields[0]), int(fields[1]))
    place = next((each for each in places_of(source) if str(each) == fields[2]), None)
    return None if place is None else Output(AttemptId(process, int(number)), source, place)


def begin_line(number: int, begun_s: float, sources: Iterable[Source]) -> str:
    """The journal's line for a transaction that begins next."""
    named = (f"{source.partition}:{source.offset}" for source in sources)
    return " ".join((f"begin {number} {begun_s:.6f}", *named))


def attempts_of(process: str, lines: Iterable[str]) -> dict[AttemptId, Attempt]:
    """What a process's journal says. Lines: `begin N SECONDS P:O …`, `commit N`, `committed N`,
    `aborted N`."""
    attempts: dict[AttemptId, Attempt] = {}
    for line in lines:
        what, number, *named = line.split()
        attempt = attempts.setdefault(AttemptId(process, int(number)), Attempt())
        if what == "begin":
            attempt.begun_s = float(named[0])
            attempt.sources = tuple(Source(*map(int, each.split(":"))) for each in named[1:])
        elif what == "commit":
            attempt.outcome = Outcome.UNCERTAIN
        elif what == "committed":
            attempt.outcome = Outcome.COMMITTED
        elif what == "aborted":
            attempt.outcome = Outcome.ABORTED
    return attempts
