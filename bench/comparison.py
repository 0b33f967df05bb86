"""Comparisons: the same loads against several servers, in turns, on one machine.

Owns the order of a comparison. All servers run from its beginning to its end. Within a round each case runs
on one server after the other, and in the next round in the reverse order, so that what disturbs the machine
disturbs all alike. Rounds count once all servers are warm: the processor time per record of three turns in a
row differs by less than 5 %. Each turn has a topic of its own, on a disk with nothing left to write; the
topic is deleted afterwards. Tidelog must have stored every acknowledged record, otherwise the bench ends.
"""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.loads.process import LoadError, Outcome, run_load
from bench.results import SUBJECT, Requirement, Results
from bench.targets.process import Server, TargetError
from bench.wire import TOPIC, Wire, WireError

FAILURES = (TargetError, LoadError, WireError, OSError)
"""Errors after which one server is absent and the bench continues."""
_WARM_TURNS = 3
_WARM_RATIO = 1.05
_numbers = itertools.count()


@dataclass(frozen=True)
class Run:
    """What a scenario is given: a folder on the disk that is measured, how often to measure, and how long."""

    folder: Path
    rounds: int
    seconds: float
    most_warm_up_turns: int = 10
    """After so many a server counts as it is, and a note says so."""


@dataclass(frozen=True)
class Measure:
    """A line of the table: what of a turn's outcome is shown, and what is required of it."""

    name: str
    unit: str
    of: Callable[[Outcome], float]
    requirements: tuple[Requirement, ...] = ()


def speed(
    what: str = "record",
    rate: tuple[Requirement, ...] = (),
    cpu: tuple[Requirement, ...] = (),
    p99_name: str = "p99",
) -> tuple[Measure, ...]:
    """The three that say how fast a server is: rate, processor time, and latency."""
    return (
        Measure("rate", f"{what}s/s", lambda done: done.numbers["records"] / done.numbers["seconds"], rate),
        Measure("server CPU", f"µs/{what}", _cpu_us, cpu),
        Measure(p99_name, "ms", lambda done: float(done.numbers["p99_ms"])),
    )


def _cpu_us(done: Outcome) -> float:
    return done.server_cpu_s * 1e6 / float(done.numbers.get("acknowledged", done.numbers["records"]))


@dataclass(frozen=True)
class Case:
    """One load with its options, against each server.

    `fill` are the options of a raw load that makes, once per server, a topic that all turns then share.
    """

    title: str
    load: str
    options: Mapping[str, object]
    measures: tuple[Measure, ...]
    fill: Mapping[str, object] = field(default_factory=dict)
    is_timed: bool = True
    """Whether the load takes as many seconds as it is given, rather than doing a fixed work."""


@dataclass(frozen=True)
class Comparison:
    """A table: Tidelog's and other servers, and the cases. `afterwards` measures more while they run."""

    title: str
    targets: tuple[type[Server], ...]
    cases: tuple[Case, ...]
    afterwards: Callable[[Results, Server, Run], None] = lambda *_: None

    def __call__(self, run: Run) -> Results:
        """Measure. Raises FAILURES when Tidelog is the one that fails."""
        results = Results(tuple(each.name for each in self.targets if each.name != SUBJECT), self.title)
        with ExitStack() as stack:
            servers = [
                server
                for make in self.targets
                if (server := _started(stack, results, make, run.folder)) is not None
            ]
            for case in self.cases:
                _compare(results, case, servers, run)
            _each(results, "what follows", servers, lambda server: self.afterwards(results, server, run))
        return results


def _started(stack: ExitStack, results: Results, make: type[Server], folder: Path) -> Server | None:
    try:
        return stack.enter_context(make(folder / make.name.replace(" ", "-")))
    except FAILURES as error:
        if make.name == SUBJECT:
            raise
        results.note(f"{make.name} is absent: {error}")
        return None


def _compare(results: Results, case: Case, servers: list[Server], run: Run) -> None:
    present = list(servers)
    if case.fill:
        present = _each(results, case.title, present, lambda server: _fill(case, server))
    present = _each(results, case.title, present, lambda server: _warm_up(results, case, server, run))
    for number in range(run.rounds):

        def measured(server: Server) -> None:
            outcome = _turn(results, case, server, run.seconds)
            for place, measure in enumerate(case.measures):
                row = results.row(case.title, measure.name, measure.unit, measure.requirements)
                busy = None if place else outcome.busy
                row.add(server.name, measure.of(outcome), outcome.others_share, busy)

        present = _each(results, case.title, present[::-1] if number else present, measured)


def _each(
    results: Results, title: str, servers: Sequence[Server], do: Callable[[Server], None]
) -> list[Server]:
    """Do it with each server; those that did not fail. Raises FAILURES of Tidelog."""
    left = []
    for server in servers:
        try:
            do(server)
        except FAILURES as error:
            if server.name == SUBJECT:
                raise
            results.note(f"{server.name} is absent from {title}: {error}")
        else:
            left.append(server)
    return left


def _warm_up(results: Results, case: Case, server: Server, run: Run) -> None:
    """Turns that do not count, until the server is warm."""
    taken: list[float] = []
    while not is_warm(taken):
        if len(taken) == run.most_warm_up_turns:
            last = ", ".join(f"{each:.3g}" for each in taken[-_WARM_TURNS:])
            results.note(
                f"{server.name} was not warm in {case.title} after {len(taken)} turns, the last three took"
                f" {last} µs of its processor"
            )
            return
        taken.append(_cpu_us(_turn(results, case, server, run.seconds)))


def is_warm(taken: Sequence[float]) -> bool:
    """Whether the last three turns, by processor time per record, differ by less than 5 %."""
    last = taken[-_WARM_TURNS:]
    return len(last) == _WARM_TURNS and max(last) <= min(last) * _WARM_RATIO


def _filled_topic(case: Case) -> str:
    return f"{TOPIC}-{'-'.join(map(str, case.fill.values()))}"


def _fill(case: Case, server: Server) -> None:
    """Make the topic of the case, unless an earlier case did."""
    topic = _filled_topic(case)
    with Wire(server.port) as wire:
        wire.create_topic(topic, replicas=server.replicas)
        is_filled = wire.end_offset(topic) > 0
    if not is_filled:
        run_load(server, "raw_load", topic=topic, **case.fill)


def _turn(results: Results, case: Case, server: Server, seconds: float) -> Outcome:
    options = {**case.options, **({"seconds": seconds} if case.is_timed else {})}
    partitions = int(str(options.get("partitions", 1)))
    if case.fill:
        return run_load(server, case.load, topic=_filled_topic(case), **options)
    with new_topic(server, partitions) as topic:
        outcome = run_load(server, case.load, topic=topic, **options)
        with Wire(server.port) as wire:
            stored = wire.end_offset(topic, partitions)
    acknowledged = outcome.numbers.get("acknowledged", stored)
    if stored != acknowledged:
        if server.name == SUBJECT:
            raise LoadError(f"{case.title}: {acknowledged:.0f} records were acknowledged and {stored} stored")
        results.note(f"{server.name} acknowledged other records than it stored in {case.title}.")
    return outcome


@contextmanager
def new_topic(server: Server, partitions: int = 1) -> Iterator[str]:
    """A new topic, on a disk that has nothing left to write, until the end of the block."""
    topic = f"{TOPIC}-{next(_numbers)}"
    os.sync()
    with Wire(server.port) as wire:
        wire.create_topic(topic, partitions, server.replicas)
    try:
        yield topic
    finally:
        # A server that has ended must not hide an earlier error.
        with suppress(WireError, OSError), Wire(server.port) as wire:
            wire.delete_topic(topic)
