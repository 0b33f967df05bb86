"""InitProducerId and DescribeProducers over real services."""

from typing import Any

import pytest

from tests.unit.broker.conftest import Clock
from tests.unit.broker.handlers.conftest import Asker
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.schema import ApiKey


async def init(asker: Asker, version: int = 4, **values: Any) -> tuple[int, int, int]:
    answer = await asker.ask(ApiKey.INIT_PRODUCER_ID, version, **{"transactional_id": None, **values})
    return answer.error_code, answer.producer_id, answer.producer_epoch


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
