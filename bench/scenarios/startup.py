"""Starts, on an empty folder and after kill -9, and the memory of a server that is idle.

A start is measured from the command to the first answered metadata request. After a kill it ends with the
answer for the partition, in which all acknowledged records must be present.
"""

import shutil
import time

from bench.comparison import FAILURES, Run
from bench.loads.process import LoadError, run_load
from bench.machine import Watch
from bench.results import SUBJECT, Requirement, Results
from bench.targets.kafka import Kafka
from bench.targets.process import Target, resident_bytes
from bench.targets.tansu import Tansu
from bench.targets.tidelog import Tidelog
from bench.wire import TOPIC, Wire

_IDLE_S = 2.0
_FILL = {"requests": 1000, "records_per_batch": 1000, "value_bytes": 1000}
_EMPTY, KILLED = "start on an empty folder", "start after kill -9, 1 GB in one partition"


def measure(run: Run) -> Results:
    """Each target in each round. Raises FAILURES of Tidelog."""
    results = Results((Kafka.name, Tansu.name), "Starts and idle memory")
    present: list[type[Target]] = [Tidelog, Kafka, Tansu]
    for _ in range(run.rounds):
        for make in tuple(present):
            try:
                _measure(results, make(run.folder / make.name))
            except FAILURES as error:
                if make.name == SUBJECT:
                    raise
                present.remove(make)
                results.note(f"{make.name} is absent: {error}")
            shutil.rmtree(run.folder / make.name, ignore_errors=True)
    return results


def _measure(results: Results, target: Target) -> None:
    keeps = target.name != Tansu.name
    watch = Watch()
    with target:
        watch.add(target.pid)
        row = results.row(_EMPTY, "command to first answer", "s", (Requirement(0.5, at_least=False),))
        row.add(target.name, target.seconds_to_ready, watch.others_share())
        time.sleep(_IDLE_S)
        memory = results.row("idle memory", "resident", "MB", (Requirement(80, at_least=False),))
        memory.add(target.name, resident_bytes(target.pid) / 1e6)
        if keeps:
            with Wire(target.port) as wire:
                wire.create_topic()
            acknowledged = run_load(target, "raw_load", topic=TOPIC, **_FILL).numbers["acknowledged"]
        # Leaving the block kills it with SIGKILL.
    if not keeps:
        return
    watch, begin = Watch(), time.perf_counter()
    with target:
        watch.add(target.pid)
        with Wire(target.port) as wire:
            wire.create_topic()
            stored = wire.end_offset()
        seconds, cpu_s = time.perf_counter() - begin, target.cpu_seconds()
        others = watch.others_share()
    if stored != acknowledged:
        raise LoadError(f"expected {acknowledged} acknowledged records after kill -9, got {stored}")
    results.row(KILLED, "command to first answer", "s").add(target.name, seconds, others)
    results.row(KILLED, "processor time", "s").add(target.name, cpu_s)
