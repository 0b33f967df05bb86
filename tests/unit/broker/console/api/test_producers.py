"""Rows of producers: in pages, from several partitions, and only those that the caller may read."""

from typing import Any
from unittest.mock import AsyncMock

from tests.unit.broker.conftest import Clock
from tests.unit.broker.console.asking import answer, caller_of, console_of
from tests.unit.broker.handlers.conftest import Asker, make_batch
from tidelog.broker.console.api import producers
from tidelog.broker.console.condition import Conditions
from tidelog.protocol.schema import ApiKey


async def written(asker: Asker, topic: str, partition: int, count: int) -> list[int]:
    """The ids of so many producers that wrote to a partition, one after the other."""
    ids = []
    for _ in range(count):
        answer = await asker.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None)
        ids.append(answer.producer_id)
        batch = make_batch(b"v", producer_id=ids[-1], epoch=0, sequence=0)
        await asker.produce(topic, batch, partition=partition)
    return ids


async def page(asker: Asker, **asked: object) -> Any:
    caller = caller_of(asker, hidden=("hidden",))
    return await answer(producers.producers, console_of(asker), caller, **asked)


async def test_pages_go_through_partitions_by_name_and_in_each_from_the_latest(asker: Asker) -> None:
    await asker.create("b", 2)
    await asker.create("a")
    await asker.create("hidden")
    await written(asker, "hidden", 0, 1)
    expected = []
    for topic, partition in (("a", 0), ("b", 0), ("b", 1)):
        ids = await written(asker, topic, partition, 3)
        expected += [(topic, partition, producer_id) for producer_id in reversed(ids)]
    assert (await page(asker))["total"] == len(expected)
    for limit in (1, 2, 4, 50):
        seen = []
        for offset in range(0, len(expected), limit):
            rows = (await page(asker, offset=offset, limit=limit))["rows"]
            assert len(rows) <= limit
            seen += [(row["topic"], row["partition"], row["producer_id"]) for row in rows]
        assert seen == expected


async def test_the_last_page_of_many_producers_has_those_that_wrote_first(asker: Asker, clock: Clock) -> None:
    await asker.create("t")
    log = asker.replica("t").log
    for producer_id in range(10_000):
        log.set_next_sequence(producer_id, 0, 1, clock())
    found = await page(asker, offset=9_990, limit=5)
    assert found["total"] == 10_000
    assert [row["producer_id"] for row in found["rows"]] == [9, 8, 7, 6, 5]


async def test_when_a_producer_wrote_last_is_by_the_clock_of_the_broker(asker: Asker, clock: Clock) -> None:
    await asker.create("t")
    began_ms = clock()
    await written(asker, "t", 0, 1)
    clock.now_ms += 5_000
    (row,) = (await page(asker))["rows"]
    assert row["last_append_ms"] == began_ms


async def test_a_partition_that_is_offline_says_why_and_one_that_follows_is_not_offline(asker: Asker) -> None:
    await asker.create("t", 2)
    asker.replica("t").fail(OSError(5, "Input/output error"))
    asker.replica("t", 1).follow(1, 2)
    condition = await Conditions(asker.services).now(None, AsyncMock())
    assert condition.partitions.offline.first == (("t", 0),)
    found = await page(asker)
    (problem,) = found["problems"]
    assert (problem["topic"], problem["partition"], problem["code"]) == ("t", 0, "KAFKA_STORAGE_ERROR")
