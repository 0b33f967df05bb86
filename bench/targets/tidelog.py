"""Tidelog itself, as `python -m tidelog.broker`, with default settings but for deleted topics, which
leave the disk at once.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.targets.process import Target


class Tidelog(Target):
    """`advertised_port`: the port that clients get instead of its own; `settings`: name=value."""

    name = "tidelog"
    more_settings: tuple[str, ...] = ()

    def __init__(self, folder: Path, advertised_port: int = 0, settings: Sequence[str] = ()) -> None:
        super().__init__(folder)
        always = (f"advertised.port={advertised_port}", "log.segment.delete.delay.ms=0")
        self._settings = (*always, *self.more_settings, *settings)

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "tidelog.broker", "--port", str(self.port), "--http-port", "0"),
            *("--data-dir", str(self.folder)),
            *(part for setting in self._settings for part in ("--set", setting)),
        ]
