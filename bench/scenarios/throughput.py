"""confluent-kafka's idempotent producer, acks=all, at full speed: 100-byte and 1 KB records.

Each run is a process of its own. Afterwards the end offset must have grown by what was acknowledged, or the
bench breaks off: a broken broker is not worth measuring. Of the others a row says how much of it they stored.
"""

from collections.abc import Sequence

from bench.loads.process import LoadError, run_load
from bench.results import SUBJECT, Requirement, Results
from bench.targets.process import Target
from bench.wire import Wire

_KILO = (Requirement(1.5, "tansu"), Requirement(0.6, "sink"))
_SIZES: tuple[tuple[str, int, tuple[Requirement, ...]], ...] = (
    ("confluent-kafka, 100-byte records", 100, ()),
    ("confluent-kafka, 1 KB records", 1000, _KILO),
)


def measure(results: Results, targets: Sequence[Target], seconds: float) -> None:
    """One round: each size against each target. Raises LoadError, TargetError."""
    for title, value_bytes, requirements in _SIZES:
        row = results.row(title, "throughput", "MB/s", requirements)
        cpu = results.row(title, "server CPU", "ms/MB")
        for target in targets:
            before = _end_offset(target)
            outcome = run_load(target, "confluent_load", "--value-bytes", value_bytes, "--seconds", seconds)
            records = outcome.numbers["records"]
            megabytes = records * value_bytes / 1e6
            row.add(target.name, megabytes / outcome.numbers["seconds"])
            cpu.add(target.name, outcome.server_cpu_s * 1000 / megabytes)
            if target.creates_topics:
                stored = _end_offset(target) - before
                acknowledged = outcome.numbers["records_with_first"]
                if target.name == SUBJECT and stored != acknowledged:
                    raise LoadError(
                        f"{target.name} acknowledged {acknowledged:.0f} records and stored {stored}"
                    )
                results.row(title, "stored / acknowledged", "").add(target.name, stored / acknowledged)


def _end_offset(target: Target) -> int:
    if not target.creates_topics:
        return 0
    with Wire(target.port) as wire:
        return wire.end_offset()
