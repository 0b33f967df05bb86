"""One million live producer ids on one partition: memory, snapshot, and the time of a check.

The time of a check is compared with the time at a thousand producers, in the same process, in turns.
"""

from bench.comparison import Run
from bench.loads.process import run_program
from bench.loads.producers_load import POPULATIONS
from bench.results import REFERENCE, SUBJECT, Requirement, Results

BYTES_A_PRODUCER = 300
_FLAT = (Requirement(2, REFERENCE, at_least=False),)
_LOADS = (
    ("uniform", "a check, uniform random", _FLAT),
    ("skewed", "a check, k-th busiest 1/k", _FLAT),
)


def measure(run: Run) -> Results:
    """Once. Raises LoadError."""
    results = Results((REFERENCE,), "A million producer ids on one partition")
    numbers = run_program("producers_load", folder=str(run.folder))
    most = f"{POPULATIONS[-1]:,} producers on a partition"
    weight = (Requirement(BYTES_A_PRODUCER, at_least=False),)
    results.row(most, "resident, five batches each", "bytes each", weight).add(
        SUBJECT, numbers["bytes_a_producer"]
    )
    results.row(most, "snapshot", "MB").add(SUBJECT, numbers["snapshot_bytes"] / 1e6)
    results.row(most, "snapshot, durable write", "s").add(SUBJECT, numbers["write_s"])
    results.row(most, "snapshot, load", "s").add(SUBJECT, numbers["load_s"])
    for population in POPULATIONS[1:]:
        for load, measure_name, required in _LOADS:
            title = f"{population:,} beside {POPULATIONS[0]:,} producers"
            row = results.row(title, measure_name, "µs", required)
            values, references = numbers[f"{load}_us_{population}"], numbers[f"{load}_us_{POPULATIONS[0]}"]
            for value, reference in zip(values, references, strict=True):
                row.add(SUBJECT, value)
                row.add(REFERENCE, reference)
    return results
