"""Percentiles of what was measured. Pure."""

from collections.abc import Sequence
from math import ceil


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the ascending values that at least `share` (0 to 1) of them do not pass."""
    if not ordered:
        raise ValueError("a percentile needs at least one value")
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}, expected 0 to 1")
    return ordered[max(ceil(share * len(ordered)) - 1, 0)]
