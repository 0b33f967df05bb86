"""Long work in steps: a generator that yields where others may have their turn, and returns its result.

Owns: how much work one step does, and the two ways to run steps without an event loop. Whoever does some work
for each element of a message counts it with a `Pace` and yields when the pace says so. Work that fits into
its first step never yields, so short messages cost what they cost without this.

Invariants: a step is counted in elements, not in time, so that it is the same on a slow machine; no I/O, no
clock, no event loop. `broker.limits.turns` runs steps of many requests side by side.
"""

from collections.abc import Callable, Generator, Iterable
from types import GeneratorType
from typing import Any, Final, TypeAlias, TypeVar, overload

T = TypeVar("T")
R = TypeVar("R")
Steps: TypeAlias = Generator[None, None, T]

ELEMENTS_A_STEP: Final = 200
"""What is read, handled or written between two yields: a millisecond, for an element takes about 5 us."""
GLANCES_A_STEP: Final = 500
"""How many elements are in a step that only looks at each: whether it came before, which error it holds."""
NUMBERS_AN_ELEMENT: Final = 16
"""So many numbers of an array, read or written at once, are the work of one element."""


class Pace:
    """Counts the work of one step. `left` is what may still be done in it."""

    __slots__ = ("_a_step", "left")

    def __init__(self, elements_a_step: int = ELEMENTS_A_STEP) -> None:
        self._a_step = self.left = elements_a_step

    def spent(self, elements: int = 1) -> bool:
        """Whether the step is over, so that the caller is to yield; a new one begins."""
        self.left -= elements
        if self.left > 0:
            return False
        self.left = self._a_step
        return True


@overload
def begin(outcome: Steps[T]) -> T | Steps[T]: ...
@overload
def begin(outcome: T) -> T: ...
def begin(outcome: Any) -> Any:
    """Do the first step of a generator: its result if there is no second one, else the steps that are left.

    Anything that is no generator is a result already.
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
    """Do all steps of a generator now: its result. Anything that is no generator is a result already."""
    while isinstance(outcome, GeneratorType):
        outcome = begin(outcome)
    return outcome


def each(handle: Callable[[T], R], items: Iterable[T], pace: Pace, elements: int = 1) -> Steps[list[R]]:
    """[handle(item) for item in items], each of which is the work of so many `elements`."""
    results = []
    for item in items:
        results.append(handle(item))
        if pace.spent(elements):
            yield
    return results
