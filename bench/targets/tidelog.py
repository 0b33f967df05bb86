"""Tidelog itself, as `python -m broker` on an empty folder, with default settings."""

import sys

from bench.targets.process import Target


class Tidelog(Target):
    name = "tidelog"

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "broker", "--port", str(self.port), "--http-port", "0"),
            *("--data-dir", str(self.folder)),
        ]
