"""Medians, percentiles and ratios of paired rounds.

Pure. A ratio is taken within each round, where both sides met the same noise, and only then the median over
rounds: the ratio of two medians would compare different minutes.
"""

from collections.abc import Sequence
from math import ceil


def median(values: Sequence[float]) -> float:
    """The middle value, the mean of the two middle ones for an even count. ValueError when empty."""
    if not values:
        raise ValueError("a median needs at least one value")
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the ascending values that at least `share` (0 to 1) of them do not pass."""
    if not ordered:
        raise ValueError("a percentile needs at least one value")
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}, expected 0 to 1")
    return ordered[max(ceil(share * len(ordered)) - 1, 0)]


def ratios(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """`values[round] / others[round]` of each round. ValueError when the rounds do not pair up."""
    if len(values) != len(others):
        raise ValueError(f"{len(values)} rounds cannot be compared with {len(others)}")
    return [value / other for value, other in zip(values, others, strict=True)]
