"""Long work in steps: a generator yields after each step, so other requests can run, and returns its result.

Owns: the amount of work in one step, and the two ways to run steps without an event loop. Code that works on
each element of a message counts the elements with a `Pace`, and yields when the step is over. Work that fits
into its first step never yields, so a short message has no extra cost.

Invariants: a step is counted in elements, not in time, so it is the same on a slow machine; no I/O, no clock,
no event loop. `broker.limits.turns` runs the steps of many requests in turn.
"""

from collections.abc import Callable, Generator, Iterable
from types import GeneratorType
from typing import Any, Final, TypeAlias, TypeVar, cast, overload

T = TypeVar("T")
R = TypeVar("R")
Steps: TypeAlias = Generator[None, None, T]

ELEMENTS_PER_STEP: Final = 200
"""Elements read, handled or written between two yields: about a millisecond, at about 5 us per element."""
CHECKS_PER_STEP: Final = 500
"""Elements in a step that only checks each one, for example for a duplicate or an error."""
NUMBERS_PER_ELEMENT: Final = 16
"""This many numbers of an array, read or written together, count as one element."""


class Pace:
    """Counts the work of one step. `left` is the number of elements left in it."""

    __slots__ = ("_per_step", "left")

    def __init__(self, elements_per_step: int = ELEMENTS_PER_STEP) -> None:
        self._per_step = self.left = elements_per_step

    def spent(self, elements: int = 1) -> bool:
        """Whether the step is over. Then the caller must yield, and a new step begins."""
        self.left -= elements
        if self.left > 0:
            return False
        self.left = self._per_step
        return True


@overload
def begin(outcome: Steps[T]) -> T | Steps[T]: ...
@overload
def begin(outcome: T) -> T: ...
def begin(outcome: Any) -> Any:
    """Run the first step of a generator. Returns its result if there is no second step, else the other steps.

    Anything that is not a generator is a result already.
    """
    if isinstance(outcome, GeneratorType):
        try:
            next(outcome)
        except StopIteration as end:
            return end.value
    return outcome


@overload
def finish(outcome: Steps[T]) -> T: ...
@overload
def finish(outcome: T) -> T: ...
def finish(outcome: Any) -> Any:
    """Run all steps of a generator and return its result. Anything that is not a generator is a result."""
    while isinstance(outcome, GeneratorType):
        outcome = begin(outcome)
    return outcome


def in_steps(outcome: Steps[T] | T) -> Steps[T]:
    """The steps of a generator; none for a result."""
    if isinstance(outcome, GeneratorType):
        outcome = yield from outcome
    return cast("T", outcome)


def each(handle: Callable[[T], R], items: Iterable[T], pace: Pace, elements: int = 1) -> Steps[list[R]]:
    """[handle(item) for item in items]. Each item counts as `elements` elements."""
    results = []
    for item in items:
        results.append(handle(item))
        if pace.spent(elements):
            yield
    return results
