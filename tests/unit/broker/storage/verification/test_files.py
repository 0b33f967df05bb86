"""Damage in indexes, checkpoints, metadata and catalog is found; what is no data folder is refused."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.unit.broker.storage.verification.damaged import Folder, has, only
from tidelog.broker.app import Broker
from tidelog.broker.cluster.catalog import TopicConfigsChanged
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.storage.index import TIME_ENTRY
from tidelog.broker.storage.manager import DataFolderError
from tidelog.broker.storage.verification.findings import PER_FILE, Severity


async def configure(path: Path, configs: dict[str, str]) -> None:
    store = SqliteStore(path, node_id=1)
    catalog = await store.load()
    for revision, topic in enumerate(catalog.topics(), catalog.revision):
        await store.commit([TopicConfigsChanged(topic.topic_id, configs)], revision)
    await store.close()


def test_an_index_that_ends_too_early_is_worth_a_warning(folder: Folder) -> None:
    index = folder.logs[0].with_suffix(".index")
    os.truncate(index, 0)
    asyncio.run(configure(folder.path / "cluster.db", {"index.interval.bytes": "400"}))
    only(folder, rf"warning t-0/{index.name}: the last \d+ bytes of the segment have no entry, .*")


def test_a_time_index_with_a_max_timestamp_of_0_is_no_damage(folder: Folder) -> None:
    """librdkafka sends 0 for records without timestamps, and older versions entered it."""
    log = folder.logs[0]
    for number in range(len(folder.places(log))):
        folder.change(log, number, base_timestamp=-1, max_timestamp=0)
    index = log.with_suffix(".timeindex")
    index.write_bytes(TIME_ENTRY.pack(0, folder.places(log)[0][1].last_offset))
    assert not [line for line in folder.lines() if index.name in line]
    index.write_bytes(TIME_ENTRY.pack(1, folder.places(log)[0][1].last_offset))
    has(folder, rf"damage t-0/{index.name} at byte 0: .* another timestamp than the largest so far: .*")


def test_a_damaged_catalog_is_found(folder: Folder) -> None:
    (folder.path / "cluster.db").write_bytes(b"not a database" * 1000)
    only(folder, r"damage cluster\.db: the file is damaged \(.*\): the next start .* restores it .*")
    (folder.path / "cluster.copy").write_bytes(b"no line\n")
    only(folder, r"damage cluster\.db: a broker refuses to start: .*rebuild-catalog.*")


async def test_the_folder_of_a_running_broker_is_not_changed(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    async with await Broker.start(BrokerConfig(data_dir=data_dir, port=0, http_port=-1)):
        with pytest.raises(DataFolderError, match="a broker is using"):
            Folder(data_dir).verify()
    assert Folder(data_dir).verify() == []


def test_what_is_no_data_folder_is_refused(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(DataFolderError, match="is no folder"):
        Folder(tmp_path / "nowhere").verify()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataFolderError, match="is not the data folder"):
        Folder(tmp_path / "empty").verify()
    with pytest.raises(DataFolderError, match=f"give the data folder around it, {folder.path}"):
        Folder(folder.partition).verify()


def test_a_file_with_too_many_findings_tells_of_the_first(folder: Folder) -> None:
    for number in range(len(folder.places(folder.logs[0]))):
        folder.change(folder.logs[0], number, record_count=9)
    findings = [each for each in folder.verify() if each.severity is Severity.DAMAGE]
    assert len(findings) == PER_FILE
    assert folder.totals.damage == PER_FILE + folder.totals.unreported > PER_FILE
