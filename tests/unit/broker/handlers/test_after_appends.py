"""What was appended before a question, and perhaps acknowledged with acks=1, is in the answer to it.

Each question comes in the same step of the loop as the append, so that no flush can have come between them.
"""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.broker.conftest import NOW_MS
from tests.unit.broker.handlers.conftest import Asker, fetch_request, make_batch
from tests.waiting import until
from tidelog.broker.handlers import fetch
from tidelog.broker.storage.disk import Disk
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import iter_batches
from tidelog.protocol.schema import ApiKey, decode_request, encode_request

LATEST, MAX_TIMESTAMP = -1, -3
LONG_MS = 60_000
NEW_OFFSET = 2
"""Of the record that is appended last; two are before it."""

Open = Callable[..., Awaitable[Asker]]
Question = Callable[[Asker], Awaitable[tuple[int, int]]]
"""Gives an error code and an offset."""


class StillDisk(Disk):
    """Syncs no file while it stands still, or fails to."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.asked = threading.Event()
        self.error: OSError | None = None

    def fdatasync(self, fd: int) -> None:
        self.asked.set()
        self.goes_on.wait()
        if self.error is not None:
            raise self.error
        super().fdatasync(fd)


def by_timestamp(timestamp: int) -> Question:
    async def ask(asker: Asker) -> tuple[int, int]:
        wanted = {"partition_index": 0, "timestamp": timestamp}
        answer = await asker.ask(
            ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=[{"name": "t", "partitions": [wanted]}]
        )
        found = answer.topics[0].partitions[0]
        return found.error_code, found.offset

    return ask


async def end_of_epoch(asker: Asker) -> tuple[int, int]:
    wanted = {"partition": 0, "leader_epoch": 0}
    answer = await asker.ask(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, topics=[{"topic": "t", "partitions": [wanted]}]
    )
    found = answer.topics[0].partitions[0]
    return found.error_code, found.end_offset


def deleted_before(offset: int) -> Question:
    async def ask(asker: Asker) -> tuple[int, int]:
        wanted = {"partition_index": 0, "offset": offset}
        answer = await asker.ask(ApiKey.DELETE_RECORDS, 2, topics=[{"name": "t", "partitions": [wanted]}])
        found = answer.topics[0].partitions[0]
        return found.error_code, found.low_watermark

    return ask


def fetched(max_wait_ms: int, min_bytes: int) -> Question:
    async def ask(asker: Asker) -> tuple[int, int]:
        wanted = fetch_request(("t", 0, NEW_OFFSET), max_wait_ms=max_wait_ms, min_bytes=min_bytes)
        answer = asker.call(ApiKey.FETCH, 11, wanted)
        if inspect.isawaitable(answer):
            answer = await answer
        result = answer.topics[0][1][0]
        headers = [header for _, header in iter_batches(b"".join(map(bytes, result.records)))]
        return result.error_code, headers[-1].base_offset if headers else -1

    return ask


END = NEW_OFFSET + 1
QUESTIONS: dict[str, tuple[Question, int]] = {
    "latest": (by_timestamp(LATEST), END),
    "by time": (by_timestamp(NOW_MS + 5), NEW_OFFSET),
    "max timestamp": (by_timestamp(MAX_TIMESTAMP), NEW_OFFSET),
    "end of epoch": (end_of_epoch, END),
    "delete to the end": (deleted_before(-1), END),
    "delete before the end": (deleted_before(END), END),
    "fetch without waiting": (fetched(0, 1), NEW_OFFSET),
    "fetch of no bytes": (fetched(LONG_MS, 0), NEW_OFFSET),
    "fetch that waits a little": (fetched(1, 1), NEW_OFFSET),
    "fetch of more than there is": (fetched(1, 1 << 20), NEW_OFFSET),
    "long poll": (fetched(LONG_MS, 1), NEW_OFFSET),
}


@pytest.fixture
async def disk() -> AsyncIterator[StillDisk]:
    made = StillDisk()
    yield made
    made.goes_on.set()


@pytest.fixture
async def asker(open_asker: Open, disk: StillDisk) -> Asker:
    made = await open_asker(disk=disk)
    await made.create("t")
    for _ in range(NEW_OFFSET):
        await made.produce("t", make_batch(b"v"))
    disk.asked.clear()
    return made


def append(asker: Asker, acks: int) -> Any:
    return asker.send(("t", 0, make_batch(b"new", timestamp_ms=NOW_MS + 10)), acks=acks)


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("name", QUESTIONS)
async def test_an_answer_counts_what_was_appended_before_it_was_asked_for(
    asker: Asker, name: str, acks: int
) -> None:
    ask, expected = QUESTIONS[name]
    append(asker, acks)
    assert asker.replica("t").high_watermark == NEW_OFFSET
    assert await ask(asker) == (ErrorCode.NONE, expected)


@pytest.mark.parametrize("name", QUESTIONS)
async def test_without_durable_acks_an_answer_counts_what_is_only_written(asker: Asker, name: str) -> None:
    ask, expected = QUESTIONS[name]
    replica = asker.replica("t")
    replica.reconfigure(replace(replica.log.config, acks_all_durable=False))
    ((_, (written,)),) = append(asker, acks=-1)
    assert (written.base_offset, replica.ends) == (NEW_OFFSET, (END, NEW_OFFSET, END, END))
    assert await ask(asker) == (ErrorCode.NONE, expected)


@pytest.mark.parametrize("name", QUESTIONS)
async def test_and_it_comes_only_once_that_is_durable(
    asker: Asker, disk: StillDisk, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(fetch, "FLUSH_PATIENCE_SECONDS", 60.0)
    ask, expected = QUESTIONS[name]
    disk.goes_on.clear()
    append(asker, acks=1)
    asking = asyncio.ensure_future(ask(asker))
    await until(disk.asked.is_set)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not asking.done()
    disk.goes_on.set()
    assert await asking == (ErrorCode.NONE, expected)


@pytest.mark.parametrize("name", QUESTIONS)
async def test_a_partition_whose_flush_fails_is_answered_with_its_error(
    asker: Asker, disk: StillDisk, name: str
) -> None:
    ask, _ = QUESTIONS[name]
    disk.error = OSError(5, "Input/output error")
    append(asker, acks=1)
    assert await ask(asker) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


@pytest.mark.parametrize("name", QUESTIONS)
async def test_a_client_that_disconnects_leaves_nothing_behind(
    asker: Asker, disk: StillDisk, name: str
) -> None:
    ask, _ = QUESTIONS[name]
    disk.goes_on.clear()
    append(asker, acks=1)
    asking = asyncio.ensure_future(ask(asker))
    await until(disk.asked.is_set)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    disk.goes_on.set()
    assert await by_timestamp(LATEST)(asker) == (ErrorCode.NONE, END)
    assert not asker.replica("t")._watchers


async def test_a_fetch_gets_available_data_from_a_disk_that_hangs(
    asker: Asker, disk: StillDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "FLUSH_PATIENCE_SECONDS", 0.01)
    disk.goes_on.clear()
    append(asker, acks=1)
    assert await fetched(0, 1)(asker) == (ErrorCode.NONE, -1)


async def test_an_end_is_answered_at_once_where_nothing_is_on_its_way(asker: Asker) -> None:
    wanted = {"partition_index": 0, "timestamp": LATEST}
    values = {"replica_id": -1, "topics": [{"name": "t", "partitions": [wanted]}]}
    request = decode_request(ApiKey.LIST_OFFSETS, 7, encode_request(ApiKey.LIST_OFFSETS, 7, values))
    answer = asker.call(ApiKey.LIST_OFFSETS, 7, request)
    assert answer["topics"][0]["partitions"][0]["offset"] == NEW_OFFSET
    idle = asker.call(ApiKey.FETCH, 11, fetch_request(("t", 0, NEW_OFFSET)))
    assert not inspect.isawaitable(idle)
