"""What a verification reports: where, what is wrong, what was expected there and what was found.

Owns `Finding` and its counts. Of each file and severity the first `PER_FILE` findings are reported;
the rest is counted. Pure but for the report that it calls.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

PER_FILE = 20


class Severity(StrEnum):
    """DAMAGE: no sequence of starts, stops and crashes of a broker leaves this. WARNING: worth knowing."""

    DAMAGE = "damage"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that was found. `file` is relative to the data folder; `position` is a byte in it."""

    severity: Severity
    file: str
    position: int | None
    problem: str
    expected: str | None = None
    found: str | None = None

    def __str__(self) -> str:
        where = self.file if self.position is None else f"{self.file} at byte {self.position}"
        parts = [
            f"{name} {value}"
            for name, value in (("expected", self.expected), ("got", self.found))
            if value is not None
        ]
        return f"{where}: {self.problem}" + (f": {', '.join(parts)}" if parts else "")


class Findings:
    """Hands findings to `report` as they come, and counts them."""

    def __init__(self, report: Callable[[Finding], None]) -> None:
        self.counts: Counter[Severity] = Counter()
        self.unreported = 0
        """Found and counted, but not reported, because their file had too many."""
        self.damage = partial(self.add, Severity.DAMAGE)
        self.warning = partial(self.add, Severity.WARNING)
        self._report = report
        self._by_file: Counter[tuple[str, Severity]] = Counter()

    def add(
        self,
        severity: Severity,
        file: str,
        problem: str,
        *,
        position: int | None = None,
        expected: object = None,
        found: object = None,
    ) -> None:
        self.counts[severity] += 1
        self._by_file[file, severity] += 1
        if self._by_file[file, severity] > PER_FILE:
            self.unreported += 1
            return
        expected_text, found_text = (None if value is None else str(value) for value in (expected, found))
        self._report(Finding(severity, file, position, problem, expected_text, found_text))
