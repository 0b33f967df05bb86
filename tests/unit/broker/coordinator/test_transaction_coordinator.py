"""The coordinator of transactions over real logs: what was decided is finished, once, whatever dies."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.conftest import Clock, OpenServices
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker import tasks
from tidelog.broker.cluster.catalog import TRANSACTIONS_TOPIC
from tidelog.broker.coordinator import transaction_coordinator
from tidelog.broker.coordinator.shards import RELOAD_AFTER_MS, partition_of
from tidelog.broker.coordinator.transaction_coordinator import TransactionCoordinator
from tidelog.broker.coordinator.transaction_markers import TransactionMarkers
from tidelog.broker.coordinator.transactions.messages import Initialization
from tidelog.broker.coordinator.transactions.states import TransactionState
from tidelog.broker.coordinator.transactions.transaction import Producer
from tidelog.broker.replicas import leader
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.services import Services
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.types import TopicPartition

NOW_MS = 1_700_000_000_000
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def open_one(open_here: OpenServices) -> OpenServices:
    return partial(open_here, num_partitions=2)


async def begun(services: Services, *partitions: TopicPartition) -> Producer:
    if services.catalog.topic("t") is None:
        await services.topics.create("t")
    await services.transactions.make_topic()
    given = await services.transactions.initialize(Initialization("x", 1_000))
    if partitions:
        await services.transactions.add_partitions("x", given.client, partitions)
    return given.client


async def state(services: Services) -> TransactionState:
    return (await services.transactions.describe("x")).state


async def reached(services: Services, wanted: TransactionState) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while await state(services) is not wanted:  # noqa: ASYNC110 (not ours to signal)
            await asyncio.sleep(0.001)


def markers(services: Services) -> list[int]:
    return [services.replicas[where].log.end_offset for where in (P0, P1)]


@pytest.mark.parametrize("written", [0, 1, 2])
async def test_what_was_decided_before_a_crash_is_finished_after_it(
    open_one: OpenServices, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """The broker dies after the decision, and after `written` of two markers."""
    write = TransactionMarkers.write

    async def interrupted(self: TransactionMarkers, marker: Any, partitions: Any) -> Any:
        await write(self, marker, sorted(partitions)[:written])
        await asyncio.Event().wait()

    monkeypatch.setattr(TransactionMarkers, "write", interrupted)
    services = await open_one()
    client = await begun(services, P0, P1)
    ended = await services.transactions.end("x", client, is_commit=True, version=2)
    assert await state(services) is TransactionState.PREPARE_COMMIT
    await until(lambda: sum(markers(services)) == written)
    await services.close(clean=False)
    monkeypatch.undo()
    services = await open_one()
    await reached(services, TransactionState.COMPLETE_COMMIT)
    # A marker that was written before is written again, which changes nothing.
    assert markers(services) == [1 + (written > 0), 1 + (written > 1)]
    assert await services.transactions.end("x", client, is_commit=True, version=2) == ended
    assert markers(services) == [1 + (written > 0), 1 + (written > 1)]


async def test_a_decision_that_comes_while_the_broker_stops_leaves_no_task_and_is_finished_at_the_next_start(
    open_one: OpenServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def held_up(self: TransactionMarkers, marker: Any, partitions: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(TransactionMarkers, "write", held_up)
    before = asyncio.all_tasks()
    services = await open_one()
    client = await begun(services, P0)
    ending = asyncio.create_task(services.transactions.end("x", client, is_commit=True, version=2))
    await asyncio.sleep(0)
    await services.close()
    assert await ending == client.fenced
    assert asyncio.all_tasks() == before
    monkeypatch.undo()
    services = await open_one()
    await reached(services, TransactionState.COMPLETE_COMMIT)


async def test_an_ongoing_transaction_continues_after_a_restart(open_one: OpenServices) -> None:
    services = await open_one()
    client = await begun(services, P0)
    await services.close(clean=False)
    services = await open_one()
    assert await state(services) is TransactionState.ONGOING
    permits = services.transactions.permits
    assert [permits("x", *client, *where) for where in (P0, P1)] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TXN_STATE,
    ]
    await services.transactions.end("x", client, is_commit=False, version=1)
    await reached(services, TransactionState.COMPLETE_ABORT)


async def test_a_transaction_past_its_timeout_is_aborted(open_one: OpenServices, clock: Clock) -> None:
    services = await open_one(transaction_abort_timed_out_transaction_cleanup_interval_ms=1)
    client = await begun(services, P0)
    clock.now_ms += 1_001
    await until(lambda: services.replicas[P0].log.end_offset == 1)
    await reached(services, TransactionState.COMPLETE_ABORT)
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.PRODUCER_FENCED):
        await services.transactions.end("x", client, is_commit=True, version=2)


async def test_transactions_time_out_also_after_an_unexpected_error_of_the_check(
    open_one: OpenServices, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks_memory() -> Any:
        monkeypatch.undo()
        raise MemoryError

    monkeypatch.setattr(tasks, "_AGAIN_SECONDS", 0)
    services = await open_one(transaction_abort_timed_out_transaction_cleanup_interval_ms=1)
    await begun(services, P0)
    with capture_logs() as logs:
        monkeypatch.setattr(transaction_coordinator, "Pace", lacks_memory)
        clock.now_ms += 1_001
        await reached(services, TransactionState.COMPLETE_ABORT)
    assert [each["error"] for each in logs if each["event"] == "background_task_failed"] == ["MemoryError()"]


async def test_markers_that_an_unexpected_error_kept_from_being_written_are_tried_again(
    open_one: OpenServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks_memory(*_: Any) -> Any:
        monkeypatch.undo()
        raise MemoryError

    services = await open_one(transaction_abort_timed_out_transaction_cleanup_interval_ms=5)
    client = await begun(services, P0)
    monkeypatch.setattr(leader, "build_marker", lacks_memory)
    with capture_logs() as logs:
        await services.transactions.end("x", client, is_commit=True, version=2)
        await reached(services, TransactionState.COMPLETE_COMMIT)
    assert [each["transactional_id"] for each in logs if each["event"] == "transaction_markers_broken"] == [
        "x"
    ]


async def test_a_transaction_with_the_most_partitions_that_fit_can_be_kept_and_ended(
    open_one: OpenServices,
) -> None:
    """The records of both are larger than the one that adds the last partition."""
    services = await open_one(message_max_bytes=400)
    client = await begun(services, P0)
    with suppress(ApiError):
        for index in range(1, 200):
            await services.transactions.add_partitions("x", client, [TopicPartition("t", index)])
    assert 10 < len((await services.transactions.describe("x")).partitions) < 200
    keeping = Initialization("x", 1_000, client, has_two_phase_commit=True, keeps_prepared=True)
    given = await services.transactions.initialize(keeping)
    assert given.kept == client
    await services.transactions.end("x", given.client, is_commit=True, version=2)
    await reached(services, TransactionState.COMPLETE_COMMIT)


async def test_a_transaction_that_cannot_be_aborted_keeps_no_other_from_its_timeout(
    open_one: OpenServices, clock: Clock
) -> None:
    """Its record has become too large for the topic."""
    services = await open_one(
        transaction_state_log_num_partitions=1, transaction_abort_timed_out_transaction_cleanup_interval_ms=5
    )
    await begun(services, *(TopicPartition("another", index) for index in range(100)))
    given = await services.transactions.initialize(Initialization("y", 1_000))
    await services.transactions.add_partitions("y", given.client, [P1])
    await services.topics.change_configs(
        TRANSACTIONS_TOPIC, lambda present: {**present, "max.message.bytes": "300"}
    )
    clock.now_ms += 2_000
    await until(lambda: markers(services) == [0, 1])
    assert await state(services) is TransactionState.ONGOING


async def test_a_transaction_from_a_clock_that_was_ahead_times_out_from_the_next_start_on(
    open_one: OpenServices, clock: Clock
) -> None:
    quick = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 5}
    clock.now_ms += 86_400_000
    services = await open_one(**quick)
    await begun(services, P0)
    await services.close()
    clock.now_ms -= 86_400_000
    services = await open_one(**quick)

    def has_ended() -> bool:
        clock.now_ms += 100  # Some of it passes before the partition is replayed.
        return markers(services) == [1, 0]

    await until(has_ended)
    assert clock.now_ms < NOW_MS + 86_400_000


async def test_an_id_that_was_idle_is_forgotten_and_its_record_too(
    open_one: OpenServices, clock: Clock
) -> None:
    services = await open_one(
        transaction_remove_expired_transaction_cleanup_interval_ms=1, transactional_id_expiration_ms=5_000
    )
    await begun(services)
    replica = services.replicas[TRANSACTIONS_TOPIC, partition_of("x", 5)]
    clock.now_ms += 5_000
    await until(lambda: replica.high_watermark == 2)
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
        await services.transactions.describe("x")


async def test_a_decision_is_finished_when_its_client_disconnects_meanwhile(open_one: OpenServices) -> None:
    services = await open_one()
    client = await begun(services, P0)
    ending = asyncio.create_task(services.transactions.end("x", client, is_commit=True, version=1))
    await asyncio.sleep(0)
    ending.cancel()
    await reached(services, TransactionState.COMPLETE_COMMIT)
    assert services.replicas[P0].log.end_offset == 1


async def test_a_transaction_is_ended_though_its_partition_was_replayed_late_and_no_client_asks(
    open_one: OpenServices, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = await open_one()
    await begun(services, P0)
    await services.close()
    read, failed = Replica.read, asyncio.Event()

    def unreadable(self: Replica, *arguments: Any, **more: Any) -> Any:
        if self.topic != TRANSACTIONS_TOPIC:
            return read(self, *arguments, **more)
        loop.call_soon_threadsafe(failed.set)
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(Replica, "read", unreadable)
    services = await open_one(transaction_abort_timed_out_transaction_cleanup_interval_ms=5)
    await asyncio.wait_for(failed.wait(), DEADLINE_SECONDS)
    monkeypatch.undo()

    def has_ended() -> bool:
        # Each time later: the failure may be noted only after the first look.
        clock.now_ms += RELOAD_AFTER_MS
        return markers(services) == [1, 0]

    await until(has_ended)


async def test_a_request_waits_a_little_for_the_markers_of_the_transaction_before_it(
    open_one: OpenServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = asyncio.Event()
    write = TransactionMarkers.write

    async def held_up(self: TransactionMarkers, marker: Any, partitions: Any) -> Any:
        await goes_on.wait()
        return await write(self, marker, partitions)

    monkeypatch.setattr(TransactionMarkers, "write", held_up)
    monkeypatch.setattr(transaction_coordinator, "ENDING_WAIT_SECONDS", 0.001)
    services = await open_one()
    transactions: TransactionCoordinator = services.transactions
    client = await begun(services, P0)
    client = await transactions.end("x", client, is_commit=True, version=2)
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.CONCURRENT_TRANSACTIONS):
        await transactions.add_partitions("x", client, [P1])
    monkeypatch.setattr(transaction_coordinator, "ENDING_WAIT_SECONDS", 60)
    waiting = asyncio.create_task(transactions.add_partitions("x", client, [P1]))
    await asyncio.sleep(0)
    goes_on.set()
    await waiting
    assert await state(services) is TransactionState.ONGOING


async def test_a_marker_that_a_later_epoch_has_made_needless_does_not_hold_its_transaction_back(
    open_one: OpenServices,
) -> None:
    services = await open_one()
    client = await begun(services, P0, P1)
    later = transaction_coordinator.TransactionMarker(client.producer_id, client.epoch + 9, 0, False)
    await services.replicas[P0].append_marker(later, NOW_MS)
    await services.transactions.end("x", client, is_commit=True, version=2)
    await reached(services, TransactionState.COMPLETE_COMMIT)
    assert markers(services) == [1, 1]


async def test_one_flush_makes_the_end_of_a_transaction_and_the_beginning_of_the_next_durable(
    open_one: OpenServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "FLUSH_SOON_MS", 600_000)
    services = await open_one()
    client = await begun(services, P0, P1)
    flushed: list[str] = []
    begin_flush = Replica.begin_flush

    def counted(self: Replica) -> Any:
        work = begin_flush(self)
        flushed.extend([] if work is None else [self.topic])
        return work

    monkeypatch.setattr(Replica, "begin_flush", counted)
    for _ in range(3):
        client = await services.transactions.end("x", client, is_commit=True, version=2)
        await services.transactions.add_partitions("x", client, [P0, P1])
    assert flushed.count(TRANSACTIONS_TOPIC) == 2 * 3
    assert (await services.transactions.describe("x")).state is TransactionState.ONGOING


async def test_a_complete_transaction_becomes_so_on_disk_without_a_request(
    open_one: OpenServices,
) -> None:
    services = await open_one()
    client = await begun(services, P0)
    await services.transactions.end("x", client, is_commit=True, version=2)
    state = services.replicas[TRANSACTIONS_TOPIC, partition_of("x", 5)]
    await until(lambda: state.high_watermark == 4)  # Empty, Ongoing, PrepareCommit, CompleteCommit.
