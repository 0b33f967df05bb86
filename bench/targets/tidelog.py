"""Tidelog itself, as `python -m tidelog.broker`, with default settings, except that deleted topics leave the
disk at once.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.targets.process import Target


class Tidelog(Target):
    """`advertised_port` is what clients get instead of its own port; `settings` are name=value."""

    name = "tidelog"
    settings: Sequence[str] = ()
    reuses_address = True

    def __init__(self, folder: Path, advertised_port: int = 0) -> None:
        super().__init__(folder)
        self._advertised_port = advertised_port

    def command(self) -> list[str]:
        ports = (f"port={self.port}", f"advertised.port={self._advertised_port}")
        always = (*ports, "log.segment.delete.delay.ms=0")
        return [
            *(sys.executable, "-m", "tidelog.broker", "--http-port", "0", "--data-dir", str(self.folder)),
            *(part for setting in (*always, *self.settings) for part in ("--set", setting)),
        ]
