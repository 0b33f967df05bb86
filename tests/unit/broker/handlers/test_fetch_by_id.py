"""Fetch from version 13 on names topics by id (KIP-516): which codes there are, and what a session keeps."""

import gc
import inspect
import tracemalloc
from collections.abc import Awaitable
from uuid import UUID

import pytest

from tests.unit.broker.handlers.conftest import Asker, fetch_request, make_batch
from tidelog.broker.fault_injection.injection import FaultInjector
from tidelog.broker.fault_injection.rules import FaultKind, FaultOrder
from tidelog.broker.handlers.fetch import SESSION_PARTITION_BYTES
from tidelog.protocol import primitives
from tidelog.protocol.errors import ApiError, ErrorCode
from tidelog.protocol.hot import (
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    decode_fetch_request,
    encode_fetch_request,
)
from tidelog.protocol.schema import APIS, ApiKey

BY_NAME = 12
BY_ID = range(13, APIS[ApiKey.FETCH].max_version + 1)


@pytest.fixture
async def topic_id(asker: Asker) -> UUID:
    """The id of topic t, which has one record in each of two partitions."""
    return await make(asker)


async def make(asker: Asker) -> UUID:
    await asker.create("t", 2)
    for index in range(2):
        await asker.produce("t", make_batch(b"v"), partition=index)
    return id_of(asker)


def id_of(asker: Asker) -> UUID:
    return asker.topic("t").topic_id


async def fetch(asker: Asker, request: FetchRequest, version: int = BY_ID[-1]) -> FetchResponse:
    asked = decode_fetch_request(version, encode_fetch_request(version, request))
    answer = asker.call(ApiKey.FETCH, version, asked)
    if inspect.isawaitable(answer):
        answer = await answer
    assert isinstance(answer, FetchResponse)
    return answer


def by_id(topic_id: UUID, *partitions: int, session: tuple[int, int] = (0, -1)) -> FetchRequest:
    session_id, epoch = session
    parts = ((topic_id, index, 0) for index in partitions)
    return fetch_request(*parts, session_id=session_id, session_epoch=epoch)


def codes(answer: FetchResponse) -> list[tuple[object, list[int]]]:
    return [(topic, [int(result.error_code) for result in results]) for topic, results in answer.topics]


@pytest.mark.parametrize("version", BY_ID)
async def test_a_topic_is_read_and_answered_by_its_id(asker: Asker, topic_id: UUID, version: int) -> None:
    answer = await fetch(asker, by_id(topic_id, 0, 1), version)
    assert codes(answer) == [(topic_id, [0, 0])]
    assert all(sum(map(len, result.records or ())) for result in answer.topics[0][1])


@pytest.mark.parametrize("unknown", [UUID(int=0), UUID(int=7)], ids=["the zero id", "an id of no topic"])
async def test_an_unknown_id_is_refused_beside_a_known_one(
    asker: Asker, topic_id: UUID, unknown: UUID
) -> None:
    request = fetch_request((unknown, 0, 0), (topic_id, 0, 0), max_wait_ms=60_000, min_bytes=1 << 20)
    answer = await fetch(asker, request)
    assert codes(answer) == [(unknown, [ErrorCode.UNKNOWN_TOPIC_ID]), (topic_id, [0])]


async def opened(asker: Asker, topic_id: UUID) -> int:
    """The id of a new session with both partitions, by id."""
    answer = await fetch(asker, by_id(topic_id, 0, 1, session=(0, 0)))
    assert answer.session_id != 0
    return answer.session_id


async def test_a_session_by_id_names_and_forgets_partitions_by_id(asker: Asker, topic_id: UUID) -> None:
    session_id = await opened(asker, topic_id)
    answer = await fetch(asker, by_id(topic_id, session=(session_id, 1)), BY_ID[0])
    assert codes(answer) == [(topic_id, [0, 0])]
    forgetful = by_id(topic_id, session=(session_id, 2))._replace(forgotten_topics=[(topic_id, [0])])
    answer = await fetch(asker, forgetful)
    assert [result.partition_index for result in answer.topics[0][1]] == [1]


async def test_a_session_does_not_change_between_names_and_ids(asker: Asker, topic_id: UUID) -> None:
    with_ids = await opened(asker, topic_id)
    of_names = (await fetch(asker, fetch_request(("t", 0, 0), session_epoch=0), BY_NAME)).session_id
    for session_id, wrong, right in ((with_ids, BY_NAME, BY_ID[0]), (of_names, BY_ID[0], BY_NAME)):
        request = by_id(topic_id, session=(session_id, 1))
        assert await fetch(asker, request, wrong) == (0, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 0, [], ())
        assert (await fetch(asker, request, right)).session_id == session_id


async def test_a_deleted_topic_is_not_read_and_its_successor_is_not_taken_for_it(
    asker: Asker, topic_id: UUID
) -> None:
    session_id = await opened(asker, topic_id)
    await asker.services.topics.delete(topic_id)
    in_session = await fetch(asker, by_id(topic_id, session=(session_id, 1)))
    assert codes(in_session) == [(topic_id, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2)]

    successor = await make(asker)
    in_session = await fetch(asker, by_id(topic_id, session=(session_id, 2)))
    assert codes(in_session) == [(topic_id, [ErrorCode.INCONSISTENT_TOPIC_ID] * 2)]
    alone = await fetch(asker, by_id(topic_id, 0))
    assert codes(alone) == [(topic_id, [ErrorCode.UNKNOWN_TOPIC_ID])]
    assert codes(await fetch(asker, by_id(successor, 0))) == [(successor, [0])]


async def test_a_fetch_that_waits_for_records_by_id_gets_them(asker: Asker, topic_id: UUID) -> None:
    request = fetch_request((topic_id, 0, 1), max_wait_ms=60_000)
    waiting: Awaitable[FetchResponse] = asker.call(ApiKey.FETCH, BY_ID[-1], request)
    assert inspect.isawaitable(waiting)
    await asker.produce("t", make_batch(b"later"))
    assert codes(await waiting) == [(topic_id, [0])]


async def test_a_session_by_id_takes_no_more_memory_than_the_account_says(asker: Asker) -> None:
    for number in range(100):
        await asker.create(f"t{number}")
    ids = [topic.topic_id for topic in asker.services.catalog.topics()]
    body = encode_fetch_request(BY_ID[-1], fetch_request(*((each, 0, 0) for each in ids), session_epoch=0))
    answers = []
    asker.call(ApiKey.FETCH, BY_ID[-1], decode_fetch_request(BY_ID[-1], body))
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(20):
            primitives._uuid.cache_clear()  # As with more topics than it holds.
            answer = asker.call(ApiKey.FETCH, BY_ID[-1], decode_fetch_request(BY_ID[-1], body))
            answers.append(answer.session_id)
            del answer
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0 not in answers
    said = 20 * len(ids) * SESSION_PARTITION_BYTES
    assert said / 3 < taken <= said


@pytest.mark.parametrize("api", ["fetch", "produce"])
async def test_a_fault_that_names_a_topic_also_concerns_requests_that_name_it_by_id(
    asker: Asker, topic_id: UUID, api: str
) -> None:
    injector = FaultInjector(asker.services)
    asker.handlers = injector.around(asker.handlers)
    order = FaultOrder(FaultKind.ERROR, api=api, topic="t", error=ErrorCode.KAFKA_STORAGE_ERROR)
    requests = {
        "fetch": fetch_request((topic_id, 0, 0)),
        "produce": ProduceRequest(None, -1, 30_000, [(topic_id, [(0, make_batch(b"v"))])]),
    }
    injector.order(order)
    key = ApiKey[api.upper()]
    with pytest.raises(ApiError, check=lambda error: error.code == ErrorCode.KAFKA_STORAGE_ERROR):
        await asker.call(key, APIS[key].max_version, requests[api])
