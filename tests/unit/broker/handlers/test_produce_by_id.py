"""Produce from version 13 on names topics by id (KIP-516), and its answer does so too."""

import inspect
from typing import Any
from uuid import UUID

import pytest

from tests.unit.broker.handlers.conftest import Asker, make_batch
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
