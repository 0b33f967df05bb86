"""Many connections, partitions and groups, beside Tansu and Apache Kafka, and beside half as many of each.

Tidelog at half the size is the reference of growth. Tansu's in-memory engine parks a join for longer than a
bench can wait, so of Tansu only what needs no groups is measured. Kafka is left out, with the reason in a
note, where its jars or a Java cannot be had.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from bench.loads.process import LoadError, run_load
from bench.results import REFERENCE, SUBJECT, Requirement, Results
from bench.targets.kafka import Kafka
from bench.targets.maven import ConnectorError
from bench.targets.process import Target, TargetError
from bench.targets.tansu import Tansu
from bench.targets.tidelog import Tidelog
from tidelog.pipeline.spark.java import JavaNotFoundError

PEERS = ("tansu", "kafka", REFERENCE)
TITLE = "Connections, partitions and groups; the reference is Tidelog with half of each"
SIZE = 100
SCENARIO = "1,000 connections, 200 groups, 10,000 partitions"
_LINEAR = (Requirement(2.4, REFERENCE, at_least=False),)
_FLAT = (Requirement(1.3, REFERENCE, at_least=False),)
MEASURES = (
    ("create_s", "all partitions are created", "s", ()),
    ("create_cpu_s", "all partitions are created, CPU", "s", _LINEAR),
    ("metadata_cpu_s", "every connection asks for a topic, CPU", "s", _LINEAR),
    ("join_s", "all groups are joined", "s", ()),
    ("join_cpu_s", "all groups are joined, CPU", "s", _LINEAR),
    ("commits_per_s", "commits of ten offsets", "1/s", ()),
    ("commit_cpu_us", "a commit of ten offsets, CPU", "µs", _FLAT),
    ("rebalance_ms", "a rebalance of 100 members", "ms", ()),
    ("rebalance_cpu_ms", "a rebalance of 100 members, CPU", "ms", _LINEAR),
    ("resident_mb", "resident", "MB", _LINEAR),
    ("restart_s", "start after kill -9", "s", ()),
    ("restart_cpu_s", "start after kill -9, CPU", "s", _LINEAR),
    ("p99_ms", "a client alone, p99", "ms", ()),
    ("p99_beside_ms", "beside one that reads nothing, p99", "ms", ()),
    ("slow_reader_mb", "memory of that one", "MB", (Requirement(100, at_least=False),)),
)
"""CPU time is judged, because it hardly depends on what else the machine does."""


def measure(results: Results, folder: Path) -> None:
    """Once, in `folder`, which is gone afterwards. Raises LoadError, TargetError of Tidelog; a peer that does
    not get through is a note.
    """
    for name, target, size in _targets(results, folder):
        try:
            numbers = _measured(target, size, is_tansu=name == Tansu.name)
        except (LoadError, TargetError) as error:
            if name in (SUBJECT, REFERENCE):
                raise
            results.notes.append(f"{name} did not get through: {error}")
            continue
        finally:
            shutil.rmtree(target.folder, ignore_errors=True)
        for key, measure_name, unit, required in MEASURES:
            if key in numbers:
                results.row(SCENARIO, measure_name, unit, required).add(name, numbers[key])


def _measured(target: Target, size: int, *, is_tansu: bool) -> dict[str, float]:
    with target:
        options = ("--pid", target.pid, "--size", size, *(("--without-groups",) if is_tansu else ()))
        numbers = run_load(target, "groups_load", *options).numbers
    if not is_tansu:  # It keeps nothing.
        with target:
            numbers |= {"restart_s": target.seconds_to_ready, "restart_cpu_s": target.cpu_seconds()}
    return numbers


def _targets(results: Results, folder: Path) -> Iterable[tuple[str, Target, int]]:
    settings = ("group.initial.rebalance.delay.ms=0",)
    yield REFERENCE, Tidelog(folder / "half", settings=settings), SIZE // 2
    yield SUBJECT, Tidelog(folder / "whole", settings=settings), SIZE
    yield Tansu.name, Tansu(folder / Tansu.name), SIZE
    try:
        kafka = Kafka(folder / Kafka.name)
    except (ConnectorError, JavaNotFoundError) as error:
        results.notes.append(f"Apache Kafka is left out: {error}")
    else:
        yield Kafka.name, kafka, SIZE
