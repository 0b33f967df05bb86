"""Answers to Produce that wait until batches are durable, and the time after which they wait no longer.

Owns what is answered for a batch that did not become durable in time. Invariants: each waiting request is
answered once, at its deadline rounded up to the next `SWEEP_MS` at the latest; a batch that missed it may or
may not become durable: a retry gives the answer.

Event loop only.
"""

import asyncio
from typing import Protocol

from tidelog.broker.handlers.context import LateAnswer
from tidelog.broker.replicas.leader import Written
from tidelog.broker.replicas.progress import Mark
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.storage.partition_log import AppendResult
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import ProducePartitionResult
from tidelog.protocol.types import NO_OFFSET, NO_TIMESTAMP

ProduceResponse = list[tuple[str, list[ProducePartitionResult]]]

SWEEP_MS = 100
_TOO_FEW_IN_SYNC = "the batch is written, but fewer replicas are in sync than min.insync.replicas asks for"
_NOT_DURABLE_YET = "the batch is written, but was not durable within the request's timeout"


def refused(
    index: int, code: int, message: str | None, log_start_offset: int = NO_OFFSET
) -> ProducePartitionResult:
    """The result of a partition whose batch is refused."""
    return ProducePartitionResult(index, code, NO_OFFSET, NO_TIMESTAMP, log_start_offset, message)


def not_durable(index: int, replica: Replica) -> ProducePartitionResult:
    """The result of a batch that was not durable in time, or never will be: its replica has stopped."""
    if replica.stopped is not None:
        return refused(index, replica.stopped, replica.stopped.message)
    if replica.in_sync_count < replica.least_in_sync:
        return refused(index, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, _TOO_FEW_IN_SYNC)
    return refused(index, ErrorCode.REQUEST_TIMED_OUT, _NOT_DURABLE_YET)


class Mortal(Protocol):
    """A request that waits until its deadline, which is on the loop's clock: that never goes back."""

    deadline: float

    def time_out(self) -> None: ...


class Deadlines:
    """The requests that wait. One timer for all, because one for each would cost more than its answer."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: set[Mortal] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.discard = self._waiting.discard
        """It waits no longer; harmless if it did not."""

    def begin(self, waiting: Mortal, timeout_ms: int) -> None:
        """Set its deadline, and call `time_out` then unless it is discarded before."""
        waiting.deadline = self._loop.time() + timeout_ms / 1000
        self._waiting.add(waiting)
        if self._timer is None:
            self._timer = self._loop.call_later(SWEEP_MS / 1000, self._sweep)

    def resume(self, waiting: Mortal) -> None:
        """It was discarded, and waits again for its deadline."""
        self.begin(waiting, max(0, round((waiting.deadline - self._loop.time()) * 1000)))

    def _sweep(self) -> None:
        # Before the answers, so that one which fails keeps no other waiting.
        self._timer = self._loop.call_later(SWEEP_MS / 1000, self._sweep) if self._waiting else None
        now = self._loop.time()
        for late in [waiting for waiting in self._waiting if waiting.deadline <= now]:
            late.time_out()


class PendingProduce(LateAnswer):
    """A ProduceRequest whose batches are written and not yet durable: a CommitWaiter for all of them."""

    def __init__(self, response: ProduceResponse, timeout_ms: int, deadlines: Deadlines) -> None:
        self.response = response
        self.deadline = 0.0
        self._deadlines = deadlines
        self._remaining = 0
        self._parts: list[tuple[list[ProducePartitionResult], Replica, Mark, int, int]] = []
        deadlines.begin(self, timeout_ms)

    def expect_more(self) -> None:
        """Give no answer before `all_appended`, because more batches may follow."""
        self._remaining += 1
        self._deadlines.discard(self)

    def all_appended(self) -> None:
        """No more batches follow."""
        self._deadlines.resume(self)
        self.partition_committed(0)

    def wait_for(
        self, replica: Replica, mark: Mark, written: Written, results: list[ProducePartitionResult]
    ) -> AppendResult:
        """Hold the answer until the mark has reached `written`; its result becomes the next of `results`."""
        self._remaining += 1
        parts = self._parts
        result = replica.when(mark, written, self, len(parts))
        parts.append((results, replica, mark, len(results), result.last_offset + 1))
        return result

    def partition_committed(self, slot: int) -> None:
        self._remaining -= 1
        if self._remaining == 0:
            self._finish()

    def partition_failed(self, slot: int, code: ErrorCode) -> None:
        results, _, _, position, _ = self._parts[slot]
        results[position] = refused(results[position].index, code, code.message)
        self.partition_committed(slot)

    def time_out(self) -> None:
        """Give the answer now, with `not_durable` for what its mark has not reached yet."""
        for results, replica, mark, position, end_offset in self._parts:
            if end_offset > mark.offset:
                results[position] = not_durable(results[position].index, replica)
        self._finish()

    def _finish(self) -> None:
        self._deadlines.discard(self)
        self.give(self.response)
