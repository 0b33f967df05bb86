"""Produce from version 13 on names topics by id (KIP-516), and its answer does so too."""

import inspect
from typing import Any
from uuid import UUID

import pytest

from tests.unit.broker.handlers.conftest import Asker, make_batch
from tests.unit.broker.handlers.transactional import TransactionalClient, transactional_batch
from tidelog.broker.cluster.catalog import OFFSETS_TOPIC
from tidelog.broker.handlers.context import CloseConnection
from tidelog.broker.handlers.produce_inspection import BatchInspection
from tidelog.protocol.compression import Compression
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.hot import (
    ProduceRequest,
    decode_produce_request,
    decode_produce_response,
    encode_produce_request,
    encode_produce_response,
)
from tidelog.protocol.records import RecordBatchBuilder
from tidelog.protocol.schema import ApiKey

BY_ID = 13
UNKNOWN = UUID(int=7)


def id_of(asker: Asker, name: str = "t") -> UUID:
    return asker.topic(name).topic_id


async def produce(
    asker: Asker, *parts: tuple[UUID, int, bytes], acks: int = -1, transactional_id: str | None = None
) -> list[tuple[Any, int, int]]:
    """(topic, error code, base offset) for each part, as it came over the wire."""
    topics = [(topic, [(index, batch)]) for topic, index, batch in parts]
    body = b"".join(encode_produce_request(BY_ID, ProduceRequest(transactional_id, acks, 30_000, topics)))
    answer = asker.call(ApiKey.PRODUCE, BY_ID, decode_produce_request(BY_ID, memoryview(body)))
    if inspect.isawaitable(answer):
        answer = await answer
    response = decode_produce_response(BY_ID, encode_produce_response(BY_ID, answer))
    return [(topic, result.error_code, result.base_offset) for topic, (result,) in response.topics]


async def test_a_batch_is_stored_and_answered_by_the_id_of_its_topic(asker: Asker) -> None:
    await asker.create("t", 2)
    topic_id = id_of(asker)
    assert await produce(asker, (topic_id, 1, make_batch(b"v"))) == [(topic_id, 0, 0)]
    assert asker.replica("t", 1).log.end_offset == 1


async def test_unknown_ids_are_refused_alone_each_for_itself(asker: Asker) -> None:
    await asker.create("t")
    batch, topic_id, other = make_batch(b"v"), id_of(asker), UUID(int=0)
    assert await produce(asker, (UNKNOWN, 0, batch), (topic_id, 0, batch), (other, 0, batch)) == [
        (UNKNOWN, ErrorCode.UNKNOWN_TOPIC_ID, -1),
        (topic_id, 0, 0),
        (other, ErrorCode.UNKNOWN_TOPIC_ID, -1),
    ]
    with pytest.raises(CloseConnection):
        await produce(asker, (UNKNOWN, 0, batch), acks=0)


async def test_an_internal_topic_is_not_written_by_its_id_either(asker: Asker) -> None:
    await asker.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
    topic_id = id_of(asker, OFFSETS_TOPIC)
    answer = await produce(asker, (topic_id, 0, make_batch(b"v")))
    assert answer == [(topic_id, ErrorCode.INVALID_TOPIC_EXCEPTION, -1)]


async def test_the_successor_of_a_deleted_topic_is_not_written_by_the_old_id(asker: Asker) -> None:
    await asker.create("t")
    old = id_of(asker)
    await asker.services.topics.delete(old)
    await asker.create("t")
    answer = await produce(asker, (old, 0, make_batch(b"v")))
    assert answer == [(old, ErrorCode.UNKNOWN_TOPIC_ID, -1)]
    assert asker.replica("t").log.end_offset == 0


async def test_the_successor_of_a_topic_that_is_deleted_meanwhile_is_not_written_either(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asker.create("t")
    topic_id, later = id_of(asker), BatchInspection.later
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, None, bytes(2 << 20))
    for_a_thread = bytes(builder.build(Compression.GZIP))

    async def replaced(self: BatchInspection, request: ProduceRequest, *, in_a_thread: bool) -> list[Any]:
        await asker.services.topics.delete(topic_id)
        await asker.create("t")
        return await later(self, request, in_a_thread=in_a_thread)

    monkeypatch.setattr(BatchInspection, "later", replaced)
    answer = await produce(asker, (topic_id, 0, for_a_thread))
    assert answer == [(topic_id, ErrorCode.UNKNOWN_TOPIC_ID, -1)]
    assert asker.replica("t").log.end_offset == 0


async def test_a_partition_joins_its_transaction_by_its_topic_s_id(asker: Asker) -> None:
    await asker.create("t")
    client = TransactionalClient(asker, is_new=True)
    await client.begin()
    batch = transactional_batch(client.pair)
    answer = await produce(asker, (id_of(asker), 0, batch), transactional_id=client.name)
    assert [code for _, code, _ in answer] == [0]
    assert await client.end() == 0
