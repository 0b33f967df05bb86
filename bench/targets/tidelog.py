"""Tidelog itself, as `python -m tidelog.broker` on an empty folder, with default settings."""

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.targets.process import Target


class Tidelog(Target):
    """`advertised_port`: the port that clients get instead of its own; `settings`: name=value."""

    name = "tidelog"

    def __init__(self, folder: Path, advertised_port: int = 0, settings: Sequence[str] = ()) -> None:
        super().__init__(folder)
        self._settings = (f"advertised.port={advertised_port}", *settings)

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "tidelog.broker", "--port", str(self.port), "--http-port", "0"),
            *("--data-dir", str(self.folder)),
            *(part for setting in self._settings for part in ("--set", setting)),
        ]
