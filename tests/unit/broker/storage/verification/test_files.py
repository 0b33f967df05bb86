"""Damage in indexes, checkpoints, metadata and catalog is found; what is no data folder is refused."""

import asyncio
import os
import shutil
from pathlib import Path
from uuid import uuid4

import pytest

from tests.unit.broker.storage.verification.damaged import Folder, has, only
from tidelog.broker.app import Broker
from tidelog.broker.cluster.catalog import TopicConfigsChanged
from tidelog.broker.cluster.sqlite_store import SqliteStore
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.data_folder.verification import VerificationError
from tidelog.broker.storage.checkpoints import write_topic_id
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.index import OFFSET_ENTRY, TIME_ENTRY
from tidelog.broker.storage.verification.findings import PER_FILE, Severity


def rewrite(path: Path, number: int, entry: tuple[int, int]) -> int:
    """Change one entry of an index; its position."""
    kind = OFFSET_ENTRY if path.suffix == ".index" else TIME_ENTRY
    data = bytearray(path.read_bytes())
    kind.pack_into(data, number * kind.size, *entry)
    path.write_bytes(data)
    return number * kind.size


def test_an_index_entry_that_names_no_batch_is_found(folder: Folder) -> None:
    index = folder.logs[0].with_suffix(".index")
    offset, position = OFFSET_ENTRY.unpack_from(index.read_bytes(), OFFSET_ENTRY.size)
    at = rewrite(index, 1, (offset, position + 3))
    only(
        folder,
        rf"damage t-0/{index.name} at byte {at}: the entry for offset {offset} names byte {position + 3},"
        " where no batch begins",
    )


def test_an_index_entry_with_another_offset_is_found(folder: Folder) -> None:
    index = folder.logs[1].with_suffix(".index")
    offset, position = OFFSET_ENTRY.unpack_from(index.read_bytes(), 0)
    base = int(index.stem)
    rewrite(index, 0, (offset - 1, position))
    only(
        folder,
        rf"damage t-0/{index.name} at byte 0: the entry for byte {position} names an offset that is not its"
        rf" batch's last: expected {base + offset}, got {base + offset - 1}",
    )


def test_index_entries_that_do_not_ascend_are_found(folder: Folder) -> None:
    index = folder.logs[0].with_suffix(".index")
    rewrite(index, 2, (0, 0))
    only(folder, rf"damage t-0/{index.name} at byte 16: entries must ascend: .*")


def test_an_index_entry_behind_the_end_is_found(folder: Folder) -> None:
    index = folder.last_log.with_suffix(".index")
    data = index.read_bytes()
    index.write_bytes(data + OFFSET_ENTRY.pack(10_000, 1 << 20))
    only(
        folder,
        rf"damage t-0/{index.name} at byte {len(data)}: the entry names a byte after the last batch.*",
    )


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_cut_inside_an_entry_is_found(folder: Folder, suffix: str) -> None:
    index = folder.logs[0].with_suffix(suffix)
    size = index.stat().st_size
    os.truncate(index, size - 3)
    has(folder, rf"damage t-0/{index.name} at byte \d+: \d+ bytes at the end are not a whole entry")


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_index_is_found_where_a_broker_relies_on_it(folder: Folder, suffix: str) -> None:
    for log in (folder.logs[0], folder.last_log):
        log.with_suffix(suffix).unlink()
    lines = folder.lines()
    assert len(lines) == 2
    assert all("the file is missing; the next start of a broker makes it again" in line for line in lines)
    folder.crash()
    only(folder, rf"warning t-0/0{{20}}\{suffix}: the file is missing; .*")


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


def test_a_wrong_timestamp_in_the_time_index_is_found(folder: Folder) -> None:
    index = folder.logs[0].with_suffix(".timeindex")
    timestamp, offset = TIME_ENTRY.unpack_from(index.read_bytes(), 0)
    rewrite(index, 0, (timestamp - 1, offset))
    has(
        folder,
        rf"damage t-0/{index.name} at byte 0: the entry for offset {offset} names another timestamp than the"
        rf" largest so far: expected {timestamp}, got {timestamp - 1}",
    )


def test_a_time_index_entry_that_names_no_batch_is_found(folder: Folder) -> None:
    index = folder.logs[0].with_suffix(".timeindex")
    timestamp, offset = TIME_ENTRY.unpack_from(index.read_bytes(), 0)
    rewrite(index, 0, (timestamp, offset - 1))
    has(
        folder,
        rf"damage t-0/{index.name} at byte 0: the entry names offset {offset - 1}, which is no batch's last",
    )


def test_a_time_index_without_the_largest_timestamp_is_found(folder: Folder) -> None:
    index = folder.last_log.with_suffix(".timeindex")
    os.truncate(index, 0)
    only(
        folder,
        rf"damage t-0/{index.name}: the last entry lacks the largest timestamp: expected \d+, got -1",
    )


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


def test_a_damaged_leader_epoch_file_is_found(folder: Folder) -> None:
    path = folder.partition / "leader-epoch-checkpoint"
    path.write_text("0\n1\n0 five\n")
    has(folder, r"damage t-0/leader-epoch-checkpoint: .*five.*")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0\n1\n0 4\n", "leader epoch 0 began elsewhere: expected 0, got 4"),
        ("0\n0\n", "leader epoch 0 began elsewhere: expected 0, got none"),
        ("0\n2\n0 0\n3 10\n", "no batch carries leader epoch 3: got 10"),
    ],
)
def test_leader_epochs_that_the_batches_deny_are_found(folder: Folder, text: str, problem: str) -> None:
    (folder.partition / "leader-epoch-checkpoint").write_text(text)
    only(folder, f"damage t-0/leader-epoch-checkpoint: {problem}")


def test_a_damaged_offset_checkpoint_is_found(folder: Folder) -> None:
    (folder.path / "recovery-point-offset-checkpoint").write_text("nonsense")
    only(folder, r"damage recovery-point-offset-checkpoint: expected version 0 .*")


def test_a_start_offset_behind_the_end_is_found(folder: Folder) -> None:
    (folder.path / "log-start-offset-checkpoint").write_text("0\n2\nt 0 999\nu 0 0\n")
    only(folder, "damage t-0: the log start offset is after the end: expected 180 or less, got 999")


def test_a_checkpoint_for_a_partition_without_a_folder_is_worth_a_warning(folder: Folder) -> None:
    path = folder.path / "log-start-offset-checkpoint"
    path.write_text("0\n3\ngone 0 5\nt 0 0\nu 0 0\n")
    only(folder, "warning log-start-offset-checkpoint: it names gone-0, which has no folder: got 5")


def test_the_metadata_of_another_topic_is_found(folder: Folder) -> None:
    write_topic_id(Disk(), folder.partition, uuid4())
    only(
        folder,
        r"damage t-0/partition\.metadata: it names another topic than cluster\.db: .*expected .*, got .*",
    )


def test_missing_or_damaged_metadata_is_found(folder: Folder) -> None:
    path = folder.partition / "partition.metadata"
    path.write_text("version: 9\n")
    only(folder, r"damage t-0/partition\.metadata: .*version 0, got 9.*")
    path.unlink()
    only(folder, r"damage t-0/partition\.metadata: the file is missing or empty: expected the topic id .*")


def test_a_partition_without_its_folder_is_found(folder: Folder) -> None:
    shutil.rmtree(folder.path / "u-0")
    has(folder, r"damage u-0: the folder is missing, and cluster\.db assigns the partition to this broker")


def test_a_folder_that_no_topic_has_is_damage_where_it_holds_records(folder: Folder) -> None:
    shutil.copytree(folder.partition, folder.path / "stranger-3")
    only(folder, r"damage stranger-3: no partition of cluster\.db, .* refuses to start; .*rebuild-catalog`")
    for path in (folder.path / "stranger-3").glob("0*"):
        path.unlink()
    only(
        folder,
        r"warning stranger-3: no partition of cluster\.db, and no record was ever in it: .* removes it",
    )


def test_a_missing_catalog_is_found(folder: Folder) -> None:
    (folder.path / "cluster.copy").unlink()
    only(folder, r"warning cluster\.copy: the file is missing: .*")
    (folder.path / "cluster.db").unlink()
    only(folder, r"damage cluster\.db: the file is missing, and cluster\.copy too: a broker refuses .*")


def test_a_damaged_catalog_is_found(folder: Folder) -> None:
    (folder.path / "cluster.db").write_bytes(b"not a database" * 1000)
    only(folder, r"damage cluster\.db: the file is damaged \(.*\): the next start .* restores it .*")
    (folder.path / "cluster.copy").write_bytes(b"no line\n")
    only(folder, r"damage cluster\.db: a broker refuses to start: .*rebuild-catalog.*")


def test_a_damaged_copy_of_the_catalog_is_found(folder: Folder) -> None:
    os.truncate(folder.path / "cluster.copy", 1000)
    only(folder, r"damage cluster\.copy: .*1000 bytes.*; the next start .* writes it again .*")


async def test_the_folder_of_a_running_broker_is_not_changed(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    async with await Broker.start(BrokerConfig(data_dir=data_dir, port=0, http_port=-1)):
        with pytest.raises(VerificationError, match="a broker is using"):
            Folder(data_dir).verify()
    assert Folder(data_dir).verify() == []


def test_what_is_no_data_folder_is_refused(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="is no folder"):
        Folder(tmp_path / "nowhere").verify()
    (tmp_path / "empty").mkdir()
    with pytest.raises(VerificationError, match="is not the data folder"):
        Folder(tmp_path / "empty").verify()
    with pytest.raises(VerificationError, match=f"give the data folder around it, {folder.path}"):
        Folder(folder.partition).verify()


def test_a_file_with_too_many_findings_tells_of_the_first(folder: Folder) -> None:
    for number in range(len(folder.places(folder.logs[0]))):
        folder.change(folder.logs[0], number, record_count=9)
    findings = [each for each in folder.verify() if each.severity is Severity.DAMAGE]
    assert len(findings) == PER_FILE
    assert folder.totals.damage == PER_FILE + folder.totals.unreported > PER_FILE
