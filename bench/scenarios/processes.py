"""A broker of one, two and four processes (`tidelog serve --processes N`): what a request costs, a start,
memory, 4,000 idle partitions, and how long a killed process is missing.

The load is one program or four, each with a topic of its own, whose one partition the processes have in
turn. Processor time and memory are those of all processes of a broker. Two comparisons say what several
processes cost. With one program, one process of several has the load that one broker has, and cores enough:
what the others do beside it counts in full. With four programs there are as many unrelated brokers of one
process as peers: they get as little of the load each, so they write as few batches per step and sync, and
they evict each other from the same caches. What both lose against one process is not a cost of the design.
A note says what follows for more cores than this machine has.
"""

import os
import shutil
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.comparison import FAILURES, Run
from bench.loads.process import LoadError, run_program
from bench.machine import Watch
from bench.results import SUBJECT, Requirement, Results
from bench.targets.kafka import FlushedKafka, Kafka
from bench.targets.process import Target, cpu_seconds, resident_bytes
from bench.targets.tidelog import Tidelog
from bench.wire import TOPIC, Wire, WireError, until
from faults.process import event_of
from faults.process_tree import descendants
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

_KAFKA_WARM_UP_S = 12.0
"""A request takes ten times the processor before Java has compiled what runs often."""
_IDLE_S = 2.0
_until = partial(until, what="a process", limit_s=120.0, poll_s=0.001)
_PROGRAMS = (1, 4)
_RECORDS = (1, 200)
_CPU = "server CPU"
_IDLE_TOPICS, _PARTITIONS_EACH = 40, 100
_WATCHED_S = 10.0
_METADATA_REQUESTS = 5
_CORES = 8
"""Of the machine for which the note computes."""


class _Processes(Tidelog):
    """A broker of `count` processes."""

    count: int

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.settings = (f"processes={self.count}",)

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, _pids(self)))

    def serving_pids(self) -> list[int]:
        """Of the processes that serve, in the order of their ids."""
        with self._output.open() as output:
            started = next(event for line in output if (event := event_of(line)) and event.get("processes"))
        return [int(each["pid"]) for each in started["processes"]]


def _of(count: int, name: str) -> type[_Processes]:
    return type(name, (_Processes,), {"name": name, "count": count})


_ONE, _TWO, _FOUR = _of(1, SUBJECT), _of(2, "2 processes"), _of(4, "4 processes")


class _Member(NamedTuple):
    """What takes part in the loads under one name: one server, or unrelated ones that share the load."""

    name: str
    servers: Sequence[Target]
    warm_up_s: float = 1.0

    def pids(self) -> list[int]:
        return [pid for each in self.servers for pid in _pids(each)]

    def places(self) -> list[tuple[Target, Any]]:
        """The brokers that the metadata of each server names."""
        return [(server, broker) for server in self.servers for broker in _brokers(server)]


def _unrelated(count: int) -> str:
    return f"{count} unrelated"


_MAKES: tuple[type[_Processes], ...] = (_ONE, _TWO, _FOUR)
_FEW = tuple(make for make in _MAKES if make.count > 1)


def measure(run: Run) -> Results:
    """Each broker in each round, in turns. Raises FAILURES."""
    unrelated = (_unrelated(make.count) for make in _FEW)
    peers = (*(make.name for make in _FEW), *unrelated, Kafka.name, FlushedKafka.name)
    results = Results(peers, "One process, two and four")
    for _ in range(run.rounds):
        for make in _MAKES:
            folder = _folder(run, make.name)
            _measure_start(results, make(folder))
            shutil.rmtree(folder, ignore_errors=True)
    for make in (_ONE, _FOUR):
        _measure_idle_partitions(results, make(_folder(run, make.name)))
        shutil.rmtree(_folder(run, make.name), ignore_errors=True)
    with ExitStack() as stack:
        members = _begun(stack, results, run)
        for number in range(run.rounds + 1):
            for member in members[::-1] if number % 2 else members:
                for programs in _PROGRAMS:
                    for records in _RECORDS:
                        seconds = run.seconds if number else member.warm_up_s
                        _measure_load(results if number else None, member, programs, records, seconds)
    for records in _RECORDS:
        _note_cores(results, records)
    return results


def _note_cores(results: Results, records: int) -> None:
    """What `_CORES` processes do on as many cores, by the processor time of one of four at full load."""
    costs = results.rows[_load_name(records, 1), _CPU].ratio(SUBJECT, _FOUR.name)
    if costs is not None:
        results.note(
            f"Computed for {_CORES} cores: one of several processes takes {costs:.2f} × the processor time of"
            f" one process for a request of {records} × 100 B, with all that the others do beside it. So"
            f" {_CORES} processes that have a core and a full load each answer"
            f" {_CORES} / {costs:.2f} = {_CORES / costs:.1f} × as many ({1 / costs:.2f} N)."
        )


def _load_name(records: int, programs: int) -> str:
    return f"requests of {records} × 100 B, 1×5, {programs} program{'s'[: programs > 1]}"


def _folder(run: Run, name: str) -> Path:
    return run.folder / name.replace(" ", "-")


def _begun(stack: ExitStack, results: Results, run: Run) -> list[_Member]:
    """All that take part, started."""
    alone = [
        stack.enter_context(_ONE(_folder(run, f"{SUBJECT} {number}"))) for number in range(_FEW[-1].count)
    ]
    members = [_Member(SUBJECT, alone[:1])]
    members += [_Member(make.name, [stack.enter_context(make(_folder(run, make.name)))]) for make in _FEW]
    members += [_Member(_unrelated(make.count), alone[: make.count]) for make in _FEW]
    for kafka in (Kafka, FlushedKafka):
        try:
            server = stack.enter_context(kafka(_folder(run, kafka.name)))
        except FAILURES as error:
            results.note(f"{kafka.name} is absent: {error}")
        else:
            members.append(_Member(kafka.name, [server], _KAFKA_WARM_UP_S / len(_PROGRAMS) / len(_RECORDS)))
    return members


def _measure_start(results: Results, broker: _Processes) -> None:
    with broker:
        row = results.row("start on an empty folder", "command to first answer", "s")
        row.add(broker.name, broker.seconds_to_ready)
        _until(lambda: len(_brokers(broker)) == broker.count)
        time.sleep(_IDLE_S)
        for measure, of in (
            ("shared pages once", _proportional_bytes),
            ("as each process has it", resident_bytes),
        ):
            megabytes = sum(map(of, _pids(broker))) / 1e6
            memory = results.row("idle memory", f"resident, {measure}", "MB")
            memory.add(broker.name, megabytes)
            if broker.count > 1:
                further = megabytes - (memory.middle(SUBJECT) or 0.0)
                each = results.row("idle memory", f"{measure}: each further process", "MB")
                each.add(broker.name, further / (broker.count - 1))
        if broker.count > 1:
            _measure_kill(results, broker)


def _measure_idle_partitions(results: Results, broker: _Processes) -> None:
    """Of a broker with many unused partitions."""
    total = _IDLE_TOPICS * _PARTITIONS_EACH
    case = f"{total:,} idle partitions"

    def all_are_led() -> bool:
        with Wire(broker.port) as wire:
            topics = wire.metadata().topics
        led = [each.leader_id >= 0 for topic in topics for each in topic.partitions]
        return len(led) == total and all(led)

    with broker:
        began = time.perf_counter()
        with Wire(broker.port) as wire:
            for number in range(_IDLE_TOPICS):
                _ask_for(wire, f"{TOPIC}-idle-{number}", num_partitions=_PARTITIONS_EACH)
        _until(all_are_led)
        results.row(case, "creation", "s").add(broker.name, time.perf_counter() - began)
    with broker:  # It was killed.
        _until(all_are_led)
        ready_s = time.perf_counter() - broker.started_at
        results.row(case, "start after kill -9, until each has a leader", "s").add(broker.name, ready_s)
        time.sleep(_IDLE_S)
        before = broker.cpu_seconds()
        time.sleep(_WATCHED_S)
        idle = (broker.cpu_seconds() - before) / _WATCHED_S * 1000
        results.row(case, "idle CPU", "ms/s").add(broker.name, idle)
        memory = sum(map(_proportional_bytes, _pids(broker))) / 1e6
        results.row(case, "resident, shared pages once", "MB").add(broker.name, memory)
        before = broker.cpu_seconds()
        with Wire(broker.port) as wire:
            for _ in range(_METADATA_REQUESTS):
                wire.metadata()
        metadata_us = (broker.cpu_seconds() - before) * 1e6 / _METADATA_REQUESTS / total
        results.row(case, "Metadata of all", "µs/partition").add(broker.name, metadata_us)


def _measure_kill(results: Results, broker: _Processes) -> None:
    """From kill -9 of a process to the answer of its partition."""
    victim = _brokers(broker)[-1]
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
    results: Results | None, member: _Member, programs: int, records: int, seconds: float
) -> None:
    brokers = member.places()
    # From the last on, so that one program does not meet the first process, which alone has the controller.
    places = [brokers[-1 - number % len(brokers)] for number in range(programs)]
    topics = [_create(server, broker.node_id) for server, broker in places]
    os.sync()
    before, watch = sum(map(cpu_seconds, member.pids())), Watch(member.pids())

    def load(place: tuple[Target, Any], topic: str) -> dict[str, Any]:
        options = {"in_flight": 5, "seconds": seconds, "records_per_batch": records}
        return run_program("raw_load", port=place[1].port, topic=topic, **options)

    with ThreadPoolExecutor(programs) as threads:
        outcomes = list(threads.map(load, places, topics))
    cpu_s, others = sum(map(cpu_seconds, member.pids())) - before, watch.others_share()
    acknowledged = sum(outcome["acknowledged"] for outcome in outcomes)
    stored = 0
    for (_, broker), topic in zip(places, topics, strict=True):
        with Wire(broker.port) as wire:
            stored += wire.end_offset(topic)
            wire.delete_topic(topic)
    if stored != acknowledged:
        raise LoadError(f"{member.name}: {acknowledged:.0f} records were acknowledged and {stored} stored")
    if results is None:
        return
    requests = acknowledged / records
    name = _load_name(records, programs)
    rate = sum(outcome["records"] / outcome["seconds"] for outcome in outcomes) / records
    results.row(name, "rate", "requests/s").add(member.name, rate, others)
    broker_us = cpu_s * 1e6 / requests
    results.row(name, _CPU, "µs/request", _requirements(programs)).add(member.name, broker_us, others)
    load_us = sum(outcome["cpu_seconds"] for outcome in outcomes) * 1e6 / requests
    results.row(name, "CPU of the programs", "µs/request").add(member.name, load_us, others)
    if programs > 1:
        cores = os.cpu_count() or 1
        allowed = cores * 1e6 / (broker_us + load_us)
        if member.name == SUBJECT:
            allowed = min(allowed, 1e6 / broker_us)
        row = results.row(name, "rate, of what this machine's cores allow", "share")
        row.add(member.name, rate / allowed, others)


def _requirements(programs: int) -> list[Requirement]:
    """Against one process where one has the whole load, else against as many unrelated brokers."""
    return [
        Requirement(1.1, SUBJECT if programs == 1 else _unrelated(make.count), at_least=False, of=make.name)
        for make in _FEW
    ]


_numbers = iter(range(1 << 30))


def _create(broker: Target, node_id: int) -> str:
    """A topic whose one partition a process has."""
    name = f"{TOPIC}-{next(_numbers)}"
    with Wire(broker.port) as wire:
        _ask_for(wire, name, assignments=[{"partition_index": 0, "broker_ids": [node_id]}])
    (port,) = (each.port for each in _brokers(broker) if each.node_id == node_id)

    def is_served() -> bool:
        with Wire(port) as wire:
            return wire.end_offset(name) == 0

    _until(is_served)
    return name


def _ask_for(wire: Wire, name: str, **options: object) -> None:
    """Let a topic be made, which other processes may serve a little later. Raises WireError."""
    topic = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": [], "configs": []}
    values = {"topics": [{**topic, **options}], "timeout_ms": 30_000}
    (result,) = wire.ask(ApiKey.CREATE_TOPICS, 4, values).topics
    if result.error_code != ErrorCode.NONE:
        raise WireError(f"CREATE_TOPICS {name}: error {result.error_code}")


def _brokers(server: Target) -> list[Any]:
    """What the metadata says of each process, in the order of their ids."""
    with Wire(server.port) as wire:
        return sorted(wire.metadata().brokers, key=lambda broker: broker.node_id)


def _pids(server: Target) -> list[int]:
    return [server.pid, *descendants(server.pid)]


def _proportional_bytes(pid: int) -> int:
    """Resident memory, of which each page counts in parts where several processes share it."""
    lines: Sequence[str] = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
