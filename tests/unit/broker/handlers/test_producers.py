"""InitProducerId and DescribeProducers over real services."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import NOW_MS, Asker, Clock, make_batch
from tidelog.broker.cluster.catalog import ProducerIdsReserved
from tidelog.broker.coordinator.producer_ids import MAX_PRODUCER_ID
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

Open = Callable[..., Awaitable[Asker]]


async def init(asker: Asker, version: int = 4, **values: Any) -> tuple[int, int, int]:
    answer = await asker.ask(ApiKey.INIT_PRODUCER_ID, version, **{"transactional_id": None, **values})
    return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", range(6))
async def test_every_version_gets_a_fresh_id_at_epoch_0(asker: Asker, version: int) -> None:
    assert await init(asker, version) == (0, 0, 0)
    assert await init(asker, version) == (0, 1, 0)


async def test_the_id_and_epoch_of_an_old_producer_are_ignored(asker: Asker) -> None:
    assert await init(asker) == (0, 0, 0)
    assert await init(asker, producer_id=0, producer_epoch=0) == (0, 1, 0)


async def test_half_an_identity_is_an_invalid_request(asker: Asker) -> None:
    assert await init(asker, producer_id=5) == (ErrorCode.INVALID_REQUEST, -1, -1)


async def test_many_at_once_all_get_different_ids(asker: Asker) -> None:
    answers = await asyncio.gather(*(init(asker) for _ in range(2500)))
    assert {code for code, _, _ in answers} == {0}
    assert sorted(producer_id for _, producer_id, _ in answers) == list(range(2500))


async def test_ids_never_come_back_after_a_restart(open_asker: Open) -> None:
    asker = await open_asker()
    before = {(await init(asker))[1] for _ in range(3)}
    await asker.services.close()
    again = await open_asker()
    assert (await init(again))[1] > max(before)


async def test_when_the_store_fails_the_client_gets_a_retriable_error(
    asker: Asker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = asker.services.cluster._store

    async def failing(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "commit", failing)
    assert await init(asker) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert await init(asker) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    monkeypatch.undo()
    clock.now_ms += 50
    assert await init(asker) == (0, 0, 0)


async def test_no_id_left_in_int64_is_an_error_and_not_a_wrap(asker: Asker) -> None:
    cluster = asker.services.cluster
    await cluster.change(lambda catalog: ProducerIdsReserved(MAX_PRODUCER_ID - 5))
    assert await init(asker) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1)


async def test_a_partitions_producers_are_described(asker: Asker) -> None:
    await asker.create("t")
    _, producer_id, _ = await init(asker)
    await asker.produce("t", make_batch(b"a", b"b", producer_id=producer_id, epoch=0, sequence=0))
    answer = await asker.ask(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        topics=[{"name": "t", "partition_indexes": [0, 1]}, {"name": "no", "partition_indexes": [0]}],
    )
    known, missing = answer.topics[0].partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (producer_id, 0, 1)
    assert (producer.last_timestamp, producer.current_txn_start_offset) == (NOW_MS, -1)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
