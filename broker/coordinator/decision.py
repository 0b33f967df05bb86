"""What a coordinator's machine answers: records to be made durable, responses, and timers.

Owns the words between a pure machine and its runtime. What must be durable before what is sent stands in the
type: a machine gives both in one value, and only the runtime takes them apart. An operation may answer with
`Parked`: its response comes with a later decision, which releases the key.

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


class Parked(NamedTuple):
    """The place of a response that a later decision releases under this key."""

    key: Hashable


class Decision(NamedTuple, Generic[RecordT, ResponseT]):
    """`response` and `released` may leave once `records` are durable.

    A machine that returns this has not changed yet: it changes when the records, then the changes, are
    applied to it.
    """

    records: Sequence[RecordT]
    response: ResponseT | Parked
    timers: Mapping[Hashable, Timer | None] = {}
    """Key -> the timer that takes the place of the one under this key; None ends it."""
    changes: Sequence[Any] = ()
    """Applied behind the records and never written: what the coordinator may forget when it ends."""
    released: Mapping[Hashable, Any] = {}
    """Key -> the response of the operation that is parked under it, if one is. This comes before
    `response` is parked."""
