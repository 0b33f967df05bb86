"""Work in the background that ends by an error that nobody expects: no call waits for it without end."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.client.share.scripted_group import ScriptedGroup
from tests.unit.wire.scripted import TOPIC, Request, ScriptedBroker
from tests.waiting import DEADLINE_SECONDS
from tidelog.client import (
    AcknowledgementError,
    Consumer,
    DeliveryUncertainError,
    Producer,
    ShareConsumer,
    TopicPartition,
    UnexpectedError,
)
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey

FIRST = TopicPartition(TOPIC, 0)
CONSUMER, SHARE, PRODUCER = "tidelog.client.consumer", "tidelog.client.share", "tidelog.client.producer"
COORDINATOR = "tidelog.client.groups.coordinator.find_coordinator"


@pytest.fixture
def lacks_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """The next call of the function of this name finds no memory."""

    def patch(name: str) -> None:
        module, _, function = name.rpartition(".")
        real = getattr(__import__(module, fromlist=[function]), function)

        def call(*arguments: Any, **named: Any) -> Any:
            monkeypatch.setattr(name, real)
            raise MemoryError

        monkeypatch.setattr(name, call)

    return patch


def settings(broker: ScriptedBroker, **others: Any) -> dict[str, Any]:
    return {"bootstrap_servers": broker.address, "retry_backoff_ms": 5, **others}


async def end_of(call: Any) -> Exception:
    """The error that ends it."""
    with pytest.raises(UnexpectedError) as raised:
        await asyncio.wait_for(call, DEADLINE_SECONDS)
    return raised.value


def serve_one_record(broker: ScriptedBroker) -> None:
    builder = RecordBatchBuilder()
    builder.append(1_000, None, b"a")
    found = {"partition_index": 0, "high_watermark": 1, "records": bytes(builder.build(base_offset=0))}
    place = {"partition_index": 0, "offset": 0, "timestamp": -1, "leader_epoch": 0}

    async def fetch(request: Request) -> dict[str, Any]:
        if request.values.topics[0].partitions[0].fetch_offset:
            await asyncio.Event().wait()
        return {"session_id": 0, "responses": [{"topic": TOPIC, "partitions": [found]}]}

    broker.scripts |= {
        ApiKey.FETCH: fetch,
        ApiKey.LIST_OFFSETS: lambda _: {"topics": [{"name": TOPIC, "partitions": [place]}]},
        ApiKey.FIND_COORDINATOR: lambda _: {"node_id": 1, "host": "127.0.0.1", "port": broker.port},
    }


@pytest.mark.parametrize("place", ["decode_fetch_response", "encode_fetch_request", "look_up_offsets"])
async def test_a_read_raises_once_what_ended_a_fetch_and_then_reads_on(
    broker: ScriptedBroker, lacks_memory: Callable[[str], None], place: str
) -> None:
    serve_one_record(broker)
    lacks_memory(f"{CONSUMER}.fetcher.{place}")
    async with Consumer(**settings(broker, auto_offset_reset="earliest")) as it:
        it.assign([FIRST])
        error = await end_of(it.getmany(timeout_ms=100_000))
        assert isinstance(error.__cause__, MemoryError)
        async for record in it:
            assert record.value == b"a"
            break


async def test_who_waits_for_a_position_gets_what_ended_its_lookup_and_can_ask_again(
    broker: ScriptedBroker, lacks_memory: Callable[[str], None]
) -> None:
    serve_one_record(broker)
    lacks_memory(f"{CONSUMER}.fetcher.look_up_offsets")
    async with Consumer(**settings(broker, auto_offset_reset="earliest", request_timeout_ms=1_000)) as it:
        it.assign([FIRST])
        assert isinstance((await end_of(it.position(FIRST))).__cause__, MemoryError)
        assert await it.position(FIRST) == 0


async def test_a_read_raises_what_is_wrong_with_an_answer_about_committed_offsets(
    broker: ScriptedBroker,
) -> None:
    serve_one_record(broker)
    nameless = {"name": "", "partitions": [{"partition_index": 0, "committed_offset": 0}]}
    broker.scripts[ApiKey.OFFSET_FETCH] = lambda _: {"groups": [{"group_id": "g", "topics": [nameless]}]}
    own = settings(broker, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
    async with Consumer(**own) as it:
        it.assign([FIRST])
        assert isinstance((await end_of(it.getone())).__cause__, KeyError)
        broker.scripts[ApiKey.OFFSET_FETCH] = lambda _: {"groups": [{"group_id": "g"}]}
        assert (await it.getone()).value == b"a"


@pytest.mark.parametrize("kind", [Consumer, ShareConsumer])
async def test_a_read_raises_what_ended_the_membership(
    broker: ScriptedBroker, lacks_memory: Callable[[str], None], kind: Any
) -> None:
    ScriptedGroup(broker)
    lacks_memory(COORDINATOR)
    async with kind(TOPIC, **settings(broker, group_id="g")) as it:
        error = await end_of(it.getone())
    assert isinstance(error.__cause__, MemoryError)


async def test_a_share_consumer_raises_what_ended_a_fetch_and_then_reads_on(
    broker: ScriptedBroker, lacks_memory: Callable[[str], None]
) -> None:
    group = ScriptedGroup(broker, b"a")
    lacks_memory(f"{SHARE}.fetcher.decoded")
    async with ShareConsumer(TOPIC, **settings(broker, group_id="g", fetch_max_wait_ms=50)) as it:
        assert isinstance((await end_of(it.getone())).__cause__, MemoryError)
        (await asyncio.wait_for(it.getone(), DEADLINE_SECONDS)).accept()
        await it.commit()
    assert group.outcomes == {0: 1}


async def test_a_commit_of_a_share_consumer_ends_with_the_work_that_it_waits_for(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ScriptedGroup(broker, b"a")
    async with ShareConsumer(TOPIC, **settings(broker, group_id="g", fetch_max_wait_ms=50)) as it:
        (await it.getone()).accept()

        def fail(_: object) -> None:
            raise MemoryError

        monkeypatch.setattr(f"{SHARE}.fetcher._taken", fail)
        with pytest.raises(AcknowledgementError):
            await asyncio.wait_for(it.commit(), DEADLINE_SECONDS)


@pytest.mark.parametrize("place", ["encode_produce_request", "decode_produce_response", "error_code"])
async def test_a_producer_whose_sender_fails_ends_every_delivery(
    broker: ScriptedBroker, lacks_memory: Callable[[str], None], place: str
) -> None:
    lacks_memory(f"{PRODUCER}.sender.{place}")
    async with Producer(**settings(broker)) as it:
        delivery = await it.send(TOPIC, b"x")
        # It may be stored, unless there was no producer id yet.
        with pytest.raises(UnexpectedError if place == "error_code" else DeliveryUncertainError):
            await asyncio.wait_for(delivery, DEADLINE_SECONDS)
        assert isinstance((await end_of(it.flush())).__cause__, MemoryError)


async def test_a_transaction_whose_partitions_cannot_be_added_ends(
    broker: ScriptedBroker, lacks_memory: Callable[[str], None]
) -> None:
    broker.scripts |= {
        ApiKey.FIND_COORDINATOR: lambda _: {"node_id": 1, "host": "127.0.0.1", "port": broker.port},
        ApiKey.ADD_PARTITIONS_TO_TXN: lambda _: {},
    }
    lacks_memory(f"{PRODUCER}.transactions._codes_of_partitions")
    async with Producer(**settings(broker, transactional_id="id")) as it:
        await it.begin_transaction()
        delivery = await it.send(TOPIC, b"x")
        await end_of(delivery)
        await end_of(it.abort_transaction())


async def test_a_batch_on_its_way_to_the_sender_is_ended_too(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Producer(**settings(broker)) as it:
        await it.send_and_wait(TOPIC, b"x")
        sender = it._sender
        assert sender is not None
        monkeypatch.setattr(sender.state, "take_new", lambda *_: {}[0])
        await end_of(it.send_and_wait(TOPIC, b"y"))
        await end_of(it.flush())
