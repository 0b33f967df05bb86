"""The shell of a coordinator: durable before told, in order, replayed, and with timers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

import pytest
from structlog.testing import capture_logs

from tests.waiting import until
from tidelog.broker.beginning import begin
from tidelog.broker.coordinator import runtime as runtime_module
from tidelog.broker.coordinator.decision import Decision, Parked, Timer
from tidelog.broker.coordinator.runtime import CoordinatorRuntime
from tidelog.protocol.errors import ApiError, ErrorCode

REFUSED = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
LATER_MS = 60_000


class Sum:
    """A machine whose state is the sum of its records, and the list of them."""

    def __init__(self) -> None:
        self.records: list[int] = []
        self.uncommitted: list[int] = []

    @property
    def total(self) -> int:
        return sum(self.records)

    def apply(self, record: int) -> None:
        self.records.append(record)

    def write(self, record: int) -> None:
        self.apply(record)
        self.uncommitted.append(record)

    def settle(self, record: int) -> None:
        assert self.uncommitted.pop(0) == record

    def committed(self) -> int:
        return self.total - sum(self.uncommitted)

    def add(self, *numbers: int) -> Callable[[int], Decision[int, int]]:
        """The response is the sum with the numbers."""
        return lambda now_ms: Decision(numbers, self.total + sum(numbers))

    def look(self, now_ms: int) -> Decision[int, int]:
        return Decision((), self.total)


class Log:
    """A journal as the log of a partition: it accepts at once, and its flush comes when the test says so."""

    def __init__(self, kept: Iterable[int] = ()) -> None:
        self.kept = list(kept)
        self.flushes: list[asyncio.Future[None]] = []
        self._is_replayed = False

    async def news(self) -> Iterable[int]:
        if self._is_replayed:
            return ()
        self._is_replayed = True
        return tuple(self.kept)

    async def write(self, records: Sequence[int]) -> asyncio.Future[None]:
        self.kept += records
        flush: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.flushes.append(flush)
        return flush


class Store:
    """A journal as the cluster's store: it accepts what is durable. Each write meets the next of `fates`."""

    def __init__(self, *fates: str) -> None:
        self.kept: list[int] = []
        self.fates = list(fates)
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.writes = 0
        self._told = 0

    async def news(self) -> Iterable[int]:
        news = self.kept[self._told :]
        self._told = len(self.kept)
        return news

    async def write(self, records: Sequence[int]) -> None:
        self.writes += 1
        await self.goes_on.wait()
        fate = self.fates.pop(0) if self.fates else "stored"
        if fate != "refused":
            self.kept += records
        if fate != "stored":
            raise ApiError(REFUSED)
        self._told = len(self.kept)


class Clock:
    now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


Made = Callable[[Log | Store], CoordinatorRuntime[int]]


@pytest.fixture
async def made(machine: Sum, clock: Clock) -> AsyncIterator[Made]:
    """Makes a runtime over a journal, and closes it at the end."""
    runtimes: list[CoordinatorRuntime[int]] = []

    def make(journal: Log | Store) -> CoordinatorRuntime[int]:
        runtimes.append(CoordinatorRuntime(machine, journal, clock))
        return runtimes[-1]

    yield make
    for runtime in runtimes:
        await runtime.close()


@pytest.fixture
def machine() -> Sum:
    return Sum()


async def steps(count: int = 20) -> None:
    """Let everything that is ready to run do so."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_response_leaves_only_when_its_records_are_durable(made: Made, machine: Sum) -> None:
    log = Log()
    asking = asyncio.ensure_future(made(log).run(machine.add(5)))
    await until(lambda: log.flushes)
    await steps()
    assert not asking.done()
    log.flushes[0].set_result(None)
    assert await asking == 5


async def test_an_operation_is_written_in_the_step_of_the_loop_that_asks_for_it(
    made: Made, machine: Sum
) -> None:
    log = Log()
    runtime = made(log)
    await runtime.start()
    asking = begin(runtime.run(machine.add(5)))
    assert (log.kept, machine.total) == ([5], 5)
    log.flushes[0].set_result(None)
    assert await asking == 5


async def test_who_runs_many_operations_lets_others_run(made: Made, machine: Sum) -> None:
    runtime = made(Log())
    await runtime.start()
    others: list[int] = []
    asyncio.get_running_loop().call_soon(others.append, 1)
    await runtime.run(machine.look)
    assert others == [1]


async def test_over_a_log_many_operations_share_a_flush_and_each_sees_those_before_it(
    made: Made, machine: Sum
) -> None:
    log = Log()
    runtime = made(log)
    asking = [asyncio.ensure_future(runtime.run(machine.add(number))) for number in (1, 2, 3)]
    await until(lambda: len(log.flushes) == 3)
    assert not any(task.done() for task in asking)
    for flush in log.flushes:
        flush.set_result(None)
    assert await asyncio.gather(*asking) == [1, 3, 6]


async def test_a_response_without_records_waits_for_what_it_rests_on(made: Made, machine: Sum) -> None:
    log = Log()
    runtime = made(log)
    assert await runtime.run(machine.look) == 0
    adding = asyncio.ensure_future(runtime.run(machine.add(5)))
    looking = asyncio.ensure_future(runtime.run(machine.look))
    await until(lambda: log.flushes)
    await steps()
    assert not looking.done()
    log.flushes[0].set_result(None)
    assert (await adding, await looking) == (5, 5)


async def test_a_read_shows_what_is_committed_and_waits_for_nothing(made: Made, machine: Sum) -> None:
    log = Log()
    runtime = made(log)
    adding = [asyncio.ensure_future(runtime.run(machine.add(number))) for number in (5, 7)]
    await until(lambda: len(log.flushes) == 2)
    assert runtime.read(machine.committed) == 0
    log.flushes[0].set_result(None)
    assert await adding[0] == 5
    assert runtime.read(machine.committed) == 5
    log.flushes[1].set_exception(ApiError(ErrorCode.KAFKA_STORAGE_ERROR))
    with pytest.raises(ApiError):
        await adding[1]
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.KAFKA_STORAGE_ERROR):
        runtime.read(machine.committed)


async def test_over_a_store_no_operation_is_decided_before_the_last_one_is_applied(
    made: Made, machine: Sum
) -> None:
    store = Store()
    runtime = made(store)
    store.goes_on.clear()
    asking = [asyncio.ensure_future(runtime.run(machine.add(number))) for number in (1, 2)]
    await until(lambda: store.writes == 1)
    await steps()
    assert (store.writes, machine.total) == (1, 0)
    store.goes_on.set()
    assert await asyncio.gather(*asking) == [1, 3]


async def test_a_write_that_is_refused_changes_nothing_and_the_next_goes_on(made: Made, machine: Sum) -> None:
    runtime = made(Store("stored", "refused"))
    assert await runtime.run(machine.add(1)) == 1
    with pytest.raises(ApiError, check=lambda error: error.code == REFUSED):
        await runtime.run(machine.add(10))
    assert await runtime.run(machine.add(2)) == 3
    assert machine.records == [1, 2]


async def test_a_write_that_failed_and_was_stored_counts_for_the_next_decision(
    made: Made, machine: Sum
) -> None:
    runtime = made(Store("stored though refused"))
    with pytest.raises(ApiError):
        await runtime.run(machine.add(10))
    assert await runtime.run(machine.add(1)) == 11
    assert machine.records == [10, 1]


async def test_what_another_wrote_counts_for_the_next_decision(made: Made, machine: Sum) -> None:
    store = Store()
    runtime = made(store)
    assert await runtime.run(machine.add(1)) == 1
    store.kept.append(100)
    assert await runtime.run(machine.add(1)) == 102


async def test_a_coordinator_whose_records_do_not_become_durable_answers_no_more_requests(
    made: Made, machine: Sum
) -> None:
    log = Log()
    runtime = made(log)
    asking = [asyncio.ensure_future(runtime.run(operation)) for operation in (machine.add(1), machine.look)]
    await until(lambda: log.flushes)
    log.flushes[0].set_exception(ApiError(ErrorCode.KAFKA_STORAGE_ERROR))
    for task in asking:
        with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.KAFKA_STORAGE_ERROR):
            await task
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.KAFKA_STORAGE_ERROR):
        await runtime.run(machine.look)
    assert len(log.flushes) == 1


async def test_the_state_of_an_earlier_life_is_replayed_at_the_start(made: Made, machine: Sum) -> None:
    runtime = made(Log([1, 2, 3]))
    await runtime.start()
    assert machine.records == [1, 2, 3]
    assert await runtime.run(machine.look) == 6
    assert machine.records == [1, 2, 3]


async def test_an_operation_runs_to_its_end_when_its_caller_goes_away(made: Made, machine: Sum) -> None:
    store = Store()
    runtime = made(store)
    store.goes_on.clear()
    asking = asyncio.ensure_future(runtime.run(machine.add(7)))
    await until(lambda: store.writes == 1)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    store.goes_on.set()
    assert await runtime.run(machine.look) == 7


async def test_an_operation_that_the_machine_refuses_writes_nothing(made: Made, machine: Sum) -> None:
    def refuse(now_ms: int) -> Decision[int, int]:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)

    store = Store()
    with pytest.raises(ApiError, match="member"):
        await made(store).run(refuse)
    assert store.writes == 0


def with_timers(**timers: Timer | None) -> Callable[[int], Decision[int, None]]:
    return lambda now_ms: Decision((), None, timers)


async def test_a_timer_runs_its_operation_and_its_records_are_written(
    made: Made, machine: Sum, clock: Clock
) -> None:
    store = Store()
    await made(store).run(with_timers(expiry=Timer(clock.now_ms + 1, machine.add(3))))
    await until(lambda: store.kept == [3])
    assert machine.total == 3


async def test_a_timer_takes_the_place_of_the_one_under_its_key_and_none_ends_it(
    made: Made, machine: Sum, clock: Clock
) -> None:
    store = Store()
    runtime = made(store)
    soon = clock.now_ms + 5
    await runtime.run(with_timers(a=Timer(soon, machine.add(1)), b=Timer(soon, machine.add(10))))
    await runtime.run(with_timers(a=Timer(soon, machine.add(100)), b=None))
    await runtime.run(with_timers(last=Timer(soon, machine.add(1_000))))
    await until(lambda: 1_000 in store.kept)
    assert store.kept == [100, 1_000]


async def test_a_timer_has_no_effect_if_one_that_is_due_at_the_same_time_replaces_or_ends_it(
    made: Made, machine: Sum, clock: Clock
) -> None:
    store, now_ms = Store(), clock.now_ms
    first = Timer(now_ms, with_timers(a=Timer(now_ms, machine.add(100)), b=None))
    a, b = Timer(now_ms, machine.add(1)), Timer(now_ms, machine.add(10))
    await made(store).run(with_timers(first=first, a=a, b=b))
    await until(lambda: 100 in store.kept)
    assert store.kept == [100]


async def test_timers_of_a_write_that_was_refused_are_not_set(made: Made, machine: Sum, clock: Clock) -> None:
    runtime = made(Store("refused"))
    timer = Timer(clock.now_ms, machine.add(1))
    with pytest.raises(ApiError):
        await runtime.run(lambda now_ms: Decision((5,), None, {"a": timer}))
    assert not runtime._timers


async def test_a_timer_whose_records_were_refused_runs_again(
    made: Made, machine: Sum, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_module, "TIMER_RETRY_MS", 1)
    store = Store("refused", "refused")
    with capture_logs() as events:
        await made(store).run(with_timers(expiry=Timer(clock.now_ms, machine.add(3))))
        await until(lambda: machine.total == 3)
    assert store.writes == 3
    assert [(event["event"], event["timer"]) for event in events] == [
        ("coordinator_timer_failed", "expiry")
    ] * 2


async def test_a_broken_timer_is_reported_and_breaks_nothing_else(
    made: Made, machine: Sum, clock: Clock
) -> None:
    def broken(now_ms: int) -> Decision[int, int]:
        raise RuntimeError("a fault of ours")

    runtime = made(Store())
    with capture_logs() as events:
        await runtime.run(with_timers(expiry=Timer(clock.now_ms, broken)))
        await until(lambda: events)
    assert [event["event"] for event in events] == ["coordinator_timer_broken"]
    assert await runtime.run(machine.add(1)) == 1


async def test_close_ends_the_timers_and_waits_for_what_is_being_written(
    made: Made, machine: Sum, clock: Clock
) -> None:
    store = Store()
    runtime = made(store)
    await runtime.run(with_timers(expiry=Timer(clock.now_ms + LATER_MS, machine.add(1))))
    store.goes_on.clear()
    asking = asyncio.ensure_future(runtime.run(machine.add(7)))
    await until(lambda: store.writes == 1)
    closing = asyncio.ensure_future(runtime.close())
    await steps()
    assert not closing.done()
    store.goes_on.set()
    await closing
    assert await asking == 7
    assert not runtime._timers


def park(key: str, *records: int) -> Callable[[int], Decision[int, str]]:
    return lambda now_ms: Decision(records, Parked(key))


def release(*records: int, **answers: str) -> Callable[[int], Decision[int, str]]:
    return lambda now_ms: Decision(records, "released", released=answers)


async def test_a_parked_response_comes_with_the_decision_that_releases_it(made: Made) -> None:
    runtime = made(Store())
    waiting = [asyncio.ensure_future(runtime.run(park(key))) for key in ("a", "b")]
    await steps()
    assert not any(task.done() for task in waiting)
    assert await runtime.run(release(a="yours", b="and yours")) == "released"
    assert await asyncio.gather(*waiting) == ["yours", "and yours"]
    assert not runtime._parked


async def test_what_is_released_leaves_only_when_the_records_of_that_decision_are_durable(made: Made) -> None:
    log = Log()
    runtime = made(log)
    waiting = asyncio.ensure_future(runtime.run(park("a")))
    await steps()
    releasing = asyncio.ensure_future(runtime.run(release(5, a="yours")))
    await until(lambda: log.flushes)
    await steps()
    assert not waiting.done()
    log.flushes[0].set_result(None)
    assert (await waiting, await releasing) == ("yours", "released")


async def test_a_response_that_parks_behind_a_slow_flush_is_not_missed_by_its_release(made: Made) -> None:
    log = Log()
    runtime = made(log)
    waiting = asyncio.ensure_future(runtime.run(park("a", 1)))
    releasing = asyncio.ensure_future(runtime.run(release(a="yours")))
    await until(lambda: log.flushes)
    await steps()
    log.flushes[0].set_result(None)
    assert (await waiting, await releasing) == ("yours", "released")


async def test_a_release_that_is_not_written_releases_no_member(made: Made) -> None:
    runtime = made(Store("refused"))
    waiting = asyncio.ensure_future(runtime.run(park("a")))
    await steps()
    with pytest.raises(ApiError):
        await runtime.run(release(5, a="never told"))
    await steps()
    assert not waiting.done()
    await runtime.run(release(6, a="told"))
    assert await waiting == "told"


async def test_a_caller_that_goes_away_leaves_nothing_parked(made: Made) -> None:
    store = Store()
    runtime = made(store)
    parked = asyncio.ensure_future(runtime.run(park("a")))
    await steps()
    store.goes_on.clear()
    undecided = asyncio.ensure_future(runtime.run(park("b", 1)))
    await until(lambda: store.writes == 1)
    for task in (parked, undecided):
        task.cancel()
    store.goes_on.set()
    await asyncio.gather(parked, undecided, return_exceptions=True)
    await runtime._running.ended()
    assert not runtime._parked
    assert await runtime.run(release(a="to nobody", b="to nobody")) == "released"


async def test_a_second_caller_under_a_key_is_not_forgotten_with_the_first(made: Made) -> None:
    runtime = made(Store())
    first = asyncio.ensure_future(runtime.run(park("a")))
    await steps()
    second = asyncio.ensure_future(
        runtime.run(lambda now_ms: Decision((), Parked("a"), released={"a": "replaced"}))
    )
    assert await first == "replaced"
    await steps()
    await runtime.run(release(a="yours"))
    assert await second == "yours"


async def test_close_does_not_wait_for_what_is_parked(made: Made) -> None:
    runtime = made(Store())
    waiting = asyncio.ensure_future(runtime.run(park("a")))
    await steps()
    await runtime.close()
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.NOT_COORDINATOR):
        await waiting
    with pytest.raises(ApiError):
        await runtime.run(park("late"))


async def test_parked_requests_are_answered_when_the_coordinator_ends(made: Made) -> None:
    log = Log()
    runtime = made(log)
    waiting = [asyncio.ensure_future(runtime.run(park(key))) for key in ("a", "b")]
    await steps()
    releasing = asyncio.ensure_future(runtime.run(release(5, a="never told")))
    await until(lambda: log.flushes)
    log.flushes[0].set_exception(ApiError(ErrorCode.KAFKA_STORAGE_ERROR))
    for task in (*waiting, releasing):
        with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.KAFKA_STORAGE_ERROR):
            await task


async def test_changes_are_applied_behind_the_records_and_never_written(made: Made, machine: Sum) -> None:
    store = Store("stored", "refused")
    runtime = made(store)
    await runtime.run(lambda now_ms: Decision((1,), None, changes=(100,)))
    assert (machine.records, store.kept) == ([1, 100], [1])
    with pytest.raises(ApiError):
        await runtime.run(lambda now_ms: Decision((2,), None, changes=(200,)))
    assert machine.total == 101
