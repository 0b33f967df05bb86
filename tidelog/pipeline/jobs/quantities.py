"""Numbers as people read them. Pure.

Owns the units: a duration has at most two (`3 days 5 h`), sizes count in thousands (kB, MB, GB), all other
numbers have thousands separators. `DURATION` and `SIZE` give an axis one unit, so that its numbers are plain.
"""

from bisect import bisect_right
from typing import Final, NamedTuple


class Unit(NamedTuple):
    """A unit of a number, with its name and how much it is: milliseconds of a duration, bytes of a size."""

    name: str
    amount: float


DURATION: Final = (
    Unit("ms", 1),
    Unit("s", 1_000),
    Unit("min", 60_000),
    Unit("h", 3_600_000),
    Unit("days", 86_400_000),
)
SIZE: Final = (Unit("B", 1), Unit("kB", 1e3), Unit("MB", 1e6), Unit("GB", 1e9), Unit("TB", 1e12))
_FEW = 10


def unit_of(amount: float, units: tuple[Unit, ...]) -> Unit:
    """The largest of `units`, which ascend, of which `amount` is at least one; else the smallest."""
    return units[max(bisect_right(units, amount, key=lambda unit: unit.amount) - 1, 0)]


def as_number(value: float) -> str:
    """With thousands separators. Below ten two decimals are kept, of still smaller numbers two digits."""
    if value == round(value) or abs(value) >= _FEW:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.2g}"


def as_size(size: float) -> str:
    """Bytes in the unit that fits."""
    unit = unit_of(size, SIZE)
    return f"{as_number(size) if unit.amount == 1 else f'{size / unit.amount:.1f}'} {unit.name}"


def as_duration(milliseconds: float) -> str:
    """Milliseconds in the unit that fits and, from minutes on, the next smaller one."""
    unit = unit_of(milliseconds, DURATION)
    index = DURATION.index(unit)
    if unit.amount == 1:
        return f"{as_number(milliseconds)} ms"
    if unit.name == "s":
        return f"{milliseconds / unit.amount:.3g} s"
    smaller = DURATION[index - 1]
    parts = divmod(round(milliseconds / smaller.amount), round(unit.amount / smaller.amount))
    return " ".join(
        f"{count:,} {name.removesuffix('s') if name == 'days' and count == 1 else name}"
        for count, name in zip(parts, (unit.name, smaller.name), strict=True)
        if count
    )
