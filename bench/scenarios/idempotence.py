"""What idempotence costs: confluent-kafka with it and, as the reference, without it, on one broker.

Both wait for all acks with five requests in flight. They take turns, and the order changes with each pair,
so that neither always finds the disk busy with what the other left.
"""

from pathlib import Path

from bench.loads.process import run_load
from bench.results import REFERENCE, SUBJECT, Requirement, Results
from bench.targets.tidelog import Tidelog

_PAIRS = 8
_SECONDS = 0.8
_VALUE_BYTES = 1000
_REQUIRED = (Requirement(0.97, REFERENCE),)


def turns(pairs: int) -> list[tuple[str, str]]:
    """Who goes first and second in each pair."""
    return [(SUBJECT, REFERENCE) if number % 2 else (REFERENCE, SUBJECT) for number in range(pairs)]


def measure(results: Results, folder: Path) -> None:
    """Once, on a broker of its own. Raises LoadError, TargetError."""
    row = results.row("idempotent beside not, confluent-kafka, 1 KB", "throughput", "MB/s", _REQUIRED)
    with Tidelog(folder / "idempotence") as broker:
        options = ["--value-bytes", _VALUE_BYTES, "--seconds", _SECONDS]
        run_load(broker, "confluent_load", *options)
        for pair in turns(_PAIRS):
            for who in pair:
                how = [] if who == SUBJECT else ["--not-idempotent"]
                numbers = run_load(broker, "confluent_load", *options, *how).numbers
                row.add(who, numbers["records"] * _VALUE_BYTES / numbers["seconds"] / 1e6)
