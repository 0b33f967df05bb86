"""The load of transactions does what it says to a server that works."""

import gc

import pytest

from bench.loads import transactions_load
from bench.wire import Wire
from tests.waiting import DEADLINE_SECONDS, wait_for
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
        expected = (numbers["records"] + 1) * (RECORDS + 3)
        with Wire(broker.port) as wire:
            # A commit is answered before its markers are written.
            wait_for(lambda: wire.end_offset(topic, 3) >= expected, "the last markers", DEADLINE_SECONDS)
            assert wire.end_offset(topic, 3) == expected, "records, and markers of transactions"
