"""The load of transactions does what it says to a server that works."""

import gc

import pytest

from bench.loads import transactions_load
from bench.wire import Wire
from tidelog.broker.testing.embedded import ThreadedBroker

RECORDS = 4


@pytest.mark.parametrize("client", transactions_load.CLIENTS)
async def test_every_transaction_is_stored(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions_load, "WARM_UP", 1)
    with ThreadedBroker() as broker:
        topic = broker.create_topic(partitions=3)
        try:
            numbers = await transactions_load.run(broker.port, topic, client, RECORDS, seconds=0.05)
        finally:
            gc.enable()
        with Wire(broker.port) as wire:
            stored = wire.end_offset(topic, 3)
    assert stored == (numbers["records"] + 1) * (RECORDS + 3), "records, and markers of transactions"
