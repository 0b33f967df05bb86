"""Fetch, ListOffsets and DeleteRecords go by one value for the ends of a log, each by its own of them."""

import asyncio
from typing import Any

import pytest

from tests.unit.broker.conftest import NOW_MS
from tests.unit.broker.handlers.conftest import Asker, fetch_request, make_batch
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.replicas.replica import Replica
from tidelog.broker.storage.log_types import READ_COMMITTED, LogEnds
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import FetchPartitionResult
from tidelog.protocol.records import iter_batches
from tidelog.protocol.schema import ApiKey

READ_UNCOMMITTED = 0
ENDS = LogEnds(end=10, committed=7, high_watermark=8, last_stable=6)
VISIBLE = {READ_UNCOMMITTED: 8, READ_COMMITTED: 6}


@pytest.fixture
async def ten(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> Asker:
    """Topic `t` with ten records, a millisecond apart, of which each reader may see another part."""
    await asker.create("t")
    for number in range(10):
        await asker.produce("t", make_batch(b"v", timestamp_ms=NOW_MS - 100 + number))
    monkeypatch.setattr(Replica, "ends", ENDS)
    return asker


async def answered(answer: Any) -> Any:
    return await asyncio.wait_for(answer, DEADLINE_SECONDS) if asyncio.iscoroutine(answer) else answer


async def listed(asker: Asker, timestamp: int, isolation_level: int) -> tuple[int, int]:
    asked = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
    topics = [{"name": "t", "partitions": [asked]}]
    values: dict[str, Any] = {"replica_id": -1, "isolation_level": isolation_level, "topics": topics}
    answer = await asker.ask(ApiKey.LIST_OFFSETS, 7, **values)
    found = answer.topics[0].partitions[0]
    return found.error_code, found.offset


@pytest.mark.parametrize("level", [READ_UNCOMMITTED, READ_COMMITTED])
async def test_a_reader_gets_no_divergence_behind_its_end(ten: Asker, level: int) -> None:
    end = VISIBLE[level]
    for offset in range(end + 1):
        request = fetch_request(("t", 0, offset), isolation_level=level)
        result = (await answered(ten.call(ApiKey.FETCH, 11, request))).topics[0][1][0]
        assert isinstance(result, FetchPartitionResult)
        assert (result.high_watermark, result.last_stable_offset) == (8, 6)
        data = b"".join(map(bytes, result.records or ()))
        assert [header.base_offset for _, header in iter_batches(data)] == list(range(offset, end))
    assert await listed(ten, -1, level) == (ErrorCode.NONE, end)
    for number in range(10):
        expected = number if number < end else -1
        assert await listed(ten, NOW_MS - 100 + number, level) == (ErrorCode.NONE, expected)


async def test_records_are_deleted_up_to_the_committed_end(ten: Asker) -> None:
    for offset, expected in ((8, ErrorCode.OFFSET_OUT_OF_RANGE), (6, ErrorCode.NONE), (-1, ErrorCode.NONE)):
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": offset}]}]
        answer = await ten.ask(ApiKey.DELETE_RECORDS, 1, topics=topics, timeout_ms=1000)
        assert answer.topics[0].partitions[0].error_code == expected
    assert ten.replica("t").log.start_offset == ENDS.committed
