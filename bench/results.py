"""What was measured, and what was required of it.

Owns the rows of a table and the verdict on each. Pure. Invariants: a row's values are one per round and
target, in the order of rounds; a target that failed has fewer. A requirement is judged on the median of
per-round ratios, or on the median of Tidelog's own values if it names a bound in the row's unit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import truediv
from statistics import median

SUBJECT = "tidelog"
REFERENCE = "reference"
"""The name of what a row is compared with, if that is not another program."""
_BUSY = 0.85
"""Who keeps so many processors busy cannot do more with one thread. A disk that has work for so much of the
time has no pause to fill."""
QUIET_SHARE = 0.1
"""If other programs take more of the processors than this, a measurement is not reliable."""


@dataclass(frozen=True)
class Requirement:
    """Requires values of target `of`: `at_least` or below `limit` times the values of target `against`, or,
    without one, `limit` in the row's unit."""

    limit: float
    against: str | None = None
    at_least: bool = True
    of: str = SUBJECT

    def describe(self, unit: str) -> str:
        who = "" if self.of == SUBJECT else f"{self.of} "
        sign = "≥" if self.at_least else "<"
        return f"{who}{sign} {self.limit:g} {unit if self.against is None else f'× {self.against}'}"


@dataclass
class Row:
    """One line: values of each target, round by round, and how much of the machine others used meanwhile."""

    scenario: str
    measure: str
    unit: str
    requirements: tuple[Requirement, ...] = ()
    values: dict[str, list[float]] = field(default_factory=dict)
    others: dict[str, list[float]] = field(default_factory=dict)
    busy: dict[str, list[Sequence[float]]] = field(default_factory=dict)
    """How many processors the server and the client kept busy, and how many disks, if that was measured."""

    def add(
        self,
        target: str,
        value: float,
        others: float | None = None,
        busy: Sequence[float] | None = None,
    ) -> None:
        """One more round's value; `others` is the part of the processors that other programs used."""
        self.values.setdefault(target, []).append(value)
        if others is not None:
            self.others.setdefault(target, []).append(others)
        if busy is not None:
            self.busy.setdefault(target, []).append(busy)

    def middle(self, target: str) -> float | None:
        values = self.values.get(target)
        return median(values) if values else None

    def ratio(self, against: str, of: str = SUBJECT) -> float | None:
        """The median of one target's values over another's; None when one of them was not measured, or the
        other's is 0, which is less than the clock shows."""
        ratios = self._ratios(against, of)
        return median(ratios) if ratios else None

    def ratio_range(self, against: str, of: str = SUBJECT) -> tuple[float, float] | None:
        """The least and the largest of what `ratio` is the median of."""
        ratios = self._ratios(against, of)
        return (min(ratios), max(ratios)) if ratios else None

    def _ratios(self, against: str, of: str) -> list[float]:
        mine, other = self.values.get(of), self.values.get(against)
        return list(map(truediv, mine, other)) if mine and other and all(other) else []

    def range(self, target: str) -> tuple[float, float] | None:
        """The least and the largest value."""
        values = self.values.get(target)
        return (min(values), max(values)) if values else None

    def limit(self, target: str) -> str:
        """What keeps a rate from being higher, by the processors, or else the disk, that were busy in the
        middle round; empty where that was not measured."""
        busy = self.busy.get(target)
        if not busy:
            return ""
        server, client, *disk = (median(each) for each in zip(*busy, strict=True))
        is_server, is_client = server >= _BUSY, client >= _BUSY
        return {
            (True, False): "broker",
            (False, True): "client",
            (True, True): "broker and client",
            (False, False): "disk" if disk and disk[0] >= _BUSY else "waiting",
        }[is_server, is_client]

    def others_share(self, target: str) -> float:
        """The part of the processors that others used in the middle round; 0 if it was not measured."""
        return median(self.others.get(target) or [0.0])

    @property
    def is_quiet(self) -> bool:
        """Whether other programs left enough of the machine for reliable numbers."""
        return all(self.others_share(target) <= QUIET_SHARE for target in self.values)

    def holds(self, requirement: Requirement) -> bool:
        """False also when what it needs was not measured."""
        against, of = requirement.against, requirement.of
        value = self.middle(of) if against is None else self.ratio(against, of)
        if value is None:
            return False
        return value >= requirement.limit if requirement.at_least else value < requirement.limit

    @property
    def verdict(self) -> bool | None:
        """Whether all that is required holds; None when nothing is."""
        return all(map(self.holds, self.requirements)) if self.requirements else None


@dataclass
class Results:
    """All rows by scenario and measure, and notes beneath the table; `peers` are measured beside Tidelog."""

    peers: tuple[str, ...]
    title: str
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def row(self, scenario: str, measure: str, unit: str, requirements: Sequence[Requirement] = ()) -> Row:
        """The row of a measure in a scenario, made at its first mention."""
        return self.rows.setdefault((scenario, measure), Row(scenario, measure, unit, tuple(requirements)))

    def note(self, text: str) -> None:
        """Say it once, however many rounds say it."""
        if text not in self.notes:
            self.notes.append(text)
