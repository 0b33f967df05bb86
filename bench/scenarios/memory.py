"""Memory of a server that has started, holds one empty topic and has been idle for two seconds."""

import time
from collections.abc import Sequence

from bench.results import Requirement, Results
from bench.targets.process import Target

IDLE_S = 2.0


def measure(results: Results, targets: Sequence[Target]) -> None:
    """One round, on targets that have just been started."""
    time.sleep(IDLE_S)
    resident_row = results.row("idle memory", "resident", "MB", (Requirement(80, at_least=False),))
    share_row = results.row("idle memory", "proportional", "MB")
    for target in targets:
        resident, share = target.memory_bytes()
        resident_row.add(target.name, resident / 1e6)
        share_row.add(target.name, share / 1e6)
