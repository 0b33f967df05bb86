"""A broker of one, two and four processes (`tidelog serve --processes N`): what a request costs, a start,
memory, and how long a killed process is missing.

Every broker gets the same load: four programs, each with a topic of its own, whose one partition the
processes have in turn. Processor time and memory are those of all processes of a broker. On a machine with
few cores the programs of the load take what the broker could use, so the rate says little; the processor time
of a request does not depend on that.
"""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from bench.comparison import Run
from bench.loads.process import LoadError, run_program
from bench.machine import Watch
from bench.results import SUBJECT, Requirement, Results
from bench.targets.process import cpu_seconds
from bench.targets.tidelog import Tidelog
from bench.wire import TOPIC, Wire, WireError
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

_IDLE_S = 2.0
_LOADS = 4
_LIMIT_S = 60.0
_POLL_S = 0.001
_CASES: Mapping[str, Mapping[str, int]] = {
    "one-record requests 1×5, four programs": {"records_per_batch": 1},
    "200 records of 100 B 1×5, four programs": {"records_per_batch": 200},
}


class _Processes(Tidelog):
    """A broker of `count` processes."""

    count = 1

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.settings = (f"processes={self.count}",)

    def pids(self) -> list[int]:
        """All its processes."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *map(int, children)]

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, self.pids()))

    def proportional_bytes(self) -> int:
        """Resident memory, of which each page counts once however many processes share it."""
        return sum(map(_proportional_bytes, self.pids()))

    def brokers(self) -> list[Any]:
        """What the metadata says of each process, in the order of their ids."""
        with Wire(self.port) as wire:
            return sorted(wire.metadata().brokers, key=lambda broker: broker.node_id)

    def serving_pids(self) -> list[int]:
        """Of the processes that serve, in the order of their ids."""
        with self._output.open() as output:
            started = next(event for line in output if (event := _event(line)).get("processes"))
        return [int(each["pid"]) for each in started["processes"]]


class _One(_Processes):
    name = SUBJECT


class _Two(_Processes):
    name = "2 processes"
    count = 2


class _Four(_Processes):
    name = "4 processes"
    count = 4


def measure(run: Run) -> Results:
    """Each broker in each round, in turns. Raises FAILURES."""
    results = Results((_Two.name, _Four.name), "One process, two and four")
    makes: tuple[type[_Processes], ...] = (_One, _Two, _Four)
    for _ in range(run.rounds):
        for make in makes:
            folder = run.folder / make.name.replace(" ", "-")
            _measure_start(results, make(folder))
            shutil.rmtree(folder, ignore_errors=True)
    with ExitStack() as stack:
        brokers = [stack.enter_context(make(run.folder / make.name.replace(" ", "-"))) for make in makes]
        for number in range(run.rounds + 1):
            for broker in brokers[::-1] if number % 2 else brokers:
                for case, options in _CASES.items():
                    _measure_load(results if number else None, broker, case, options, run.seconds)
    return results


def _measure_start(results: Results, broker: _Processes) -> None:
    with broker:
        row = results.row("start on an empty folder", "command to first answer", "s")
        row.add(broker.name, broker.seconds_to_ready)
        _until(lambda: len(broker.brokers()) == broker.count)
        time.sleep(_IDLE_S)
        memory = results.row("idle memory", "resident, shared pages once", "MB")
        memory.add(broker.name, broker.proportional_bytes() / 1e6)
        each = results.row("idle memory", "of it for each further process", "MB")
        if broker.count > 1:
            alone = results.row("idle memory", "resident, shared pages once", "MB").middle(SUBJECT) or 0.0
            further = broker.proportional_bytes() / 1e6 - alone
            each.add(broker.name, further / (broker.count - 1))
            _measure_kill(results, broker)


def _measure_kill(results: Results, broker: _Processes) -> None:
    """From kill -9 of a process to the answer of its partition."""
    victim = broker.brokers()[-1]
    topic = _create(broker, victim.node_id)
    with Wire(victim.port) as wire:
        _until(lambda: wire.end_offset(topic) == 0)
    began = time.perf_counter()
    os.kill(broker.serving_pids()[-1], signal.SIGKILL)

    def serves() -> bool:
        with Wire(victim.port) as wire:
            return wire.end_offset(topic) == 0

    _until(serves)
    row = results.row("kill -9 of one process", "until its partition answers", "s")
    row.add(broker.name, time.perf_counter() - began)


def _measure_load(
    results: Results | None, broker: _Processes, case: str, options: Mapping[str, int], seconds: float
) -> None:
    brokers = broker.brokers()
    places = [brokers[number % len(brokers)] for number in range(_LOADS)]
    topics = [_create(broker, place.node_id) for place in places]
    os.sync()
    before, watch = broker.cpu_seconds(), Watch(broker.pids())
    with ThreadPoolExecutor(_LOADS) as threads:
        outcomes = list(
            threads.map(
                lambda place, topic: run_program(
                    "raw_load", port=place.port, topic=topic, in_flight=5, seconds=seconds, **options
                ),
                places,
                topics,
            )
        )
    cpu_s, others = broker.cpu_seconds() - before, watch.others_share()
    acknowledged = sum(outcome["acknowledged"] for outcome in outcomes)
    stored = 0
    for place, topic in zip(places, topics, strict=True):
        with Wire(place.port) as wire:
            stored += wire.end_offset(topic)
            wire.delete_topic(topic)
    if stored != acknowledged:
        raise LoadError(f"{broker.name}: {acknowledged:.0f} records were acknowledged and {stored} stored")
    if results is None:
        return
    rate = sum(outcome["records"] / outcome["seconds"] for outcome in outcomes)
    results.row(case, "rate", "records/s").add(broker.name, rate, others)
    cost = results.row(
        case,
        "server CPU",
        "µs/record",
        [Requirement(1.1, SUBJECT, at_least=False, of=each.name) for each in (_Two, _Four)],
    )
    cost.add(broker.name, cpu_s * 1e6 / acknowledged, others)


_numbers = iter(range(1 << 30))


def _create(broker: _Processes, node_id: int) -> str:
    """A topic whose one partition a process has."""
    name = f"{TOPIC}-{next(_numbers)}"
    assignments = [{"partition_index": 0, "broker_ids": [node_id]}]
    topic = {"name": name, "num_partitions": -1, "replication_factor": -1}
    values = {"topics": [{**topic, "assignments": assignments, "configs": []}], "timeout_ms": 30_000}
    with Wire(broker.port) as wire:
        (result,) = wire.ask(ApiKey.CREATE_TOPICS, 2, values).topics
    if result.error_code != ErrorCode.NONE:
        raise WireError(f"CREATE_TOPICS {name}: error {result.error_code}")
    (port,) = (each.port for each in broker.brokers() if each.node_id == node_id)

    def is_served() -> bool:
        with Wire(port) as wire:
            return wire.end_offset(name) == 0

    _until(is_served)
    return name


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while True:
        with suppress(WireError, OSError):
            if condition():
                return
        if time.monotonic() > deadline:
            raise LoadError(f"waited {_LIMIT_S:g} s for a process")
        time.sleep(_POLL_S)


def _proportional_bytes(pid: int) -> int:
    lines: Sequence[str] = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024


def _event(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}
