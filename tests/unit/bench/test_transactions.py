"""The load of transactions does what it says to a server that works."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bench.loads import transactions_load
from bench.loads.transactions_load import CLIENTS, TOPIC
from bench.scenarios.transactions import MEASURES
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig

RECORDS = 4


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with await Broker.start(BrokerConfig(port=0, http_port=-1, data_dir=tmp_path)) as running:
        yield running


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("is_plain", [False, True], ids=["in-transactions", "plain"])
async def test_the_load_measures_what_the_scenario_shows(
    broker: Broker, client: str, is_plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions_load, "WARM_UP", 1)
    options = [str(broker.port), client, "--records", str(RECORDS), "--seconds", "0.05"]
    given = transactions_load.parse([*options, *(["--plain"] if is_plain else [])])
    numbers = await asyncio.to_thread(transactions_load.run, given)
    assert numbers.keys() >= {key for key, *_ in MEASURES}
    batches = int(numbers["transactions"]) + 1
    stored = sum(broker.services.replica(TOPIC, index).log.end_offset for index in range(3))
    assert stored >= batches * RECORDS + (0 if is_plain else batches), "records, and markers of transactions"
