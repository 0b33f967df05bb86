"""Arguments that an application gives, and their checks.

Owns: the checks of numbers, times, functions and lists of names. Pure. Invariants: an error names the
argument, what was expected and what it got.
"""

from collections.abc import Callable, Iterable
from operator import index
from typing import Any


def whole_number(number: object, what: str, low: int | None = 0) -> int:
    """An offset, a partition or a timestamp. Raises TypeError, and ValueError below `low`."""
    try:
        taken = index(number)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what}: expected a whole number, got {number!r:.200}") from None
    if low is not None and taken < low:
        raise ValueError(f"{what}: expected {low} or more, got {taken}")
    return taken


def timeout_seconds(timeout_ms: float) -> float:
    """A timeout in milliseconds, as seconds. Raises TypeError."""
    try:
        return timeout_ms / 1000
    except TypeError:
        raise TypeError(f"timeout_ms: expected a number of milliseconds, got {timeout_ms!r:.200}") from None


def read_limits(timeout_ms: float, max_records: int | None, default: int) -> tuple[float, int]:
    """How many seconds a read waits, and how many records it returns at most. Raises as the others."""
    most = default if max_records is None else whole_number(max_records, "max_records", low=1)
    return timeout_seconds(timeout_ms), most


def function_or_none(given: Callable[..., Any] | None, what: str) -> Any:
    """A serializer, a deserializer or a partitioner. Raises TypeError for what cannot be called."""
    if given is not None and not callable(given):
        raise TypeError(f"{what}: expected a function, got {given!r:.200}")
    return given


def list_of_names(names: Iterable[str], what: str) -> list[str]:
    """Names of topics or groups. Raises TypeError, also for one text, whose letters would count as names."""
    if isinstance(names, str):
        raise TypeError(f"{what}: expected a list of names, got the text {names!r:.200}")
    if not isinstance(names, Iterable):
        raise TypeError(f"{what}: expected a list of names, got {names!r:.200}")
    return list(names)
