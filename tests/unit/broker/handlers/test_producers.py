"""InitProducerId and DescribeProducers over real services."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.broker.handlers.conftest import Asker, Clock
from tidelog.broker.cluster.catalog import ProducerIdsReserved
from tidelog.broker.coordinator.producer_ids import MAX_PRODUCER_ID
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey

Open = Callable[..., Awaitable[Asker]]


async def init(asker: Asker, version: int = 4, **values: Any) -> tuple[int, int, int]:
    answer = await asker.ask(ApiKey.INIT_PRODUCER_ID, version, **{"transactional_id": None, **values})
    return answer.error_code, answer.producer_id, answer.producer_epoch


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
