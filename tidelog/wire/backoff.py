"""The delay before a retry: it grows exponentially up to a maximum, with jitter.

Owns: the one formula. Source: KIP-580 and KIP-144. Each failure doubles the delay. The jitter of ±20 %
prevents that clients which failed together all retry at the same time.
"""

import random

_JITTER = 0.2
_MAX_DOUBLINGS = 30


class Backoff:
    """`base_ms` for the first failure, doubled for each one after it, at most `max_ms`, each ±20 %."""

    __slots__ = ("_base_ms", "_max_ms", "_random")

    def __init__(self, base_ms: int, max_ms: int, rng: random.Random | None = None) -> None:
        self._base_ms = base_ms
        self._max_ms = max(base_ms, max_ms)
        self._random = rng or random.Random()

    def delay_ms(self, failures: int) -> int:
        """Milliseconds to wait after `failures` (>= 1) failures in a row."""
        grown = self._base_ms << min(max(failures - 1, 0), _MAX_DOUBLINGS)
        return round(min(grown, self._max_ms) * self._random.uniform(1 - _JITTER, 1 + _JITTER))
