"""Transactions on a partition over real services: which batches begin one, and what consumers see of them."""

import asyncio
import inspect
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.unit.broker.conftest import NOW_MS
from tests.unit.broker.handlers.conftest import Asker, fetch_request
from tests.waiting import until
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import FetchPartitionResult, ProducePartitionResult, ProduceRequest
from tidelog.protocol.records import RecordBatchBuilder, TransactionMarker, iter_batches
from tidelog.protocol.schema import ApiKey

LONG_MS = 60_000


@dataclass
class Coordinator:
    """A coordinator of transactions that gives one answer, and notes what it is asked."""

    code: ErrorCode = ErrorCode.NONE
    asked: list[tuple[str, int, int, str, int]] = field(default_factory=list)

    def permits(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int
    ) -> ErrorCode:
        self.asked.append((transactional_id, producer_id, producer_epoch, topic, partition))
        return self.code


@pytest.fixture
async def coordinator(asker: Asker) -> Coordinator:
    await asker.create("t")
    found = asker.services.transaction_verifier = Coordinator()
    for _ in range(10):
        await asker.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None)
    return found


def transactional(producer_id: int, sequence: int, *values: bytes, epoch: int = 0) -> bytes:
    builder = RecordBatchBuilder()
    for value in values or (b"v",):
        builder.append(NOW_MS, None, value)
    return bytes(
        builder.build(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
        )
    )


async def produce(
    asker: Asker, batch: bytes, version: int = 9, name: str | None = "app"
) -> ProducePartitionResult:
    answer = asker.call(ApiKey.PRODUCE, version, ProduceRequest(name, -1, 30_000, [("t", [(0, batch)])]))
    if inspect.isawaitable(answer):
        answer = await answer
    result: ProducePartitionResult = answer[0][1][0]
    return result


async def end(asker: Asker, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
    marker = TransactionMarker(producer_id, epoch, 0, commit)
    await asker.replica("t").append_marker(marker, NOW_MS)


async def fetch(asker: Asker, offset: int, isolation_level: int = 1, **more: int) -> FetchPartitionResult:
    request = fetch_request(("t", 0, offset), isolation_level=isolation_level, **more)
    answer = asker.call(ApiKey.FETCH, 11, request)
    if inspect.isawaitable(answer):
        answer = await answer
    result: FetchPartitionResult = answer.topics[0][1][0]
    return result


def offsets(result: FetchPartitionResult) -> list[int]:
    parts: Any = result.records or ()
    return [header.base_offset for part in parts for _, header in iter_batches(part)]


async def test_the_coordinator_is_asked_for_the_batch_that_begins_a_transaction_and_no_other(
    asker: Asker, coordinator: Coordinator
) -> None:
    for sequence in (0, 1, 1, 2):
        assert (await produce(asker, transactional(3, sequence))).error_code == ErrorCode.NONE
    assert coordinator.asked == [("app", 3, 0, "t", 0)]
    await end(asker, 3, commit=True)
    assert (await produce(asker, transactional(3, 2))).error_code == ErrorCode.UNKNOWN_PRODUCER_ID
    assert len(coordinator.asked) == 1
    assert (await produce(asker, transactional(3, 3))).error_code == ErrorCode.NONE
    assert len(coordinator.asked) == 2


@pytest.mark.parametrize(
    ("code", "version", "answered"),
    [
        (ErrorCode.INVALID_TXN_STATE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_TXN_STATE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 11, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
async def test_what_the_coordinator_refuses_is_not_appended(
    asker: Asker, coordinator: Coordinator, code: ErrorCode, version: int, answered: ErrorCode
) -> None:
    coordinator.code = code
    result = await produce(asker, transactional(3, 0), version)
    assert (result.error_code, asker.replica("t").log.end_offset) == (answered, 0)
    assert "transactional id app" in (result.error_message or "")


async def test_a_session_of_committed_reads_names_aborted_transactions_too(
    asker: Asker, coordinator: Coordinator
) -> None:
    first = asker.call(
        ApiKey.FETCH, 12, fetch_request(("t", 0, 0), isolation_level=1, session_id=0, session_epoch=0)
    )
    assert first.session_id
    await produce(asker, transactional(3, 0))
    await end(asker, 3, commit=False)
    following = asker.call(
        ApiKey.FETCH,
        12,
        fetch_request(isolation_level=1, session_id=first.session_id, session_epoch=1),
    )
    (result,) = following.topics[0][1]
    assert (offsets(result), result.aborted_transactions) == ([0, 1], [(3, 0)])


async def test_a_long_poll_for_committed_records_waits_for_the_last_stable_offset(
    asker: Asker, coordinator: Coordinator
) -> None:
    await produce(asker, transactional(3, 0))
    await produce(asker, transactional(4, 0))
    reading = asyncio.ensure_future(fetch(asker, 0, max_wait_ms=LONG_MS))
    await until(lambda: asker.replica("t")._watchers)
    await produce(asker, transactional(4, 1))
    await end(asker, 4, commit=True)
    assert not reading.done()
    await end(asker, 3, commit=True)
    assert offsets(await reading) == [0, 1, 2, 3, 4]


async def test_a_long_poll_counts_the_bytes_that_became_stable(
    asker: Asker, coordinator: Coordinator
) -> None:
    await produce(asker, transactional(3, 0, b"x" * 1000))
    await produce(asker, transactional(4, 0, b"y" * 100))
    reading = asyncio.ensure_future(fetch(asker, 0, max_wait_ms=LONG_MS, min_bytes=1300))
    await until(lambda: asker.replica("t")._watchers)
    await end(asker, 3, commit=True)  # About 1070 bytes are stable now.
    for _ in range(20):
        await asyncio.sleep(0)
    assert not reading.done()
    await end(asker, 4, commit=True)
    assert offsets(await reading) == [0, 1, 2, 3]
