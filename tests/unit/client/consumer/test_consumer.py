"""The consumer in front of a broker that answers as told: sessions, memory, stale answers, checks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.wire.scripted import TOPIC, Request, ScriptedBroker
from tests.waiting import DEADLINE_SECONDS, until
from tidelog.client import (
    ClientClosedError,
    Consumer,
    CorruptRecordError,
    RequestTimeoutError,
    TopicAuthorizationFailedError,
    TopicPartition,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import (
    RecordBatchBuilder,
    TransactionMarker,
    build_marker,
)
from tidelog.protocol.schema import ApiKey

FIRST = TopicPartition(TOPIC, 0)
SESSION = 77


def stored(base_offset: int, *values: bytes) -> bytes:
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(1_000, None, value)
    return bytes(builder.build(base_offset=base_offset, leader_epoch=0))


class Log:
    """Partitions that a scripted broker serves, one batch an answer; remembers sessions if told to."""

    def __init__(self, *batches: tuple[int, bytes], session_id: int = 0) -> None:
        self.batches = dict(batches)
        self.session_id = session_id
        self.high_watermark = 100
        self.refusals: list[int] = []
        self.gone: set[int] = set()
        """Offsets that the log does not hold."""
        self.standing: dict[int, int] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.never = asyncio.Event()

    async def __call__(self, request: Request) -> dict[str, Any]:
        values = request.values
        if values.session_epoch > 0 and self.refusals:
            return {"error_code": self.refusals.pop(), "session_id": 0, "responses": []}
        if values.session_epoch <= 0:
            self.standing.clear()
        for topic in values.topics:
            for each in topic.partitions:
                self.standing[each.partition] = each.fetch_offset
        await self.gate.wait()
        found = {index: self.batches.get(offset) for index, offset in self.standing.items()}
        named = found if values.session_epoch <= 0 else {k: v for k, v in found.items() if v}
        if not any(named.values()):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.never.wait(), values.max_wait_ms / 1000)
        partitions = [
            {
                "partition_index": index,
                "error_code": int(self.standing[index] in self.gone),
                "high_watermark": self.high_watermark,
                "records": records or b"",
            }
            for index, records in named.items()
        ]
        return {
            "session_id": self.session_id,
            "responses": [{"topic": TOPIC, "partitions": partitions}] if partitions else [],
        }


def consumer(broker: ScriptedBroker, **settings: Any) -> Consumer:
    quick = {"retry_backoff_ms": 10, "fetch_max_wait_ms": 20, "auto_offset_reset": "none"}
    return Consumer(bootstrap_servers=broker.address, **{**quick, **settings})


@contextlib.asynccontextmanager
async def reading(broker: ScriptedBroker, **settings: Any) -> AsyncIterator[Consumer]:
    """A consumer of the first partition, from offset 0 on."""
    async with consumer(broker, **settings) as it:
        it.assign([FIRST])
        it.seek(FIRST, 0)
        yield it


async def values(it: Consumer, count: int) -> list[object]:
    async with asyncio.timeout(DEADLINE_SECONDS):
        return [(await it.getone()).value for _ in range(count)]


async def test_later_fetches_name_only_what_changed_and_closing_ends_the_session() -> None:
    log = Log((0, stored(0, b"a")), (1, stored(1, b"b")), session_id=SESSION)
    async with ScriptedBroker(partitions=2) as broker:
        broker.scripts[ApiKey.FETCH] = log
        async with consumer(broker) as it:
            it.assign([FIRST, TopicPartition(TOPIC, 1)])
            it.seek(FIRST, 0)
            it.seek(TopicPartition(TOPIC, 1), 50)
            assert await values(it, 2) == [b"a", b"b"]
        asked = [request.values for request in broker.seen(ApiKey.FETCH)]
    full = next(each for each in asked if len(each.topics) and len(each.topics[0].partitions) == 2)
    assert full.session_epoch == 0
    later = [each for each in asked if each.session_epoch > 0]
    assert {each.session_id for each in later} == {SESSION}
    assert all(part.partition == 0 for each in later for topic in each.topics for part in topic.partitions)
    assert (asked[-1].session_id, asked[-1].session_epoch) == (SESSION, -1)


async def test_a_topic_that_was_not_asked_for_before_is_looked_up_at_once(broker: ScriptedBroker) -> None:
    broker.scripts[ApiKey.FETCH] = Log((0, stored(0, b"a")))
    async with reading(broker, retry_backoff_ms=60_000) as it:
        assert await values(it, 1) == [b"a"]


async def test_a_topic_that_is_subscribed_to_after_the_start_is_read(broker: ScriptedBroker) -> None:
    broker.scripts[ApiKey.LIST_OFFSETS] = placed
    broker.scripts[ApiKey.FETCH] = Log((0, stored(0, b"a")))
    async with consumer(broker, auto_offset_reset="earliest") as it:
        it.subscribe([TOPIC])
        assert await values(it, 1) == [b"a"]


@pytest.mark.parametrize("group_id", [None, "g"])
async def test_a_consumer_without_topics_says_so_and_one_that_gave_them_up_waits(
    group_id: str | None, broker: ScriptedBroker
) -> None:
    broker.scripts[ApiKey.FIND_COORDINATOR] = lambda _: None
    async with consumer(broker, group_id=group_id) as it:
        for read in (it.getone, it.getmany, it.getmany_columns, it.__anext__):
            with pytest.raises(ValueError, match="no topics"):
                await read()  # type: ignore[operator]
        it.assign([FIRST])
        it.unsubscribe()
        assert await it.getmany() == {}


async def test_an_iteration_before_the_start_does_not_end_as_if_all_were_read(broker: ScriptedBroker) -> None:
    it = consumer(broker)
    with pytest.raises(ClientClosedError, match="start"):
        await anext(it)
    await it.start()
    await it.stop()
    assert [record async for record in it] == []


@pytest.mark.parametrize("offset", ["0", 0.5, None])
async def test_what_is_no_offset_or_limit_is_refused_and_spoils_nothing(offset: Any) -> None:
    async with ScriptedBroker() as broker:
        broker.scripts[ApiKey.FETCH] = Log((0, stored(0, b"a")))
        async with reading(broker) as it:
            with pytest.raises(TypeError, match=f"offset: expected a whole number, got {offset!r}"):
                it.seek(FIRST, offset)
            with pytest.raises(TypeError, match=f"timestamp_ms: expected a whole number, got {offset!r}"):
                it.seek_to_timestamp(offset)
            with pytest.raises(TypeError, match=f"timestamp: expected a whole number, got {offset!r}"):
                await it.offsets_for_times({FIRST: offset})
            with pytest.raises(TypeError, match="expected a dict"):
                await it.offsets_for_times([FIRST])  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="max_records: expected 1 or more, got -1"):
                await it.getmany(max_records=-1)
            with pytest.raises(TypeError, match="timeout_ms: expected a number of milliseconds, got None"):
                await it.getmany(timeout_ms=None)  # type: ignore[arg-type]
            assert await values(it, 1) == [b"a"]


@pytest.mark.parametrize("code", [70, 71])
async def test_a_lost_session_costs_no_record(code: int, broker: ScriptedBroker) -> None:
    log = Log(*((offset, stored(offset, b"%d" % offset)) for offset in range(4)), session_id=SESSION)
    log.refusals = [code, code]
    broker.scripts[ApiKey.FETCH] = log
    async with reading(broker) as it:
        assert await values(it, 4) == [b"0", b"1", b"2", b"3"]
    assert log.refusals == []


@pytest.mark.parametrize("newest", [4, 12])
async def test_brokers_without_sessions_are_read_as_well(newest: int) -> None:
    log = Log(*((offset, stored(offset, b"%d" % offset)) for offset in range(3)))
    async with ScriptedBroker(Fetch=(4, newest)) as broker:
        broker.scripts[ApiKey.FETCH] = log
        async with reading(broker) as it:
            assert await values(it, 3) == [b"0", b"1", b"2"]


async def test_an_answer_that_comes_after_a_seek_is_thrown_away(broker: ScriptedBroker) -> None:
    log = Log((0, stored(0, b"stale")), (10, stored(10, b"fresh")))
    log.gate.clear()
    broker.scripts[ApiKey.FETCH] = log
    async with reading(broker) as it:
        await until(lambda: bool(broker.seen(ApiKey.FETCH)))
        it.seek(FIRST, 10)
        log.gate.set()
        assert await values(it, 1) == [b"fresh"]
        assert await it.position(FIRST) == 11


@pytest.mark.parametrize(("high_watermark", "in_flight"), [(1, 0), (2, 1)])
async def test_at_the_end_of_the_log_records_are_read_before_the_next_fetch_is_sent(
    high_watermark: int, in_flight: int, broker: ScriptedBroker
) -> None:
    """Where there is more, the broker reads it meanwhile."""
    log = Log((0, stored(0, b"a")))
    log.high_watermark = high_watermark
    log.gate.clear()
    broker.scripts[ApiKey.FETCH] = log
    async with reading(broker) as it:

        async def read() -> float:
            await it.getone()
            return it.metrics()["requests-in-flight"]

        reader = asyncio.create_task(read())
        await until(lambda: bool(broker.seen(ApiKey.FETCH)))
        log.gate.set()
        assert await reader == in_flight


async def test_what_is_fetched_ahead_stays_within_its_bound(broker: ScriptedBroker) -> None:
    batch = stored(0, b"x" * 1000)
    log = Log(*((offset, stored(offset, b"x" * 1000)) for offset in range(50)))
    bound = 3 * len(batch)
    broker.scripts[ApiKey.FETCH] = log
    async with reading(broker, buffer_bytes=bound) as it:
        await until(lambda: it._fetcher is not None and it._fetcher._is_waiting_for_reads)
        unread = sum(reader.buffered_bytes for reader in it._readers.values())
        assert bound <= unread < bound + len(batch)
        assert len(await values(it, 50)) == 50


async def test_a_partition_with_enough_unread_is_left_out_and_taken_up_again_soon() -> None:
    other = TopicPartition(TOPIC, 1)
    batch = stored(0, b"x" * 1000)
    log = Log(*((offset, stored(offset, b"x" * 1000)) for offset in range(20)))
    enough = 2 * len(batch)
    async with ScriptedBroker(partitions=2) as broker:
        broker.scripts[ApiKey.FETCH] = log
        settings = {"max_partition_fetch_bytes": enough, "fetch_max_wait_ms": 60_000}
        async with consumer(broker, **settings) as it:
            it.assign([FIRST, other])
            it.seek(FIRST, 0)
            it.seek(other, 1_000)
            await until(lambda: it._readers[FIRST].buffered_bytes >= enough)
            asked = len(broker.seen(ApiKey.FETCH))
            await until(lambda: len(broker.seen(ApiKey.FETCH)) > asked)
            assert it._readers[FIRST].buffered_bytes < enough + len(batch)
            last = broker.seen(ApiKey.FETCH)[-1].values
            assert [each.partition for each in last.topics[0].partitions] == [1]
            # The poll for the other one must not last while this one only waits for its reader.
            assert last.max_wait_ms <= 25
            assert len(await values(it, 20)) == 20


@pytest.mark.parametrize(("policy", "advice"), [("earliest", "read faster"), ("latest", "=earliest would")])
async def test_a_partition_behind_the_log_start_keeps_no_other_from_being_fetched(
    policy: str, advice: str
) -> None:
    """A reader at the edge of retention would read ever less if each such answer delayed all partitions."""
    other = TopicPartition(TOPIC, 1)
    log = Log((1, stored(1, b"unread")), (6, stored(6, b"first")))
    log.batches |= {offset: stored(offset, b"x") for offset in range(10, 30)}
    log.gone = {2}
    async with ScriptedBroker(partitions=2) as broker:
        broker.scripts |= {ApiKey.FETCH: log, ApiKey.LIST_OFFSETS: partial(placed, offset=6)}
        settings = {"retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000}
        with capture_logs() as events:
            async with consumer(broker, auto_offset_reset=policy, **settings) as it:
                it.assign([FIRST, other])
                it.seek(FIRST, 1)
                it.seek(other, 10)
                await until(lambda: it._readers[other].fetch_offset == 30)
                assert sorted(map(bytes, await values(it, 22))) == [b"first", b"unread", *[b"x"] * 20]
    passed_over = [event for event in events if event["event"] == "offsets_passed_over"]
    assert [(event["from_offset"], event["count"]) for event in passed_over] == [(2, 4)]
    assert advice in passed_over[0]["advice"]


async def test_batches_without_records_to_return_make_room_for_the_next_ones(broker: ScriptedBroker) -> None:
    marker = bytearray(build_marker(TransactionMarker(1, 0, 0, is_commit=True), 1_000))
    log = Log((0, bytes(marker)), (1, stored(1, b"a")))
    broker.scripts[ApiKey.FETCH] = log
    async with reading(broker, max_partition_fetch_bytes=1) as it:
        assert await values(it, 1) == [b"a"]


async def test_a_partition_assigned_again_while_its_poll_ends_is_read(broker: ScriptedBroker) -> None:
    log = Log(*((offset, stored(offset, b"%d" % offset)) for offset in range(2)))
    loop = asyncio.get_running_loop()
    broker.scripts[ApiKey.FETCH] = log
    async with reading(broker, max_partition_fetch_bytes=1) as it:
        await until(lambda: it._fetcher is not None and it._fetcher._is_waiting_for_reads)

        def assign_again() -> None:
            it.assign([FIRST])
            it.seek(FIRST, 1)

        it.resume(FIRST)
        await asyncio.sleep(0)  # The poll goes on in the next step, and ends then.
        loop.call_soon(assign_again)
        it.assign([])
        assert await values(it, 1) == [b"1"]


async def test_a_partition_given_up_while_the_consumer_connects_does_not_end_the_reading_of_others() -> None:
    async with ScriptedBroker(partitions=2) as broker:
        broker.scripts[ApiKey.FETCH] = Log((0, stored(0, b"a")))
        async with consumer(broker) as it:
            versions_asked = len(broker.seen(ApiKey.API_VERSIONS))
            go_on = broker.hold(ApiKey.API_VERSIONS)
            both = [FIRST, TopicPartition(TOPIC, 1)]
            it.assign(both)
            for each in both:
                it.seek(each, 0)
            await until(lambda: len(broker.seen(ApiKey.API_VERSIONS)) > versions_asked)
            it.assign([FIRST])
            go_on.set()
            assert await values(it, 1) == [b"a"]


async def test_a_call_that_waits_for_a_position_hears_of_a_seek(broker: ScriptedBroker) -> None:
    broker.scripts[ApiKey.LIST_OFFSETS] = lambda request: None
    async with consumer(broker, auto_offset_reset="earliest") as it:
        it.assign([FIRST])
        it.pause(FIRST)
        asking = asyncio.create_task(it.position(FIRST))
        await until(lambda: bool(broker.seen(ApiKey.LIST_OFFSETS)))
        it.seek(FIRST, 7)
        assert await asyncio.wait_for(asking, DEADLINE_SECONDS) == 7


async def test_a_long_poll_may_last_longer_than_other_requests(broker: ScriptedBroker) -> None:
    broker.scripts[ApiKey.FETCH] = Log()
    async with reading(broker, fetch_max_wait_ms=1_200, request_timeout_ms=800):
        await until(lambda: len(broker.seen(ApiKey.FETCH)) >= 2)
    first, second, *_ = broker.seen(ApiKey.FETCH)
    assert first.connection == second.connection


async def test_crcs_are_checked_unless_told_otherwise(broker: ScriptedBroker) -> None:
    bad = bytearray(stored(0, b"value"))
    bad[17] ^= 1
    broker.scripts[ApiKey.FETCH] = Log((0, bytes(bad)))
    async with reading(broker) as it:
        with pytest.raises(CorruptRecordError, match="CRC"):
            await values(it, 1)
    async with reading(broker, check_crcs=False) as it:
        assert await values(it, 1) == [b"value"]


def placed(request: Request, offset: int = 0) -> dict[str, object]:
    """Every partition begins at this offset."""
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": each.partition_index, "error_code": 0, "timestamp": -1, "offset": offset}
                for each in topic.partitions
            ],
        }
        for topic in request.values.topics
    ]
    return {"topics": topics}


async def test_a_partition_without_a_leader_does_not_keep_the_others_from_being_read() -> None:
    async with ScriptedBroker(partitions=2) as broker:

        def metadata(request: Request) -> dict[str, Any]:
            answer: dict[str, Any] = broker.metadata([each.name for each in request.values.topics])
            for topic in answer["topics"]:
                topic["partitions"][1] |= {"leader_id": -1, "error_code": 5}
            return answer

        broker.scripts |= {ApiKey.METADATA: metadata, ApiKey.LIST_OFFSETS: placed}
        broker.scripts[ApiKey.FETCH] = Log((0, stored(0, b"a")))
        async with consumer(broker, auto_offset_reset="earliest") as it:
            it.assign([FIRST, TopicPartition(TOPIC, 1)])
            # Less than request_timeout_ms, which the other one takes.
            async with asyncio.timeout(20):
                assert (await it.getone()).value == b"a"


async def test_a_partition_that_its_topic_does_not_have_is_reported_once(broker: ScriptedBroker) -> None:
    with capture_logs() as events:
        async with consumer(broker) as it:
            it.assign([TopicPartition(TOPIC, 7)])
            it.seek(TopicPartition(TOPIC, 7), 0)
            await until(lambda: len(broker.seen(ApiKey.METADATA)) >= 5)
    [event] = [each for each in events if each["event"] == "partition_not_found"]
    assert (event["topic"], event["partition"], event["partition_count"]) == (TOPIC, 7, 1)


async def test_a_topic_that_a_broker_does_not_know_for_a_moment_is_read_on_where_it_was() -> None:
    code = 0
    async with ScriptedBroker() as broker:
        broker.scripts[ApiKey.METADATA] = lambda _: broker.metadata([TOPIC], error_code=code)
        broker.scripts[ApiKey.LIST_OFFSETS] = placed
        broker.scripts[ApiKey.FETCH] = Log((0, stored(0, b"a")), (1, stored(1, b"b")))
        it = Consumer(TOPIC, bootstrap_servers=broker.address, auto_offset_reset="earliest")
        async with it:
            assert await values(it, 1) == [b"a"]
            code = 3
            await it._cluster.refresh()
            assert it._cluster.image.leader(FIRST) < 0
            code = 0
            await it._cluster.refresh()
            assert await values(it, 1) == [b"b"]


async def test_calls_without_a_timeout_let_records_come(broker: ScriptedBroker) -> None:
    broker.scripts[ApiKey.FETCH] = Log((0, stored(0, b"a")))
    async with reading(broker) as it:
        calls = 0
        while not await it.getmany():
            calls += 1
            assert calls < 100_000


async def test_a_position_that_cannot_be_found_is_not_waited_for_without_end_or_a_word() -> None:
    async with ScriptedBroker() as broker:
        broker.scripts[ApiKey.LIST_OFFSETS] = lambda _: None
        it = consumer(broker, auto_offset_reset="earliest", request_timeout_ms=50)
        with capture_logs() as events:
            async with it:
                it.assign([FIRST])
                with pytest.raises(RequestTimeoutError, match="the position of t-0"):
                    await it.position(FIRST)
                await until(lambda: "positions_not_found" in [each["event"] for each in events])


async def test_offsets_of_a_forbidden_topic_do_not_keep_the_others_from_being_read() -> None:
    def committed(request: Request) -> dict[str, Any]:
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": index,
                        "committed_offset": 0,
                        "error_code": 0 if topic.name == TOPIC else ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    }
                    for index in topic.partition_indexes
                ],
            }
            for topic in request.values.topics
        ]
        return {"error_code": 0, "topics": topics}

    async with ScriptedBroker(OffsetFetch=(1, 7)) as broker:
        broker.scripts[ApiKey.FIND_COORDINATOR] = lambda _: {"error_code": 0, "node_id": 1}
        broker.scripts[ApiKey.OFFSET_FETCH] = committed
        broker.scripts[ApiKey.FETCH] = Log((0, stored(0, b"a")))
        async with consumer(broker, group_id="g", enable_auto_commit=False) as it:
            it.assign([TopicPartition("forbidden", 0), FIRST])
            await until(lambda: it._readers[FIRST].has_unread)
            assert await it.position(FIRST) == 0
            with pytest.raises(TopicAuthorizationFailedError, match="topic 'forbidden'"):
                await it.position(TopicPartition("forbidden", 0))
