"""Fetch: limits with Kafka's first-batch rule, long polls woken by the high watermark, sessions, codes."""

import asyncio
import gc
import inspect
import tracemalloc
import weakref
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import pytest

from tests.unit.broker.conftest import NOW_MS
from tests.unit.broker.handlers.conftest import Asker, fetch_request, make_batch
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.broker.cluster.catalog import PartitionAssignment
from tidelog.broker.handlers.context import RequestContext
from tidelog.broker.handlers.fetch import SESSION_PARTITION_BYTES
from tidelog.broker.storage import disk as disk_module
from tidelog.broker.storage.disk import LEAST_MAPPED_BYTES, ColdRead, MappedWindow
from tidelog.broker.storage.log_types import Read, ReadResult
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.hot import (
    FIRST_BY_ID,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    decode_fetch_request,
    encode_fetch_request,
)
from tidelog.protocol.records import RecordBatchBuilder, iter_batches, read_batch_header
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import ELEMENTS_PER_STEP

Open = Callable[..., Awaitable[Asker]]
LONG_MS = 60_000


async def fetch(asker: Asker, request: FetchRequest) -> FetchResponse:
    answer = asker.call(ApiKey.FETCH, 11, request)
    if inspect.isawaitable(answer):
        answer = await asyncio.wait_for(answer, DEADLINE_SECONDS)
    assert isinstance(answer, FetchResponse)
    return answer


async def fetch_one(asker: Asker, *args: Any, **kwargs: Any) -> FetchPartitionResult:
    return (await fetch(asker, fetch_request(*args, **kwargs))).topics[0][1][0]


def stored(result: FetchPartitionResult) -> bytes:
    assert isinstance(result.records, list)
    return b"".join(bytes(part) for part in result.records)


def offsets(result: FetchPartitionResult) -> list[int]:
    return [header.base_offset for _, header in iter_batches(stored(result))]


async def filled(asker: Asker, batches: int, size: int = 100, partitions: int = 1) -> int:
    """`batches` of one record of `size` bytes in each partition; the size of one batch."""
    await asker.create("t", partitions)
    batch = make_batch(b"x" * size)
    for index in range(partitions):
        for _ in range(batches):
            await asker.produce("t", batch, partition=index)
    return len(batch)


async def parked(asker: Asker, request: FetchRequest) -> asyncio.Task[FetchResponse]:
    """A fetch that found too little and waits."""
    answer = asker.call(ApiKey.FETCH, 11, request)
    assert inspect.isawaitable(answer)
    task: asyncio.Task[FetchResponse] = asyncio.ensure_future(answer)
    while not asker.replica("t")._watchers:
        assert not task.done()
        await asyncio.sleep(0)
    return task


async def test_nothing_beyond_the_high_watermark_is_read(asker: Asker) -> None:
    await filled(asker, 1)
    asker.send(("t", 0, make_batch(b"not durable yet")), acks=1)
    result = await fetch_one(asker, ("t", 0, 0))
    assert (offsets(result), result.high_watermark) == ([0], 1)
    at_end = await fetch_one(asker, ("t", 0, 2))
    assert (at_end.error_code, offsets(at_end)) == (0, [])


async def test_limits_hold_after_the_first_batch(asker: Asker) -> None:
    size = await filled(asker, 3, partitions=2)
    assert offsets(await fetch_one(asker, ("t", 0, 0), partition_max_bytes=2 * size)) == [0, 1]
    both = await fetch(asker, fetch_request(("t", 0, 0), ("t", 1, 0), max_bytes=4 * size))
    flat = [result for _, results in both.topics for result in results]
    assert [offsets(result) for result in flat] == [[0, 1, 2], [0]]
    tight = await fetch(asker, fetch_request(("t", 0, 0), ("t", 1, 0), max_bytes=1))
    flat = [result for _, results in tight.topics for result in results]
    assert [offsets(result) for result in flat] == [[0], []]


async def test_what_is_too_little_to_answer_with_does_not_stay_in_memory_while_the_poll_waits(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(asker, 3)
    found: list[weakref.ref[Any]] = []
    read = asker.replica("t").read

    def watched(*args: Any, **kwargs: Any) -> Any:
        result = read(*args, **kwargs)
        found.extend(weakref.ref(part) for part in result.records)
        return result

    monkeypatch.setattr(asker.replica("t"), "read", watched)
    waiting = await parked(asker, fetch_request(("t", 0, 0), min_bytes=1 << 20, max_wait_ms=LONG_MS))
    assert found
    assert [part for part in found if part() is not None] == []
    waiting.cancel()


async def test_a_long_poll_is_woken_by_the_high_watermark(asker: Asker) -> None:
    await filled(asker, 1)
    waiting = await parked(asker, fetch_request(("t", 0, 1), max_wait_ms=LONG_MS))
    await asker.produce("t", make_batch(b"new"))
    result = (await asyncio.wait_for(waiting, DEADLINE_SECONDS)).topics[0][1][0]
    assert (offsets(result), result.high_watermark) == ([1], 2)
    assert not asker.replica("t")._watchers


async def test_a_long_poll_waits_for_min_bytes_without_looking_at_the_disk(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = await filled(asker, 1)
    waiting = await parked(asker, fetch_request(("t", 0, 0), max_wait_ms=LONG_MS, min_bytes=3 * size))
    log = asker.replica("t").log
    read, reads = log.read, []

    def counted(*args: Any, **kwargs: Any) -> Any:
        reads.append(args)
        return read(*args, **kwargs)

    monkeypatch.setattr(log, "read", counted)
    await asker.produce("t", make_batch(b"x" * 100))
    assert not waiting.done()
    await asker.produce("t", make_batch(b"x" * 100))
    result = (await asyncio.wait_for(waiting, DEADLINE_SECONDS)).topics[0][1][0]
    assert offsets(result) == [0, 1, 2]
    assert len(reads) == 1


async def test_a_reader_behind_waits_for_no_more_bytes_at_the_end_of_a_segment(asker: Asker) -> None:
    await asker.create("t", segment_bytes="100")
    for number in range(3):
        await asker.produce("t", make_batch(b"%d" % number))
    for number in range(2):
        request = fetch_request(("t", 0, number), max_wait_ms=LONG_MS, min_bytes=1 << 20)
        answer = asker.call(ApiKey.FETCH, 11, request)
        assert isinstance(answer, FetchResponse)
        assert offsets(answer.topics[0][1][0]) == [number]


async def test_a_consumer_reads_past_files_that_compaction_emptied(asker: Asker) -> None:
    await asker.create("t", segment_bytes="100", cleanup_policy="compact")
    for _ in range(5):
        batch = RecordBatchBuilder()
        batch.append(NOW_MS, b"key", b"value", ())
        await asker.produce("t", bytes(batch.build()))
    await asker.services.maintenance.checkpoint()
    await asker.services.cleaner.clean_dirtiest()
    log = asker.replica("t").log
    assert read_batch_header(log.read(Read(0, 1 << 20, 5)).records[0]).record_count == 0
    for offset in range(4):
        (_, header), *_ = iter_batches(stored(await fetch_one(asker, ("t", 0, offset))))
        assert (header.base_offset, header.record_count) == (3, 1)


async def test_a_long_poll_ends_at_max_wait(asker: Asker) -> None:
    await filled(asker, 1)
    result = await fetch_one(asker, ("t", 0, 1), max_wait_ms=20)
    assert (result.error_code, offsets(result), result.high_watermark) == (0, [], 1)
    some = await fetch_one(asker, ("t", 0, 0), max_wait_ms=20, min_bytes=1 << 20)
    assert offsets(some) == [0]


async def test_a_cancelled_long_poll_leaves_nothing_behind(asker: Asker) -> None:
    await filled(asker, 1)
    waiting = await parked(asker, fetch_request(("t", 0, 1), max_wait_ms=LONG_MS))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not asker.replica("t")._watchers


async def test_deleting_the_topic_wakes_its_long_polls(asker: Asker) -> None:
    await filled(asker, 1)
    waiting = await parked(asker, fetch_request(("t", 0, 1), max_wait_ms=LONG_MS))
    await asker.ask(ApiKey.DELETE_TOPICS, 1, topic_names=["t"])
    result = (await asyncio.wait_for(waiting, DEADLINE_SECONDS)).topics[0][1][0]
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_cold_pages_are_read_in_a_thread(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(asker, 2)
    log = asker.replica("t").log
    read, waits = log.read, []

    def cold_at_first(wanted: Read) -> ReadResult:
        waits.append(wanted.nowait)
        if wanted.nowait:
            raise ColdRead
        return read(wanted)

    monkeypatch.setattr(log, "read", cold_at_first)
    assert offsets(await fetch_one(asker, ("t", 0, 0), max_wait_ms=LONG_MS)) == [0, 1]
    assert waits == [True, False]


async def test_a_connection_that_sends_mapped_records_gets_them(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "WINDOW_BYTES", 2 * LEAST_MAPPED_BYTES)
    monkeypatch.setattr(disk_module, "_OVERLAP_BYTES", 0)
    await filled(asker, 3, size=LEAST_MAPPED_BYTES)
    answers = []
    for asker.connection.sends_mapped in (True, False):
        answers.append(await fetch_one(asker, ("t", 0, 0), max_bytes=LEAST_MAPPED_BYTES))
    mapped, read = ([each.obj for each in answer.records or ()] for answer in answers)  # type: ignore[union-attr]
    assert [type(each) for each in (*mapped, *read)] == [MappedWindow, bytearray]
    assert stored(answers[0]) == stored(answers[1])


@pytest.mark.parametrize("how", ["many partitions", "many aborted transactions", "a request of many steps"])
async def test_what_is_not_sent_in_the_step_that_reads_it_is_not_mapped(
    asker: Asker, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(disk_module, "WINDOW_BYTES", 2 * LEAST_MAPPED_BYTES)
    monkeypatch.setattr(disk_module, "_OVERLAP_BYTES", 0)
    await filled(asker, 3, size=LEAST_MAPPED_BYTES)
    await asker.create("u", ELEMENTS_PER_STEP)
    others, more = [], {}
    if how == "many partitions":
        others = [("u", index, 0) for index in range(ELEMENTS_PER_STEP)]
    elif how == "many aborted transactions":
        more = {"isolation_level": 1}
        aborted = [(1, 0)] * ELEMENTS_PER_STEP
        monkeypatch.setattr(asker.replica("t"), "aborted_transactions", lambda *_: aborted)
    else:
        monkeypatch.setattr(RequestContext, "is_long", True)
    asker.connection.sends_mapped = True
    request = fetch_request(("t", 0, 0), *others, max_bytes=LEAST_MAPPED_BYTES, **more)
    answer = (await fetch(asker, request)).topics[0][1][0]
    assert [type(each.obj) for each in answer.records or ()] == [bytearray]  # type: ignore[union-attr]
    asker.connection.sends_mapped = False
    assert stored(answer) == stored(await fetch_one(asker, ("t", 0, 0), max_bytes=LEAST_MAPPED_BYTES))


async def test_a_fetch_of_nothing_is_answered_at_once(asker: Asker) -> None:
    answer = await fetch(asker, fetch_request(max_wait_ms=LONG_MS))
    assert (answer.error_code, answer.topics) == (0, [])


async def test_while_memory_is_short_an_answer_brings_a_share_at_most_and_one_batch_at_least(
    asker: Asker,
) -> None:
    size = await filled(asker, 10)
    memory = asker.services.memory
    memory.measured(memory.bound_bytes, 1)
    memory.share_bytes = 3 * size
    assert offsets(await fetch_one(asker, ("t", 0, 0))) == [0, 1, 2]
    memory.share_bytes = 1
    assert offsets(await fetch_one(asker, ("t", 0, 3))) == [3]
    memory.measured(0, 1)
    assert len(offsets(await fetch_one(asker, ("t", 0, 0)))) == 10


async def test_an_answer_brings_no_more_than_makes_memory_short(open_asker: Open) -> None:
    asker = await open_asker(queued_max_bytes=20_000, socket_request_max_bytes=10_000)
    size = await filled(asker, 20, size=1_000)
    assert 5_000 < len(stored(await fetch_one(asker, ("t", 0, 0)))) <= 10_000 < 20 * size


async def test_a_fetch_that_waits_says_how_much_memory_waits_with_it(asker: Asker) -> None:
    await asker.create("t", 3)

    def held_bytes(partitions: int) -> int:
        parts = [("t", index, 0) for index in range(partitions)]
        return int(asker.call(ApiKey.FETCH, 11, fetch_request(*parts, max_wait_ms=LONG_MS)).held_bytes)

    assert held_bytes(1) > 0
    assert held_bytes(3) - held_bytes(2) == held_bytes(2) - held_bytes(1) > 0


@pytest.mark.parametrize("version", [11, 17])
async def test_a_fetch_that_waits_takes_no_more_memory_than_it_says(asker: Asker, version: int) -> None:
    await asker.create("t", 100)
    parts: list[tuple[Any, int, int]] = [("t", index, 0) for index in range(100)]
    if version >= FIRST_BY_ID:  # Each topic costs then, so each partition is in another one.
        for number in range(30):
            await asker.create(f"t{number}")
        topics = asker.services.catalog.topics()
        parts = [(topic.topic_id, 0, 0) for topic in topics]
    body = encode_fetch_request(version, fetch_request(*parts, max_wait_ms=LONG_MS))

    async def park() -> int:
        request = decode_fetch_request(version, body)
        answer = asker.call(ApiKey.FETCH, version, request)
        waiting.append((request, asyncio.ensure_future(answer)))
        await until(lambda: len(asker.replica("t")._watchers) == len(waiting))
        return int(answer.held_bytes)

    waiting: list[tuple[FetchRequest, asyncio.Future[Any]]] = []
    await park()
    gc.collect()
    tracemalloc.start()
    try:
        said = sum([await park() for _ in range(20)])
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for _, task in waiting:
        task.cancel()
    assert said / 3 < taken <= said


async def test_fetch_sessions_are_in_the_account_and_take_a_quarter_of_it_at_most(open_asker: Open) -> None:
    ten = 10 * SESSION_PARTITION_BYTES
    asker = await open_asker(queued_max_bytes=4 * ten, socket_request_max_bytes=1000)
    await asker.create("t", 11)

    def parts(count: int) -> list[tuple[str, int, int]]:
        return [("t", index, 0) for index in range(count)]

    assert (await fetch(asker, fetch_request(*parts(10), session_epoch=0))).session_id != 0
    assert asker.services.memory.beside_bytes() == ten
    assert (await fetch(asker, fetch_request(*parts(1), session_epoch=0))).session_id == 0


async def test_a_leader_that_gives_up_answers_clients_while_those_who_may_lead_fetch_from_it(
    asker: Asker,
) -> None:
    await filled(asker, 2)
    replica, node_id = asker.replica("t"), asker.services.node_id
    replica.lead(PartitionAssignment(node_id, replica.leader_epoch + 1, (node_id, 7), (node_id, 7)))

    async def code() -> ErrorCode:
        code = ErrorCode((await fetch_one(asker, ("t", 0, 0))).error_code)
        with nullcontext() if code == ErrorCode.NONE else pytest.raises(ApiError) as refused:
            asker.services.replica("t", 0)
        assert refused is None or refused.value.code == code
        return code

    assert await code() == ErrorCode.NONE
    replica.is_given_up = True
    assert await code() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    now_ms, seconds_ago_ms = asyncio.get_running_loop().time() * 1000, 5_000
    replica.fetched_by(7, 1, 2, 0, now_ms - seconds_ago_ms)
    assert await code() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    of_follower = fetch_request(("t", 0, 0), leader_epoch=replica.leader_epoch)._replace(replica_id=7)
    assert (await fetch(asker, of_follower)).topics[0][1][0].error_code == ErrorCode.NONE
    replica.fetched_by(7, 1, 2, 0, now_ms + LONG_MS)
    assert await code() == ErrorCode.NONE
