"""What one kind of trial is, and what it tried, found and left out.

Owns the words that all kinds share, so that one report prints them. No kind knows another.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from faults.checker import Finding

Say = Callable[[str], None]
"""Takes one line about what happens."""


@dataclass
class Outcome:
    """`tried` counts by what was done; `left_out` says why a trial, or a part of it, could not be made."""

    tried: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    """What was counted, one line each."""


class Trial(NamedTuple):
    """A kind of trial: `run` takes the seed, the seconds it has, a folder of its own, and `say`.

    `run` raises BrokerProcessError or ClientError only where it could not begin.
    """

    name: str
    title: str
    share: float
    """Of all the seconds."""
    run: Callable[[int, float, Path, Say], Awaitable[Outcome]]


def turns(seconds: float, most: int) -> Iterator[int]:
    """Counts from 0, up to `most`; if that is 0, until the seconds are over."""
    end = monotonic() + seconds
    for number in count():
        if number >= most if most else monotonic() >= end:
            return
        yield number
