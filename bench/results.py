"""What was measured, and what was required of it.

Owns the rows of the table and the verdict on each. Pure. Invariants: a row's values are one per round and
target, in the order of rounds; a requirement is judged on the median of per-round ratios, or on the median of
Tidelog's own values where it names a bound in the row's unit. Filled by scenarios, shown by `report`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.statistics import median, median_ratio

SUBJECT = "tidelog"
SERVERS = ("tansu", "sink")
REFERENCE = "reference"
"""Stands where a row is compared with something that is no other program."""


@dataclass(frozen=True)
class Requirement:
    """`at_least` or below `limit`: times the values of target `against`, or in the row's unit without one."""

    limit: float
    against: str | None = None
    at_least: bool = True

    def describe(self, unit: str) -> str:
        sign = "≥" if self.at_least else "<"
        return f"{sign} {self.limit:g} {unit if self.against is None else f'× {self.against}'}"


@dataclass
class Row:
    """One line: values of each target, round by round."""

    scenario: str
    measure: str
    unit: str
    requirements: tuple[Requirement, ...] = ()
    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, target: str, value: float) -> None:
        self.values.setdefault(target, []).append(value)

    def middle(self, target: str) -> float | None:
        values = self.values.get(target)
        return median(values) if values else None

    def ratio(self, against: str) -> float | None:
        """Tidelog's values over another target's, or None when one of them was not measured."""
        mine, other = self.values.get(SUBJECT), self.values.get(against)
        return median_ratio(mine, other) if mine and other else None

    def holds(self, requirement: Requirement) -> bool:
        """False also when what it needs was not measured."""
        against = requirement.against
        value = self.middle(SUBJECT) if against is None else self.ratio(against)
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

    peers: tuple[str, ...] = SERVERS
    title: str = "Tidelog side by side: medians of rounds, ratios within each round"
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def row(self, scenario: str, measure: str, unit: str, requirements: Sequence[Requirement] = ()) -> Row:
        """The row of a measure in a scenario, made at its first mention."""
        return self.rows.setdefault((scenario, measure), Row(scenario, measure, unit, tuple(requirements)))
