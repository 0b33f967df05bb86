"""Programs that some tests need and a machine may lack: those tests are left out, and the summary names them.

Owns the list. Tests are of a folder; where only some of it need the program, they have a marker. Invariants:
nothing is left out in silence; nothing is downloaded. `.ci/run` installs these programs.
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

_ROOT: Final = Path(__file__).parent.parent


class Needed(NamedTuple):
    """A program by each of its names, the package that has it, and the tests that need it."""

    commands: tuple[str, ...]
    package: str
    folder: str
    marker: str = ""

    @property
    def command(self) -> str | None:
        """The path of the program; None where it is missing."""
        return next(filter(None, map(shutil.which, self.commands)), None)

    def is_needed_by(self, item: pytest.Item) -> bool:
        if self.marker:
            return item.get_closest_marker(self.marker) is not None
        return item.path.is_relative_to(_ROOT / self.folder)


CHROMIUM: Final = Needed(("chromium", "chromium-browser", "google-chrome"), "chromium", "tests/console")
ETCD: Final = Needed(("etcd",), "etcd-server", "tests/several", "needs_etcd")


def _missing() -> Iterator[Needed]:
    return (needed for needed in (CHROMIUM, ETCD) if needed.command is None)


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that cannot run here."""
    for needed in _missing():
        left = [item for item in items if needed.is_needed_by(item)]
        if left:
            config.hook.pytest_deselected(items=left)
            items[:] = [item for item in items if item not in left]


def name_them(reporter: pytest.TerminalReporter, arguments: Sequence[str]) -> None:
    """A line for each program that tests of this run, which has these paths and node ids, need and lack."""
    paths = [Path(each.partition("::")[0]).resolve() for each in arguments]
    for needed in _missing():
        folder = _ROOT / needed.folder
        if any(folder.is_relative_to(path) or path.is_relative_to(folder) for path in paths):
            reporter.write_line(
                f"left out: tests of {needed.folder}, because no {needed.commands[0]} was found;"
                f" apt-get install {needed.package}",
                yellow=True,
            )
