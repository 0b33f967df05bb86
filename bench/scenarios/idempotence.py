"""What idempotence costs the broker: the same prepared requests with it and, as the reference, without
it.

Five requests are in flight. A ratio is of two turns against the two around or between them (A B B A), so
that a drift meets both alike; the row's is the median of many, and a note says how far that can be trusted.
The broker's files are in memory where there is enough of it: the work is the same, and the disk's moods,
larger than the difference that is looked for, are left out.
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.comparison import Run
from bench.loads.pair_load import IDEMPOTENT, PLAIN
from bench.loads.process import run_load
from bench.results import REFERENCE, SUBJECT, Requirement, Results
from bench.statistics import median, median_interval, ratios
from bench.targets.tidelog import Tidelog

_MEMORY = Path("/dev/shm")
_NEEDED_BYTES = 4 << 30
_REQUIRED = (Requirement(0.97, REFERENCE),)
CASES = {
    "16 KB batches": {"requests": 50, "records_a_batch": 16, "value_bytes": 1000, "turns": 400},
    "1 MB batches": {"requests": 8, "records_a_batch": 1000, "value_bytes": 1000, "turns": 60},
    "one 100-byte record": {"requests": 100, "records_a_batch": 1, "value_bytes": 100, "turns": 240},
}


def measure(run: Run) -> Results:
    """Once, on a broker per case, for what all write together would not fit. Raises FAILURES."""
    results = Results((REFERENCE,), "Idempotent beside not, prepared requests with five in flight")
    has_memory = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _NEEDED_BYTES
    for name, options in CASES.items():
        with (
            tempfile.TemporaryDirectory(dir=_MEMORY if has_memory else run.folder) as folder,
            Tidelog(Path(folder) / SUBJECT) as broker,
        ):
            note(results, name, options, run_load(broker, "pair_load", pid=broker.pid, **options).numbers)
    return results


def note(
    results: Results, name: str, options: Mapping[str, int], numbers: Mapping[str, Sequence[float]]
) -> None:
    """Put what `pair_load` printed into rows: a value per two turns of a side."""
    rate = results.row(name, "rate", "requests/s", _REQUIRED if options["value_bytes"] == 1000 else ())
    cpu = results.row(name, "server CPU", "µs/request")
    for who, side in ((SUBJECT, IDEMPOTENT), (REFERENCE, PLAIN)):
        for seconds, cpu_s in zip(_folded(numbers[side]), _folded(numbers[f"{side}_cpu"]), strict=True):
            rate.add(who, options["requests"] / seconds)
            cpu.add(who, cpu_s / options["requests"] * 1e6)
    rounds = ratios(rate.values[SUBJECT], rate.values[REFERENCE])
    low, high = median_interval(rounds)
    results.note(f"{name}: {median(rounds):.3f}, with 95% certainty {low:.3f} to {high:.3f}")


def _folded(turns: Sequence[float]) -> list[float]:
    """The mean of each two turns of a side: the first and the last, or both in the middle, of A B B A."""
    return [(one + other) / 2 for one, other in zip(turns[::2], turns[1::2], strict=True)]
