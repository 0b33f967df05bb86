"""The producer over real sockets against a broker that follows a script."""

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest

from tests.unit.wire.scripted import TOPIC, Request, ScriptedBroker
from tests.waiting import until
from tidelog.client import (
    BrokerError,
    ClientClosedError,
    DeliveryFailedError,
    DeliveryTimeoutError,
    DeliveryUncertainError,
    Producer,
    RecordTooLargeError,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import decode_batch, read_batch_header
from tidelog.protocol.schema import ApiKey


def producer(broker: ScriptedBroker, **settings: object) -> Producer:
    quick = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "request_timeout_ms": 5_000}
    return Producer(bootstrap_servers=broker.address, **{**quick, **settings})  # type: ignore[arg-type]


def batches(broker: ScriptedBroker) -> list[tuple[int, int, list[bytes | None]]]:
    """(partition, first sequence, values) of every batch that arrived, in order."""
    found = []
    for request in broker.seen(ApiKey.PRODUCE):
        for topic in request.values.topic_data:
            for partition in topic.partition_data:
                records = partition.records
                values = [record.value for record in decode_batch(records)]
                found.append((partition.index, read_batch_header(records).base_sequence, values))
    return found


async def test_records_sent_without_a_pause_share_a_batch() -> None:
    async with ScriptedBroker() as broker, producer(broker) as it:
        deliveries = [await it.send(TOPIC, b"%d" % number) for number in range(3)]
        metadata = [await delivery for delivery in deliveries]
        assert batches(broker) == [(0, 0, [b"0", b"1", b"2"])]
        assert [each.offset for each in metadata] == [0, 1, 2]
        assert [each.sequence for each in metadata] == [0, 1, 2]
        assert {(each.producer_id, each.producer_epoch) for each in metadata} == {(5, 0)}


async def test_five_batches_of_one_partition_are_in_flight_and_not_one_more(broker: ScriptedBroker) -> None:
    # The script's answers do not hold the reading of further requests up.
    broker.is_concurrent = True
    release = broker.hold(ApiKey.PRODUCE)
    async with producer(broker, max_batch_size=100) as it:
        for number in range(8):
            await it.send(TOPIC, b"%d" % number * 30)
        await until(lambda: len(broker.seen(ApiKey.PRODUCE)) == 5)
        # A round trip to the broker: whatever was to be sent has been sent meanwhile.
        await it._cluster.refresh()
        assert len(broker.seen(ApiKey.PRODUCE)) == 5
        release.set()
        await it.flush()
    assert [sequence for _, sequence, _ in batches(broker)] == list(range(8))


async def test_a_split_batch_is_delivered_when_all_its_parts_are() -> None:
    def single_records_but_bad_ones(request: Request) -> dict[str, object]:
        (partition,) = request.values.topic_data[0].partition_data
        first, *others = decode_batch(partition.records)
        refusal = ErrorCode.INVALID_RECORD if first.value == b"bad" else ErrorCode.NONE
        return broker.produced(request, ErrorCode.MESSAGE_TOO_LARGE if others else refusal)

    async with ScriptedBroker() as broker, producer(broker) as it:
        broker.scripts[ApiKey.PRODUCE] = single_records_but_bad_ones
        for last, reason in ((b"good", None), (b"bad", "INVALID_RECORD")):
            batch = it.create_batch()
            for value in (b"1", b"2", b"3", last):
                batch.append(value=value)
            delivery = await it.send_batch(batch, TOPIC, partition=0)
            with pytest.raises(DeliveryFailedError, match=reason) if reason else nullcontext():
                await delivery
            assert [each[2] for each in batches(broker)][-1] == [last]
            assert delivery.done()
            assert (delivery.exception() is None) == (reason is None)


async def test_send_waits_while_memory_is_full_and_goes_on_when_it_is_free(broker: ScriptedBroker) -> None:
    broker.is_concurrent = True
    release = broker.hold(ApiKey.PRODUCE)
    async with producer(broker, max_batch_size=1_000, buffer_memory=2_000) as it:
        done: list[int] = []

        async def send_all() -> None:
            for number in range(20):
                await it.send(TOPIC, b"x" * 700)
                done.append(number)

        sending = asyncio.ensure_future(send_all())
        await until(lambda: len(done) == 2)
        # A round trip to the broker: whatever was to be sent has been sent meanwhile.
        await it._cluster.refresh()
        assert len(done) == 2
        release.set()
        await sending
        await it.flush()
    assert len(batches(broker)) == 20


async def test_a_cancelled_send_has_sent_nothing_and_a_cancelled_wait_takes_nothing_back() -> None:
    async with ScriptedBroker() as broker:
        release = broker.hold(ApiKey.PRODUCE)
        async with producer(broker, max_batch_size=1_000, buffer_memory=1_000) as it:
            delivery = await it.send(TOPIC, b"kept" + b"x" * 600)
            blocked = asyncio.ensure_future(it.send(TOPIC, b"cancelled" + b"x" * 600))
            waiting = asyncio.ensure_future(_wait(delivery))
            await until(lambda: bool(broker.seen(ApiKey.PRODUCE)))
            blocked.cancel()
            waiting.cancel()
            release.set()
            assert (await delivery).offset == 0
    assert [values for _, _, values in batches(broker)] == [[b"kept" + b"x" * 600]]


async def test_many_tasks_may_send_at_once() -> None:
    async with ScriptedBroker(partitions=3) as broker, producer(broker, max_batch_size=300) as it:

        async def send_some(name: int) -> None:
            for number in range(20):
                await (await it.send(TOPIC, b"%d-%02d" % (name, number), partition=name % 3))

        await asyncio.gather(*(send_some(name) for name in range(12)))
        for name in range(12):
            values = [
                value
                for _, _, batch in batches(broker)
                for value in batch
                if value and value.startswith(b"%d-" % name)
            ]
            assert values == sorted(values)
            assert len(values) == 20


async def test_delivery_is_given_up_in_time_and_uncertain_if_it_was_sent(broker: ScriptedBroker) -> None:
    broker.scripts[ApiKey.PRODUCE] = lambda _: None
    async with producer(broker, delivery_timeout_ms=60) as it:
        with pytest.raises(DeliveryUncertainError, match="first sequence 0"):
            await it.send_and_wait(TOPIC, b"x")


async def test_delivery_that_was_never_sent_is_given_up_for_certain() -> None:
    async with ScriptedBroker() as broker, producer(broker, delivery_timeout_ms=60) as it:
        await it.send_and_wait(TOPIC, b"x")
        broker.scripts[ApiKey.METADATA] = lambda request: broker.metadata([TOPIC], leader=-1)
        await it._cluster.refresh()
        with pytest.raises(DeliveryTimeoutError, match="before they were sent"):
            await it.send_and_wait(TOPIC, b"y")


async def test_without_idempotence_nothing_is_numbered_and_no_id_is_asked_for() -> None:
    async with ScriptedBroker() as broker, producer(broker, acks=1, enable_idempotence=False) as it:
        metadata = await it.send_and_wait(TOPIC, b"x")
        assert (metadata.producer_id, metadata.sequence) == (-1, -1)
        assert not broker.seen(ApiKey.INIT_PRODUCER_ID)
        assert broker.seen(ApiKey.PRODUCE)[0].values.acks == 1


async def test_a_topic_that_is_being_created_is_waited_for(broker: ScriptedBroker) -> None:

    def soon(request: Request) -> dict[str, object]:
        is_early = len(broker.seen(ApiKey.METADATA)) < 4
        code = ErrorCode.LEADER_NOT_AVAILABLE if is_early else ErrorCode.NONE
        return broker.metadata([each.name for each in request.values.topics], error_code=code)

    broker.scripts[ApiKey.METADATA] = soon
    async with producer(broker) as it:
        assert (await it.send_and_wait(TOPIC, b"x")).offset == 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"value": "text"}, TypeError, "value_serializer"),
        ({"value": b"x", "key": 5}, TypeError, "key_serializer"),
        ({"value": b"x", "partition": 7}, ValueError, "expected a partition of 0 to 0 of topic 't', got 7"),
        ({"value": b"x", "partition": -1}, ValueError, "got -1"),
        ({"value": b"x", "partition": "0"}, TypeError, "partition: expected a whole number, got '0'"),
        ({"value": b"x", "partition": 0.0}, TypeError, "partition: expected a whole number, got 0.0"),
        ({"value": b"x" * 2_000_000}, RecordTooLargeError, "max_request_size"),
        ({"value": b"x", "timestamp_ms": -2}, ValueError, "timestamp_ms"),
        ({"value": b"x", "timestamp_ms": 1.5}, TypeError, "timestamp_ms: .* got 1.5"),
        ({"value": b"x", "headers": [("a", "text")]}, TypeError, r"expected \(str, bytes or None\)"),
        ({"value": b"x", "headers": {"a": b"x"}}, TypeError, "expected a list of"),
    ],
)
async def test_wrong_arguments_send_nothing_and_spoil_nothing(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    async with ScriptedBroker() as broker, producer(broker) as it:
        with pytest.raises(error, match=message):
            await it.send(TOPIC, **arguments)  # type: ignore[arg-type]
        await it.send(TOPIC, b"first")
        with pytest.raises(error, match=message):
            await it.send(TOPIC, **arguments)  # type: ignore[arg-type]
        await it.send_and_wait(TOPIC, b"last")
        assert [value for _, _, values in batches(broker) for value in values] == [b"first", b"last"]


async def test_a_topic_that_cannot_be_a_name_and_a_transaction_without_an_id_are_refused() -> None:
    async with ScriptedBroker() as broker, producer(broker) as it:
        with pytest.raises(ValueError, match="transactional_id"):
            await it.begin_transaction()
        with pytest.raises(TypeError, match=r"expected a str as topic name, got \['t'\]"):
            await it.send([TOPIC], b"x")  # type: ignore[arg-type]


@pytest.mark.parametrize("result", [None, "0", -1])
async def test_what_a_partitioner_returns_is_a_partition(result: Any) -> None:
    async with ScriptedBroker() as broker, producer(broker, partitioner=lambda *_: result) as it:
        with pytest.raises((TypeError, ValueError), match=f"result of the partitioner: .* got {result!r}"):
            await it.send(TOPIC, b"x")


async def test_serializers_are_applied_to_keys_and_values(broker: ScriptedBroker) -> None:
    async with producer(broker, key_serializer=str.encode, value_serializer=str.encode) as it:
        await it.send_and_wait(TOPIC, "wert", key="schlüssel")
    ((_, _, values),) = batches(broker)
    assert values == [b"wert"]


async def test_closing_sends_what_is_left(broker: ScriptedBroker) -> None:
    async with producer(broker, linger_ms=60_000) as it:
        delivery = await it.send(TOPIC, b"x")
    assert (await delivery).offset == 0
    with pytest.raises(ClientClosedError):
        await it.send(TOPIC, b"y")
    await it.stop()


async def test_closing_with_a_deadline_gives_up_the_rest(broker: ScriptedBroker) -> None:
    broker.scripts[ApiKey.PRODUCE] = lambda _: None
    it = producer(broker, max_batch_size=100, max_in_flight_requests_per_connection=1)
    await it.start()
    sent = await it.send(TOPIC, b"x" * 50)
    unsent = await it.send(TOPIC, b"y" * 50)
    await until(lambda: bool(broker.seen(ApiKey.PRODUCE)))
    await it.stop(timeout_ms=20)
    with pytest.raises(DeliveryUncertainError, match="closed"):
        await sent
    with pytest.raises(DeliveryTimeoutError, match="closed before they were sent"):
        await unsent


async def test_the_error_that_ended_a_producer_does_not_grow_when_it_is_raised_again() -> None:
    async with ScriptedBroker() as broker:
        refused = {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        broker.scripts[ApiKey.INIT_PRODUCER_ID] = lambda _: refused
        async with producer(broker) as it:
            for _ in range(30):
                with pytest.raises(BrokerError) as raised:
                    await it.send_and_wait(TOPIC, b"x")
    assert len(raised.traceback) < 10


async def _wait(delivery: object) -> object:
    return await delivery  # type: ignore[misc]
