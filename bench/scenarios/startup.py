"""From the command to the first answered metadata request, on an empty folder."""

import shutil
from collections.abc import Sequence

from bench.results import Requirement, Results
from bench.targets.process import Target

_STARTS_A_ROUND = 2


def measure(results: Results, targets: Sequence[Target]) -> None:
    """One round: start and kill each target in turn. Raises TargetError."""
    row = results.row("start", "command to first answer", "s", (Requirement(0.5, at_least=False),))
    for _ in range(_STARTS_A_ROUND):
        for target in targets:
            with target:
                row.add(target.name, target.seconds_to_ready)
            shutil.rmtree(target.folder)
