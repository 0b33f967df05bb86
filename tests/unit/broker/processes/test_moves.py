"""Folders move to other processes, and a start that is killed in the middle of it is finished by the next."""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest

from tests.ending_disk import MANY, EndingDisk, Killed
from tidelog.broker.cluster.catalog import BrokerRegistration, Catalog, PartitionAssignment, Topic
from tidelog.broker.processes.moves import remove_gone, settle_folders
from tidelog.broker.processes.placement import changes, placed
from tidelog.broker.storage.checkpoints import (
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
    write_offsets,
    write_topic_id,
)
from tidelog.broker.storage.disk import Disk
from tidelog.broker.storage.folders import DELETE_SUFFIX
from tidelog.broker.storage.manager import CLEAN_SHUTDOWN, DataFolderError
from tidelog.broker.storage.process_folders import folder_of, process_folders

TOPIC_ID, DELETED_ID = UUID(int=1), UUID(int=2)
PARTITIONS = 6


def catalog(processes: int) -> Catalog:
    """A topic whose partitions are on these processes in turn."""
    nodes = [1 + index % processes for index in range(PARTITIONS)]
    return Catalog(
        "c",
        [Topic("t", TOPIC_ID, tuple(PartitionAssignment(n, 0, (n,), (n,)) for n in nodes))],
        brokers=[BrokerRegistration(1 + process, ()) for process in range(processes)],
        deleted={DELETED_ID: (1, 2)},
    )


def make_partition(place: Path, name: str, topic_id: UUID, contents: bytes) -> None:
    folder = place / name
    folder.mkdir(parents=True)
    write_topic_id(Disk(), folder, topic_id)
    (folder / f"{0:020d}.log").write_bytes(contents)


def make_folders(data_dir: Path, image: Catalog, processes: int, unclean: int | None = None) -> None:
    """As the processes left them; the offsets of a partition are its number and 100 above it."""
    for process in range(processes):
        place = folder_of(data_dir, process)
        place.mkdir(parents=True, exist_ok=True)
        keys = []
        for index, assigned in enumerate(image.topic("t").partitions):  # type: ignore[union-attr]
            if assigned.leader_id == 1 + process:
                make_partition(place, f"t-{index}", TOPIC_ID, b"records of %d" % index)
                keys.append(("t", index))
        write_offsets(Disk(), place / RECOVERY_POINTS, {key: 100 + key[1] for key in keys})
        write_offsets(Disk(), place / LOG_START_OFFSETS, {key: key[1] for key in keys})
        if process != unclean:
            (place / CLEAN_SHUTDOWN).write_bytes(b'{"version": 0}')


def settle(data_dir: Path, image: Catalog, processes: int, disk: Disk | None = None) -> None:
    """As a start does it, up to the end or to the end of the disk."""
    disk = disk or Disk()
    settle_folders(disk, data_dir, image, placed(image, 1, processes))
    for delta in changes(image, 1, processes):
        image.apply(delta)
    remove_gone(disk, data_dir, processes)


def check(data_dir: Path, image: Catalog, processes: int) -> None:
    """Each partition is where the catalog says, with what was known of it, and nowhere else."""
    assert process_folders(data_dir).keys() <= set(range(processes))
    topic = image.topic("t")
    assert topic is not None
    for process, place in process_folders(data_dir).items():
        here = {index for index, one in enumerate(topic.partitions) if one.leader_id == 1 + process}
        found = {each.name for each in place.glob("t-*") if not each.name.endswith(DELETE_SUFFIX)}
        assert found == {f"t-{index}" for index in here}
        for index in here:
            assert (place / f"t-{index}" / f"{0:020d}.log").read_bytes() == b"records of %d" % index
        for name, first in ((RECOVERY_POINTS, 100), (LOG_START_OFFSETS, 0)):
            known: Mapping[tuple[str, int], int] = read_offsets(Disk(), place / name)
            assert {known.get(("t", index)) for index in here} == {first + index for index in here}


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (3, 2), (2, 3), (1, 4), (4, 1)])
def test_a_start_that_ends_at_any_change_of_the_disk_is_finished_by_the_next(
    tmp_path: Path, before: int, after: int
) -> None:
    for left in count():
        data_dir, image, disk = tmp_path / str(left), catalog(before), EndingDisk()
        make_folders(data_dir, image, before)
        make_partition(data_dir, "old-0", DELETED_ID, b"records")
        disk.left = left
        with suppress(Killed):
            settle(data_dir, image, after, disk)
        has_ended = disk.left < 0
        # The catalog is changed after the folders, so it may still be the old one; and the next start may
        # have another number of processes.
        other = 1 + left % 4
        settle(data_dir, image, other)
        check(data_dir, image, other)
        settle(data_dir, image, after)
        check(data_dir, image, after)
        assert not list(data_dir.glob("old-0"))
        shutil.rmtree(data_dir)
        if not has_ended:
            break
    assert 0 < left < MANY


def test_a_folder_is_clean_only_if_all_that_moved_into_it_was(tmp_path: Path) -> None:
    for unclean in (0, 1):
        data_dir, image = tmp_path / str(unclean), catalog(2)
        make_folders(data_dir, image, 2, unclean)
        settle(data_dir, image, 1)
        assert not (data_dir / CLEAN_SHUTDOWN).exists()
    data_dir, image = tmp_path / "clean", catalog(1)
    make_folders(data_dir, image, 1)
    settle(data_dir, image, 2)
    assert (data_dir / CLEAN_SHUTDOWN).exists()
    assert (folder_of(data_dir, 1) / CLEAN_SHUTDOWN).exists()


def test_records_of_one_partition_in_two_folders_are_refused_and_an_empty_one_is_removed(
    tmp_path: Path,
) -> None:
    image = catalog(2)
    make_folders(tmp_path, image, 2)
    make_partition(folder_of(tmp_path, 1), "t-0", TOPIC_ID, b"")
    settle(tmp_path, image, 2)
    check(tmp_path, image, 2)
    make_partition(folder_of(tmp_path, 1), "t-0", TOPIC_ID, b"other records")
    with pytest.raises(DataFolderError, match=r"t-0 and .*processes/1/t-0 both hold records"):
        settle(tmp_path, image, 2)


def test_records_that_the_catalog_does_not_know_are_refused_wherever_they_are(tmp_path: Path) -> None:
    image = catalog(2)
    make_folders(tmp_path, image, 2)
    make_partition(folder_of(tmp_path, 1), "strange-0", UUID(int=9), b"records")
    with pytest.raises(DataFolderError, match="strange-0"):
        settle(tmp_path, image, 1)
    assert (folder_of(tmp_path, 1) / "strange-0").exists()
