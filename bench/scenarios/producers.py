"""One million live producer ids on one partition: memory, snapshot, and the time of a check.

The reference of a check's time is the time at a thousand producers, in the same process and turn by turn.
"""

from pathlib import Path

from bench.loads.process import run_program
from bench.loads.producers_load import POPULATIONS
from bench.results import REFERENCE, SUBJECT, Requirement, Results

BYTES_A_PRODUCER = 300
_FLAT = (Requirement(2, REFERENCE, at_least=False),)


def measure(results: Results, folder: Path) -> None:
    """Once. Raises LoadError."""
    numbers = run_program("producers_load", folder)
    most = f"{POPULATIONS[-1]:,} producers on a partition"
    weight = (Requirement(BYTES_A_PRODUCER, at_least=False),)
    results.row(most, "resident, five batches each", "bytes each", weight).add(
        SUBJECT, numbers["bytes_a_producer"]
    )
    results.row(most, "snapshot", "MB").add(SUBJECT, numbers["snapshot_bytes"] / 1e6)
    results.row(most, "snapshot, durable write", "s").add(SUBJECT, numbers["write_s"])
    results.row(most, "snapshot, load", "s").add(SUBJECT, numbers["load_s"])
    fewest, *larger = (f"check_us_{population}" for population in POPULATIONS)
    for population, key in zip(POPULATIONS[1:], larger, strict=True):
        row = results.row(f"{population:,} beside {POPULATIONS[0]:,} producers", "a check", "µs", _FLAT)
        for value, reference in zip(numbers[key], numbers[fewest], strict=True):
            row.add(SUBJECT, value)
            row.add(REFERENCE, reference)
