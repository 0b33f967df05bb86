"""The console's producers over a real broker: the window of five, duplicates, refusals, and the history."""

from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest

from tests.conformance.conftest import RunningBroker
from tests.conformance.console_site import Visitor
from tests.conformance.raw import RawClient, batch, connected
from tidelog.protocol.errors import ErrorCode


@pytest.fixture
async def topic(broker: RunningBroker) -> str:
    name = f"t{uuid4().hex}"
    async with connected(broker.broker.port) as client:
        await client.create(name)
    return name


async def producers(visitor: Visitor, **query: object) -> dict[str, Any]:
    answer = await visitor.get(f"/api/v1/producers?{urlencode(query)}")
    assert answer.status == 200, answer.text
    return dict(answer.json)


async def send(client: RawClient, topic: str, producer_id: int, *sequences: int, epoch: int = 0) -> list[int]:
    return [
        (await client.produce(batch("v", producer_id, each, epoch=epoch, count=2), topic=topic))[0]
        for each in sequences
    ]


async def test_a_producer_shows_its_window_its_duplicates_and_its_refusals(
    broker: RunningBroker, visitor: Visitor, topic: str
) -> None:
    async with connected(broker.broker.port) as client:
        producer_id = await client.producer_id()
        codes = await send(client, topic, producer_id, *range(0, 14, 2), 12, 0, 20, 22)
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    below = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert codes == [*[ErrorCode.NONE] * 8, below, out_of_order, out_of_order]
    found = await producers(visitor, topic=topic)
    assert found["total"] == 1
    (row,) = found["rows"]
    assert (row["producer_id"], row["producer_epoch"], row["last_sequence"]) == (producer_id, 0, 13)
    window = [(each["base_sequence"], each["last_sequence"], each["base_offset"]) for each in row["batches"]]
    assert window == [(each, each + 1, each) for each in range(4, 14, 2)]
    assert (row["duplicates_in_window"], row["duplicates_below_window"]) == (1, 1)
    (refused,) = row["refused"]
    assert (refused["code"], refused["batches"]) == (out_of_order.name, 2)
    assert "the next is 14" in refused["message"]
    assert row["last_append_ms"] > 0
    assert row["last_duplicate_ms"] > 0


async def test_a_producer_that_a_partition_does_not_know_shows_what_it_was_refused(
    broker: RunningBroker, visitor: Visitor, topic: str
) -> None:
    async with connected(broker.broker.port) as client:
        stranger, known = await client.producer_id(), await client.producer_id()
        assert await send(client, topic, stranger, 5) == [ErrorCode.UNKNOWN_PRODUCER_ID]
        await send(client, topic, known, 0)
    rows = (await producers(visitor, topic=topic))["rows"]
    shown = [(row["producer_id"], row["is_known"], len(row["refused"])) for row in rows]
    assert shown == [(stranger, False, 1), (known, True, 0)]
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({"is_troubled": "true"}, [stranger]),
        ({"producer_id": known}, [known]),
        ({"producer_id": known, "is_troubled": "true"}, []),
        ({"offset": 1}, [known]),
        ({"limit": 1}, [stranger]),
    ]
    for query, expected in cases:
        rows = (await producers(visitor, topic=topic, **query))["rows"]
        assert [row["producer_id"] for row in rows] == expected, query


async def test_a_topic_that_does_not_exist_is_not_found(visitor: Visitor, topic: str) -> None:
    for query in ({"topic": "no-such-topic"}, {"topic": topic, "partition": 7}):
        answer = await visitor.get(f"/api/v1/producers?{urlencode(query)}")
        assert (answer.status, answer.json["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
