"""When a process that has ended is started again: at once, with a growing delay if it keeps ending.

Pure.
"""

from typing import Final

_FIRST_SECONDS: Final = 0.5
_LONGEST_SECONDS: Final = 30.0
_STEADY_SECONDS: Final = 60.0
"""A process that ran for this time begins without delay again."""


class Restarts:
    """Decides how long to wait before one process is started again."""

    def __init__(self) -> None:
        self._delay_seconds = 0.0

    def seconds_until_next(self, ran_seconds: float) -> float:
        """How long to wait now that the process has ended, after it ran for `ran_seconds`."""
        if ran_seconds >= _STEADY_SECONDS:
            self._delay_seconds = 0.0
        delay = self._delay_seconds
        self._delay_seconds = min(max(_FIRST_SECONDS, 2 * delay), _LONGEST_SECONDS)
        return delay
