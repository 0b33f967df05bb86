"""The answer of a coordinator's machine: records to make durable, responses, and timers.

Owns the values that a pure machine gives to its runtime. An operation may answer with `Parked`: a later
decision gives its response and releases the key.

Pure. Source: etcd/raft's Ready, Kafka's CoordinatorResult.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

RecordT = TypeVar("RecordT")
ResponseT = TypeVar("ResponseT")


class Timer(NamedTuple):
    """An operation for later: `operation(now_ms)` gives a Decision at `at_ms` on the coordinator's clock."""

    at_ms: int
    operation: Callable[[int], Decision[Any, Any]]


class Parked(NamedTuple):
    """Stands for a response that a later decision releases under this key."""

    key: Hashable


class Decision(NamedTuple, Generic[RecordT, ResponseT]):
    """`response` and `released` may be sent once `records` are durable.

    A machine that returns this has not changed yet: it changes when the records, and then the changes, are
    applied to it.
    """

    records: Sequence[RecordT]
    response: ResponseT | Parked
    timers: Mapping[Hashable, Timer | None] = {}
    """Key -> the timer that replaces the one under this key; None cancels it."""
    changes: Sequence[Any] = ()
    """Applied after the records and never written: state that the coordinator may forget when it ends."""
    released: Mapping[Hashable, Any] = {}
    """Key -> the response of the operation that is parked under it, if one is. These are released before
    `response` is parked."""


Operation: TypeAlias = Callable[[int], Decision[Any, ResponseT]]
"""One operation of a machine, which gets the time: see `CoordinatorRuntime.run`."""
