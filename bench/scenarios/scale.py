"""Scale and cost of idempotence: a million producers, its price in throughput, the start after a crash.

Each row is beside a reference of its own, named in its scenario. Measured once a run, not once a round: each
part takes its own rounds where it compares.
"""

import shutil
from pathlib import Path

from bench.results import REFERENCE, Results
from bench.scenarios import idempotence, producers, recovery

PEERS = (REFERENCE,)
TITLE = "Scale and cost of idempotence: each beside its reference"


def measure(results: Results, folder: Path) -> None:
    """Everything in `folder`, which is gone afterwards, whatever happens. Raises as its parts do."""
    for part in (producers, idempotence, recovery):
        try:
            folder.mkdir(parents=True)
            part.measure(results, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
