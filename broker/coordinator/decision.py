"""What a coordinator's machine answers: records to be made durable, a response, and timers.

Owns the words between a pure machine and its runtime. What must be durable before what is sent stands in the
type: a machine gives both in one value, and only the runtime takes them apart.

Pure. Source: etcd/raft's Ready, Kafka's CoordinatorResult.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

RecordT = TypeVar("RecordT")
ResponseT = TypeVar("ResponseT")


class Timer(NamedTuple):
    """An operation for later: `operation(now_ms)` gives a Decision at `at_ms` on the coordinator's clock."""

    at_ms: int
    operation: Callable[[int], Decision[Any, Any]]


class Decision(NamedTuple, Generic[RecordT, ResponseT]):
    """`response` may leave once `records` are durable.

    A machine that returns this has not changed yet: it changes when each record is applied to it.
    """

    records: Sequence[RecordT]
    response: ResponseT
    timers: Mapping[Hashable, Timer | None] = {}
    """Key -> the timer that takes the place of the one under this key; None ends it."""
