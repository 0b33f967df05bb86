"""Batches and snapshots that break the rules of idempotence are found."""

from pathlib import Path

import pytest

from tests.conformance.raw import NOW_MS, batch, connected
from tests.unit.broker.storage.support import marker
from tests.unit.broker.storage.verification.damaged import Folder, has, only
from tidelog.broker.app import Broker
from tidelog.broker.configuration.broker_config import BrokerConfig


async def test_a_producer_that_was_moved_by_a_fault_is_no_damage(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    async with await Broker.start(BrokerConfig(data_dir=data_dir, port=0, http_port=-1)) as broker:
        async with connected(broker.port) as client:
            await client.create()
            producer_id = await client.producer_id()
            await client.produce(batch("a", producer_id, 0))
        broker.services.replica("t", 0).log.set_next_sequence(producer_id, 0, 1000, NOW_MS)
    only(Folder(data_dir), rf"warning t-0/.*: producer {producer_id} was moved by `tidelog fault sequence`")


@pytest.mark.parametrize("clean", [True, False])
async def test_markers_are_replayed_as_a_start_does(tmp_path: Path, clean: bool) -> None:
    data_dir = tmp_path / "data"
    config = BrokerConfig(data_dir=data_dir, port=0, http_port=-1)
    async with await Broker.start(config) as broker, connected(broker.port) as client:
        await client.create()
        producer_id, other_id = await client.producer_id(), await client.producer_id()
        await client.produce(batch("a", producer_id, 0))
        replica = broker.services.replica("t", 0)
        await replica.append_as_coordinator(marker(producer_id, 1, 3), NOW_MS)
        await replica.append_as_coordinator(marker(other_id, 0, 3), NOW_MS)
        await client.produce(batch("b", producer_id, 0, epoch=1))
    folder = Folder(data_dir)
    if not clean:
        folder.crash()
    assert not [line for line in folder.lines() if "t-0/" in line]


async def test_a_marker_of_an_older_coordinator_is_found(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    config = BrokerConfig(data_dir=data_dir, port=0, http_port=-1)
    async with await Broker.start(config) as broker, connected(broker.port) as client:
        await client.create()
        producer_id = await client.producer_id()
        replica = broker.services.replica("t", 0)
        for coordinator_epoch in (2, 3):
            await replica.append_as_coordinator(marker(producer_id, 0, coordinator_epoch), NOW_MS)
    folder = Folder(data_dir)
    folder.crash()
    folder.append_copy(0)
    has(folder, r"damage t-0/.*: a batch that had to be refused: a coordinator of epoch 2 ends .* 3 did so.*")
