"""Remote segments read straight from the object store: the broker's rows, however they are cut."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.commands import typist
from tests.unit.broker.tiering.conftest import TIERED
from tests.unit.pipeline.batches import plain_rows
from tidelog.broker.services import Services
from tidelog.broker.testing.embedded import ThreadedBroker
from tidelog.client import Producer
from tidelog.pipeline.data_source import TidelogDataSource
from tidelog.pipeline.offsets import OptionError
from tidelog.pipeline.schema import SCHEMA
from tidelog.pipeline.segments import remote_pieces
from tidelog.pipeline.source.reading import FetchedPartition, PiecePartition


async def _settle(services: Services) -> None:
    assert services.tiering is not None
    await services.tiering.look()


async def _fill(address: str) -> None:
    """Ten transactions of two records and a marker each, every third of them aborted; then plain records."""
    async with Producer(bootstrap_servers=address, transactional_id="x") as producer:
        for number in range(10):
            await producer.begin_transaction()
            for value in range(2):
                await producer.send("t", b"%d-%d" % (number, value) + b"x" * 50, partition=0)
            await producer.flush()  # What was not sent when a transaction is aborted never is.
            await (producer.abort_transaction() if number % 3 == 2 else producer.commit_transaction())
    async with Producer(bootstrap_servers=address) as producer:
        for number in range(10):
            await producer.send_and_wait("t", b"%d" % number + b"x" * 50, partition=0)


def test_old_records_come_from_the_object_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    url = f"file://{tmp_path}/remote"
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.storage.url": url,
        "remote.log.manager.task.interval.ms": 3_600_000,
    }
    several_transactions = {"segment_bytes": "1000"}
    configs = {name.replace("_", "."): value for name, value in (TIERED | several_transactions).items()}
    with ThreadedBroker(data_dir=tmp_path / "data", settings=settings) as broker:
        broker.create_topic("t", configs=configs)
        asyncio.run(_fill(broker.bootstrap_servers))
        broker._do(lambda: _settle(broker.broker.services))
        given = {"bootstrap.servers": broker.bootstrap_servers, "subscribe": "t"}
        for level in ("read_committed", "read_uncommitted"):
            for start in ("earliest", '{"t":{"0":4}}'):
                for piece_bytes, block_bytes in ((1, 1 << 20), (1 << 30, 1 << 20), (1 << 30, 1)):
                    monkeypatch.setattr(remote_pieces, "PIECE_BYTES", piece_bytes)
                    monkeypatch.setattr(remote_pieces, "BLOCK_BYTES", block_bytes)
                    options = given | {"isolation.level": level, "startingOffsets": start}
                    remote, kinds = read(options | {"remote.storage.url": url})
                    assert kinds == {PiecePartition, FetchedPartition}
                    assert remote == read(options)[0]
                    assert len(remote) >= 20
        address = broker.bootstrap_servers
        code, shown, _ = typist(capfd)("topic", "describe", "t", "--json", "-b", address)
        assert code == 0
        (described,) = json.loads(shown)["partitions"]
        assert described["first_local"] == 0
        assert 20 <= described["last_remote"] < 40


def read(options: dict[str, str]) -> tuple[list[dict[str, Any]], set[type]]:
    """The rows, in order, and the kinds of the tasks."""
    reader = TidelogDataSource(options).reader(SCHEMA)
    tasks = reader.partitions()
    rows = [row for task in tasks for row in plain_rows(reader.read(task))]
    return sorted(rows, key=lambda row: int(row["offset"])), {type(task) for task in tasks}


def test_remote_storage_needs_a_broker(tmp_path: Path) -> None:
    options = {"read.path": str(tmp_path), "remote.storage.url": "file:///x", "subscribe": "t"}
    with pytest.raises(OptionError, match=r"remote\.storage\.url: give bootstrap\.servers too"):
        TidelogDataSource(options).schema()
