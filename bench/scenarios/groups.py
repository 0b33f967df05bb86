"""Many connections, partitions and groups, beside Apache Kafka and Tansu.

Tansu's in-memory engine delays a join for longer than a bench can wait, so only the parts without groups are
measured with Tansu.
"""

import shutil
from pathlib import Path

from bench.comparison import FAILURES, Run
from bench.loads.process import run_load
from bench.results import SUBJECT, Requirement, Results
from bench.targets.kafka import Kafka
from bench.targets.process import Target
from bench.targets.tansu import Tansu
from bench.targets.tidelog import Tidelog

SIZE = 100
SCENARIO = "1,000 connections, 200 groups, 10,000 partitions"
_LESS = (Requirement(1, Kafka.name, at_least=False),)
MEASURES = (
    ("create_s", "all partitions are created", "s", ()),
    ("create_cpu_s", "all partitions are created, CPU", "s", _LESS),
    ("metadata_cpu_s", "every connection asks for a topic, CPU", "s", _LESS),
    ("join_s", "all groups are joined", "s", ()),
    ("join_cpu_s", "all groups are joined, CPU", "s", _LESS),
    ("commits_per_s", "commits of ten offsets", "1/s", ()),
    ("commit_cpu_us", "a commit of ten offsets, CPU", "µs", _LESS),
    ("rebalance_ms", "a rebalance of 100 members", "ms", ()),
    ("rebalance_cpu_ms", "a rebalance of 100 members, CPU", "ms", _LESS),
    ("resident_mb", "resident", "MB", _LESS),
    ("restart_s", "start after kill -9", "s", ()),
    ("restart_cpu_s", "start after kill -9, CPU", "s", _LESS),
)
"""CPU time is judged, because it hardly depends on what else the machine does."""


class _Tidelog(Tidelog):
    settings = ("group.initial.rebalance.delay.ms=0",)


def measure(run: Run) -> Results:
    """Once. Raises FAILURES of Tidelog."""
    results = Results((Kafka.name, Tansu.name), "Connections, partitions and groups")
    for make in (_Tidelog, Kafka, Tansu):
        try:
            numbers = _measured(make, run.folder / make.name)
        except FAILURES as error:
            if make.name == SUBJECT:
                raise
            results.note(f"{make.name} is absent: {error}")
            continue
        for key, name, unit, required in MEASURES:
            if key in numbers:
                results.row(SCENARIO, name, unit, required).add(make.name, numbers[key])
    return results


def _measured(make: type[Target], folder: Path) -> dict[str, float]:
    target, keeps = make(folder), make is not Tansu
    with target:
        numbers = run_load(target, "groups_load", pid=target.pid, size=SIZE, with_groups=keeps).numbers
    if keeps:
        with target:
            numbers |= {"restart_s": target.seconds_to_ready, "restart_cpu_s": target.cpu_seconds()}
    shutil.rmtree(folder)
    return numbers
