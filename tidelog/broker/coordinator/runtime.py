"""The shell of a coordinator: runs the operations of a pure machine over a journal, and fires its timers.

Owns the order of operations, which timers are set, which responses are parked, and when a response may be
sent. A journal makes records durable: the cluster's store, or the log of an internal partition.

Invariants:
- operations are decided in the order of `run`, each on the state after all records written before it;
- a record is applied once it is written, and a response is sent once everything written before it is durable,
  so no client gets an answer that a crash could undo;
- a read shows only what is committed, and waits for nothing: also while too few replicas are in sync;
- a write that is refused changes nothing. A write that was accepted and does not become durable ends the
  coordinator: its state is ahead of its journal, so every later and every parked operation gets that error;
- an operation that replaces or ends a timer keeps the old one from having an effect, also when both were due
  at the same time;
- an operation that began runs to its end, even if its caller is cancelled; a parked response ends with its
  caller;
- `close` refuses parked operations instead of waiting for them.

On the event loop.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import structlog

from tidelog.broker.coordinator.decision import Decision, Parked, RecordT, ResponseT, Timer
from tidelog.broker.tasks import Tasks
from tidelog.protocol.errors import ApiError, ErrorCode, again
from tidelog.protocol.steps import Pace

TIMER_RETRY_MS = 1_000
logger = structlog.get_logger(__name__)
_AppliedT = TypeVar("_AppliedT", contravariant=True)
_AnswerT = TypeVar("_AnswerT")


class Machine(Protocol[_AppliedT]):
    """A pure state machine. Its operations take `now_ms` and return a Decision, or raise ApiError."""

    def apply(self, record: _AppliedT) -> None:
        """Apply a record that was committed before, or a change of a Decision."""

    def write(self, record: _AppliedT) -> None:
        """Apply a record that was written just now; `settle` follows once it is committed."""

    def settle(self, record: _AppliedT) -> None:
        """The oldest record that was written and not committed is committed."""


class Journal(Protocol[RecordT]):
    """Stores the records of one coordinator."""

    async def news(self) -> Iterable[RecordT]:
        """Records that are durable and were neither given here nor accepted by `write`, oldest first.

        The first call gives all records; later calls give what other brokers wrote, or a write that failed
        but was stored. Raises ApiError when that is not known.
        """

    async def write(self, records: Sequence[RecordT]) -> asyncio.Future[Any] | None:
        """Accept the records, all or none. The future is done when they are durable; None: they already are.

        Raises ApiError when they are refused.
        """


class _ParkedResponse(NamedTuple):
    """A response that is not decided yet."""

    key: Hashable
    future: asyncio.Future[Any]


_Decided = tuple[Any, asyncio.Future[Any] | None]
"""The response, or a `_ParkedResponse` that holds its future, and what is done once it may be sent."""


class CoordinatorRuntime(Generic[RecordT]):
    """Runs one coordinator: its operations, its timers, and the writes to its journal."""

    def __init__(
        self, machine: Machine[RecordT], journal: Journal[RecordT], clock_ms: Callable[[], int]
    ) -> None:
        """`clock_ms` is a clock that is never set."""
        self._machine = machine
        self._journal = journal
        self._clock_ms = clock_ms
        self._turn = asyncio.Lock()
        self._durable: asyncio.Future[Any] | None = None
        self._failure: ApiError | None = None
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._parked: dict[Hashable, asyncio.Future[Any]] = {}
        self._running = Tasks()
        self._closed = False

    async def start(self) -> None:
        """Replay the journal. Raises ApiError."""
        async with self._turn:
            await self._catch_up()

    async def run(self, operation: Callable[[int], Decision[RecordT, ResponseT]]) -> ResponseT:
        """Decide `operation(now_ms)` and return its response once it may be sent. Raises ApiError."""
        task = self._running.at_once(self._run(operation))
        try:
            response, durable = task.result() if task.done() else await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._forget_parked)
            raise
        finally:
            del task  # An error would refer to this frame, this frame to the task, and the task to the error.
        try:
            if durable is None or durable.done():
                await asyncio.sleep(0)  # Who runs many operations lets others have their turn.
            if durable is not None:
                await asyncio.shield(durable)
            answer: ResponseT = await response.future if isinstance(response, _ParkedResponse) else response
            return answer
        finally:
            if isinstance(response, _ParkedResponse):
                self._forget(response)

    async def _run(self, operation: Callable[[int], Decision[RecordT, Any]]) -> _Decided:
        async with self._turn:
            if self._failure is not None:
                raise again(self._failure)
            await self._catch_up()
            decision = operation(self._clock_ms())
            if decision.records:
                self._durable = await self._journal.write(decision.records)
                for record in decision.records:
                    self._machine.write(record)
                if self._durable is None or self._durable.done():
                    self._committed(decision.records, self._durable)
                else:
                    self._durable.add_done_callback(partial(self._committed, decision.records))
            for change in decision.changes:
                self._machine.apply(change)
            self._set_timers(decision.timers)
            released = [(self._parked.pop(key, None), answer) for key, answer in decision.released.items()]
            response = self._park(decision.response)
            durable = self._durable
        if durable is None or durable.done():
            self._release(released, durable)
        else:
            durable.add_done_callback(partial(self._release, released))
        return response, durable

    def _release(
        self, released: Sequence[tuple[asyncio.Future[Any] | None, Any]], durable: asyncio.Future[Any] | None
    ) -> None:
        """What was written until now is durable, or lost."""
        error = None if durable is None or durable.cancelled() else durable.exception()
        if isinstance(error, ApiError):
            self._fail(error, released)
        for future, answer in released:
            if future is not None and not future.done():
                future.set_result(answer)

    def _committed(self, records: Sequence[RecordT], durable: asyncio.Future[Any] | None) -> None:
        if durable is None or (not durable.cancelled() and durable.exception() is None):
            for record in records:
                self._machine.settle(record)

    def read(self, query: Callable[[], _AnswerT]) -> _AnswerT:
        """What a query of the machine finds, which shows only what is committed. Raises ApiError."""
        if self._failure is not None:
            raise again(self._failure)
        return query()

    def _park(self, response: Any) -> Any:
        if not isinstance(response, Parked):
            return response
        if self._closed:
            raise _stopping()
        future = self._parked[response.key] = asyncio.get_running_loop().create_future()
        return _ParkedResponse(response.key, future)

    def _forget_parked(self, task: asyncio.Future[Any]) -> None:
        """The caller was cancelled before the operation was decided."""
        if not task.cancelled() and task.exception() is None:
            response, _ = task.result()
            if isinstance(response, _ParkedResponse):
                self._forget(response)

    def _forget(self, parked: _ParkedResponse) -> None:
        if self._parked.get(parked.key) is parked.future:
            del self._parked[parked.key]
        parked.future.cancel()

    def _fail(self, error: ApiError, released: Iterable[tuple[asyncio.Future[Any] | None, Any]]) -> None:
        """Records that were applied are lost: end every operation with this error."""
        self._failure = error
        self._refuse_parked(error, [future for future, _ in released if future is not None])

    def _refuse_parked(self, error: ApiError, more: Iterable[asyncio.Future[Any]] = ()) -> None:
        for future in (*self._parked.values(), *more):
            if not future.done():
                future.set_exception(again(error))
                future.exception()  # Retrieved: the caller may be cancelled.
        self._parked.clear()

    async def _catch_up(self) -> None:
        pace = Pace()
        for record in await self._journal.news():
            self._machine.apply(record)
            if pace.spent():
                await asyncio.sleep(0)

    def _set_timers(self, timers: Mapping[Hashable, Timer | None]) -> None:
        for key, timer in timers.items():
            present = self._timers.pop(key, None)
            if present is not None:
                present.cancel()
            if timer is not None and not self._closed:
                delay_ms = max(0, timer.at_ms - self._clock_ms())
                self._timers[key] = asyncio.get_running_loop().call_later(
                    delay_ms / 1000, self._fire, key, timer
                )

    def _fire(self, key: Hashable, timer: Timer) -> None:
        self._running.begin(self._run_timer(key, timer, self._timers[key]))

    async def _run_timer(self, key: Hashable, timer: Timer, fired: asyncio.TimerHandle) -> None:
        """Run its operation, unless an operation before it has replaced or ended the timer; run it again
        later if its records were refused."""

        def operation(now_ms: int) -> Decision[Any, None]:
            if self._timers.get(key) is not fired:
                return Decision((), None)
            del self._timers[key]
            return timer.operation(now_ms)

        try:
            await self._run(operation)
        except ApiError as error:
            if self._failure is None and self._timers.get(key, fired) is fired:
                logger.warning("coordinator_timer_failed", timer=str(key), error=str(error))
                self._set_timers({key: timer._replace(at_ms=self._clock_ms() + TIMER_RETRY_MS)})
        except Exception as error:
            logger.error("coordinator_timer_broken", timer=str(key), error=repr(error), exc_info=error)

    async def close(self) -> None:
        """Fire no more timers, refuse parked operations, and wait for operations that began."""
        self._closed = True
        self._refuse_parked(_stopping())
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()
        await self._running.ended()
        if self._durable is not None:
            await asyncio.wait([self._durable])


def _stopping() -> ApiError:
    return ApiError(ErrorCode.NOT_COORDINATOR, "this broker coordinates it no longer")
