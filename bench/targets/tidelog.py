"""Tidelog itself, as `python -m tidelog.broker` on an empty folder, with default settings."""

import sys
from pathlib import Path

from bench.targets.process import Target


class Tidelog(Target):
    """`advertised_port`: where clients are told to go instead of to its own port."""

    name = "tidelog"

    def __init__(self, folder: Path, advertised_port: int = 0) -> None:
        super().__init__(folder)
        self._advertised_port = advertised_port

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "tidelog.broker", "--port", str(self.port), "--http-port", "0"),
            *("--data-dir", str(self.folder), "--set", f"advertised.port={self._advertised_port}"),
        ]
