"""Produce: order of arrival, one answer when all is durable, each partition alone, Kafka's codes."""

import asyncio
from types import GeneratorType
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.broker.conftest import NOW_MS, Clock
from tests.unit.broker.handlers.conftest import Asker, make_batch
from tests.waiting import DEADLINE_SECONDS
from tidelog.broker.handlers.context import CloseConnection, LateAnswer, RequestContext
from tidelog.broker.handlers.produce import STEP_COST_APPEND
from tidelog.broker.handlers.produce_answers import Deadlines, PendingProduce
from tidelog.broker.observability.producer_outcomes import Place
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.framing import RequestHeader
from tidelog.protocol.hot import ProduceRequest
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey
from tidelog.protocol.steps import ELEMENTS_PER_STEP, begin, finish


async def issued_id(asker: Asker) -> int:
    answer = await asker.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None)
    return int(answer.producer_id)


async def test_an_answer_comes_only_when_the_batch_is_durable(asker: Asker) -> None:
    await asker.create("t")
    answer = asker.send(("t", 0, make_batch(b"v")))
    assert isinstance(answer, LateAnswer)
    assert asker.replica("t").high_watermark == 0
    await answer
    assert asker.replica("t").high_watermark == 1
    assert asker.replica("t").log.flushed_end_offset == 1


async def test_acks_1_is_answered_at_once_and_becomes_readable_soon(asker: Asker) -> None:
    await asker.create("t")
    answer = asker.send(("t", 0, make_batch(b"v")), acks=1)
    assert answer[0][1][0].base_offset == 0
    replica = asker.replica("t")
    assert replica.high_watermark == 0
    await asyncio.wait_for(replica.committed(1), DEADLINE_SECONDS)
    assert replica.high_watermark == 1


async def test_acks_1_is_answered_after_the_flush_that_flush_messages_asks_for(asker: Asker) -> None:
    await asker.create("t", 2, flush_messages="3")
    replica = asker.replica("t")
    assert asker.send(("t", 0, make_batch(b"1", b"2")), acks=1)[0][1][0].base_offset == 0
    assert replica.high_watermark == 0
    # The second partition needs no flush, and is answered with the first one.
    answer = asker.send(("t", 0, make_batch(b"3")), ("t", 1, make_batch(b"v")), acks=1)
    assert isinstance(answer, LateAnswer)
    assert [results[0].base_offset for _, results in await answer] == [2, 0]
    assert replica.log.flushed_end_offset == 3


@pytest.mark.parametrize("setting", [{"flush_ms": "0"}, {"flush_messages": "1"}])
async def test_acks_0_is_flushed_at_once_where_the_topic_asks_for_it(
    asker: Asker, setting: dict[str, str]
) -> None:
    await asker.create("t", **setting)
    replica, requested = asker.replica("t"), []
    replica._group_commit.request = requested.append  # type: ignore[method-assign, assignment]
    assert asker.send(("t", 0, make_batch(b"v")), acks=0) is None
    assert requested == [replica]


async def test_acks_1_data_is_flushed_without_a_waiting_request(asker: Asker) -> None:
    await asker.create("t")
    replica, moved = asker.replica("t"), asyncio.Event()

    class Watcher:
        def replica_changed(self, replica: Any) -> None:
            moved.set()

    replica.watch(Watcher())
    asker.send(("t", 0, make_batch(b"v")), acks=1)
    await asyncio.wait_for(moved.wait(), DEADLINE_SECONDS)
    assert replica.high_watermark == 1


async def test_a_refusal_of_acks_0_closes_the_connection_as_nothing_else_can_tell_the_client(
    asker: Asker,
) -> None:
    await asker.create("t")
    with capture_logs() as events, pytest.raises(CloseConnection):
        asker.send(("t", 0, make_batch(b"v")), ("no", 0, make_batch(b"v")), acks=0)
    assert asker.replica("t").log.end_offset == 1
    (event,) = events
    assert (event["event"], event["topic"], event["error"]) == (
        "connection_closed_acks_0_refused",
        "no",
        "UNKNOWN_TOPIC_OR_PARTITION",
    )


async def test_a_duplicate_with_acks_0_is_no_reason_to_close(asker: Asker) -> None:
    await asker.create("t")
    producer_id = await issued_id(asker)
    batches = [make_batch(b"v", producer_id=producer_id, epoch=0, sequence=number) for number in range(6)]
    for batch in (*batches, batches[5], batches[0]):
        assert asker.send(("t", 0, batch), acks=0) is None
    assert asker.replica("t").log.end_offset == 6


async def test_a_refusal_names_the_logs_start_by_which_clients_judge_an_unknown_producer(
    asker: Asker,
) -> None:
    await asker.create("t")
    for _ in range(3):
        await asker.produce("t", make_batch(b"v"))
    await asker.ask(
        ApiKey.DELETE_RECORDS,
        1,
        topics=[{"name": "t", "partitions": [{"partition_index": 0, "offset": 2}]}],
    )
    producer_id = await issued_id(asker)
    unknown = make_batch(b"v", producer_id=producer_id, epoch=0, sequence=7)
    result = await asker.produce("t", unknown)
    assert (result.error_code, result.log_start_offset) == (ErrorCode.UNKNOWN_PRODUCER_ID, 2)
    assert (await asker.produce("no", unknown)).log_start_offset == -1


async def test_a_duplicate_answers_the_first_offset_once_that_is_durable(asker: Asker) -> None:
    await asker.create("t")
    producer_id = await issued_id(asker)
    batch = make_batch(b"v", producer_id=producer_id, epoch=0, sequence=0)
    first = asker.send(("t", 0, batch))
    second = asker.send(("t", 0, batch))
    assert asker.replica("t").log.end_offset == 1
    assert isinstance(second, LateAnswer)
    assert not second.is_given
    for answer in (await first, await second):
        assert (answer[0][1][0].error_code, answer[0][1][0].base_offset) == (0, 0)
    late = asker.send(("t", 0, batch))
    assert late[0][1][0].base_offset == 0
    assert (
        'tidelog_duplicate_batches_total{window="in_window"} 2.0' in asker.services.metrics.render().decode()
    )


async def test_a_duplicate_below_the_window_is_answered_once_the_original_is_durable(asker: Asker) -> None:
    await asker.create("t")
    producer_id = await issued_id(asker)
    batches = [make_batch(b"v", producer_id=producer_id, epoch=0, sequence=number) for number in range(6)]
    first = [asker.send(("t", 0, batch)) for batch in batches]
    again = asker.send(("t", 0, batches[0]))
    assert asker.replica("t").high_watermark == 0
    assert isinstance(again, LateAnswer)
    assert not again.is_given
    assert (await again)[0][1][0].error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert asker.replica("t").high_watermark == 6
    assert [(await answer)[0][1][0].base_offset for answer in first] == [0, 1, 2, 3, 4, 5]
    late = asker.send(("t", 0, batches[0]))
    assert late[0][1][0].error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


async def test_a_timeout_answers_before_a_flush_that_takes_too_long(
    asker: Asker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asker.create("t")
    log = asker.replica("t").log
    monkeypatch.setattr(log, "begin_flush", lambda: None)
    answer = asker.send(("t", 0, make_batch(b"v")), timeout_ms=10)
    clock.now_ms -= 3_600_000  # Somebody sets the clock back: the timeout is none of its business.
    topics = await asyncio.wait_for(answer, DEADLINE_SECONDS)
    assert topics[0][1][0].error_code == ErrorCode.REQUEST_TIMED_OUT
    monkeypatch.undo()
    assert (await asker.produce("t", make_batch(b"w"))).base_offset == 1


async def test_a_timeout_in_the_step_in_which_the_disk_fails_acknowledges_nothing(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asker.create("t")
    replica = asker.replica("t")
    monkeypatch.setattr(replica.log, "begin_flush", lambda: None)
    answer = asker.send(("t", 0, make_batch(b"v")), timeout_ms=0)
    assert isinstance(answer, PendingProduce)
    replica.fail(OSError(5, "fdatasync"))
    answer.time_out()
    assert (await answer)[0][1][0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_an_answer_that_fails_at_its_deadline_keeps_no_other_waiting() -> None:
    loop = asyncio.get_running_loop()
    errors: list[Any] = []
    loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
    deadlines = Deadlines()

    class Late:
        """One of them fails: whose turn comes first, as the deadlines keep no order."""

        deadline = 0.0

        def time_out(self) -> None:
            deadlines.discard(self)
            if not errors:
                raise RuntimeError("it fails")
            told.set()

    told = asyncio.Event()
    for _ in range(2):
        deadlines.begin(Late(), 0)
    async with asyncio.timeout(DEADLINE_SECONDS):
        await told.wait()
    assert [str(each) for each in errors] == ["it fails"]


async def test_a_failed_flush_takes_the_partition_offline_and_no_other(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asker.create("t", 2)
    log = asker.replica("t").log
    begin = log.begin_flush

    def failing() -> Any:
        work = begin()
        if work is not None:
            work.before, work.lone_fd = (_fail,), None
        return work

    monkeypatch.setattr(log, "begin_flush", failing)
    answers = [asker.send(("t", 0, make_batch(b"v")), ("t", 1, make_batch(b"v"))) for _ in range(2)]
    for answer in answers:
        topics = await answer
        assert topics[0][1][0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert topics[1][1][0].error_code == ErrorCode.NONE
    monkeypatch.undo()
    assert (await asker.produce("t", make_batch(b"v"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await asker.produce("t", make_batch(b"v"), partition=1)).base_offset == 2
    assert asker.replica("t").high_watermark == 0


def _fail() -> None:
    raise OSError(5, "Input/output error")


async def test_refusals_are_counted_by_kind(asker: Asker) -> None:
    await asker.create("t")
    producer_id = await issued_id(asker)

    async def send(sequence: int, epoch: int = 1) -> int:
        batch = make_batch(b"v", producer_id=producer_id, epoch=epoch, sequence=sequence)
        return (await asker.produce("t", batch)).error_code

    assert [await send(sequence) for sequence in range(7)] == [0] * 7
    assert await send(0) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert await send(9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await send(0, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    text = asker.services.metrics.render().decode()
    assert 'tidelog_duplicate_batches_total{window="below_window"} 1.0' in text
    assert "tidelog_out_of_order_batches_total 1.0" in text
    assert "tidelog_fenced_batches_total 1.0" in text
    assert 'kafka_server_brokertopicmetrics_failedproducerequests_total{topic="t"} 2.0' in text
    assert 'kafka_server_brokertopicmetrics_messagesin_total{topic="t"} 7.0' in text


async def test_an_answer_without_a_waiting_request_harms_no_other(asker: Asker) -> None:
    await asker.create("t")
    gone = asyncio.ensure_future(asker.send(("t", 0, make_batch(b"v"))))
    await asyncio.sleep(0)
    gone.cancel()
    assert (await asker.produce("t", make_batch(b"w"))).base_offset == 1


async def test_many_partitions_are_answered_once_the_last_is_durable_however_long_appending_takes(
    asker: Asker,
) -> None:
    """Those appended in the first step become durable while others are still to be appended."""
    await asker.create("t", 2 * ELEMENTS_PER_STEP // STEP_COST_APPEND)
    partitions = [(index, make_batch(b"v")) for _, index in asker.services.replicas]
    request = ProduceRequest(None, -1, 30_000, [("t", partitions)])
    context = RequestContext(RequestHeader(ApiKey.PRODUCE, 9, 1, "test"), asker.connection)
    steps = begin(asker.handlers[ApiKey.PRODUCE](context, request))
    assert isinstance(steps, GeneratorType)
    await asyncio.wait_for(asker.replica("t").committed(1), DEADLINE_SECONDS)
    last = asker.replica("t", len(partitions) - 1)
    assert last.log.end_offset == 0
    answer = finish(steps)
    assert not answer.is_given
    answer = await answer
    assert [result.error_code for result in answer[0][1]] == [ErrorCode.NONE] * len(partitions)
    assert last.high_watermark == 1


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
async def test_a_compacted_topic_takes_no_record_without_a_key_and_names_each(
    asker: Asker, codec: Compression
) -> None:
    await asker.create("compacted", cleanup_policy="compact")
    await asker.create("both", cleanup_policy="compact,delete")
    await asker.create("plain")
    for keys, keyless in (([b"k", None, b"k", None], [1, 3]), ([None], [0]), ([None] * 300, range(100))):
        builder = RecordBatchBuilder()
        for key in keys:
            builder.append(NOW_MS, key, b"v")
        batch = bytes(builder.build(codec))
        for name in ("compacted", "both"):
            result = await asker.produce(name, batch)
            assert result.error_code == ErrorCode.INVALID_RECORD
            assert [position for position, _ in result.record_errors] == list(keyless)
            assert "without key" in (result.error_message or "")
            assert asker.replica(name).log.end_offset == 0
        assert (await asker.produce("plain", batch)).error_code == ErrorCode.NONE
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, b"k", None)
    assert (await asker.produce("compacted", bytes(builder.build()))).error_code == ErrorCode.NONE


async def test_duplicates_and_refusals_are_noted_for_the_producer_that_the_batch_names(asker: Asker) -> None:
    await asker.create("t")
    producer_id = await issued_id(asker)
    identity: dict[str, int] = {"producer_id": producer_id, "epoch": 0}
    for sequence in (*range(7), 6, 0, 9):
        await asker.produce("t", make_batch(b"v", **identity, sequence=sequence))
    await asker.produce("t", b"no batch")
    await asker.produce("t", make_batch(b"v", producer_id=producer_id + 9, epoch=0, sequence=0), acks=2)
    place = Place(asker.replica("t").topic_id, 0)
    ((where, noted_id, noted),) = asker.services.producer_outcomes.latest()
    assert (where, noted_id) == (place, producer_id)
    assert (noted.in_window, noted.below_window) == (1, 1)
    assert {code: each.batches for code, each in noted.refused.items()} == {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: 1
    }
