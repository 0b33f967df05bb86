"""The raw sink (`bench.sink`) as a target: what a Python server could reach if it did nothing but write."""

import sys

from bench.targets.process import Target


class Sink(Target):
    name = "sink"
    creates_topics = False

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.sink", str(self.port), str(self.folder / "received")]
