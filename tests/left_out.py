"""Programs that some tests need and a machine may lack: those tests are left out, and the summary names them.

Owns the list. A test says what it needs with a marker, `@pytest.mark.needs_etcd`. Invariant: nothing is left
out in silence.
"""

import shutil
from typing import Final

import pytest

PROGRAMS: Final = {"needs_etcd": ("etcd", "apt-get install etcd-server")}
"""By the marker: the program, and how to get it."""


def missing() -> dict[str, tuple[str, str]]:
    """Those of PROGRAMS that are not here."""
    return {marker: each for marker, each in PROGRAMS.items() if shutil.which(each[0]) is None}


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that cannot run here."""
    left = [item for item in items if any(item.get_closest_marker(marker) for marker in missing())]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def name_them(reporter: pytest.TerminalReporter) -> None:
    """A line for each program that is missing."""
    for program, how in missing().values():
        reporter.write_line(f"left out: tests that need {program} ({how})", yellow=True)
