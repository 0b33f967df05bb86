"""Every damage changes its file, the same way each time; a file of no known kind is refused."""

import random
from pathlib import Path

import pytest

from faults.damage.files import (
    Damage,
    FileKind,
    UnknownFileError,
    apply,
    damages_of,
    files_by_kind,
    is_of_a_partition,
)
from faults.damage.sample import batch_of

SEED = 11


def folder(path: Path) -> Path:
    """Two partitions with a segment of three batches each."""
    for partition in range(2):
        own = path / f"t-{partition}"
        own.mkdir(parents=True)
        batches = [batch_of(5, 0, partition, first, 2, 1_000).data for first in (0, 2, 4)]
        (own / f"{partition:020d}.log").write_bytes(b"".join(batches))
        (own / f"{0:020d}.txnindex").write_bytes(bytes([partition + 1]) * 34)
        (own / "partition.metadata").write_text(f"id {partition}")
    (path / "cluster.db").write_bytes(bytes(range(1, 200)) + bytes(800))
    (path / ".lock").touch()
    return path


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        (kind, damage)
        for kind in (FileKind.LOG, FileKind.TRANSACTION_INDEX, FileKind.PARTITION_METADATA, FileKind.CATALOG)
        for damage in damages_of(kind)
    ],
)
def test_a_damage_changes_its_file_the_same_way_each_time(
    tmp_path: Path, kind: FileKind, damage: Damage
) -> None:
    left = []
    for name in ("first", "second"):
        files = files_by_kind(folder(tmp_path / name))[kind]
        before = {path: path.read_bytes() for path in files}
        done = apply(kind, damage, files[0], files, random.Random(SEED))
        assert done is not None
        assert done.files[0] == files[0]
        after = {path: path.read_bytes() if path.exists() else None for path in files}
        assert {path for path in files if after[path] != before[path]} == set(done.files)
        left.append(list(after.values()))
    assert left[0] == left[1]


@pytest.mark.parametrize("emptied", [0, 1])
def test_an_empty_file_is_not_swapped(tmp_path: Path, emptied: int) -> None:
    files = files_by_kind(folder(tmp_path))[FileKind.LOG]
    files[emptied].write_bytes(b"")
    assert apply(FileKind.LOG, Damage.SWAP, files[0], files, random.Random(SEED)) is None


def test_flips_and_zeros_fall_on_used_bytes(tmp_path: Path) -> None:
    path = folder(tmp_path) / "cluster.db"
    before = path.read_bytes()
    for seed in range(50):
        apply(FileKind.CATALOG, Damage.FLIP, path, (), random.Random(seed))
        assert path.read_bytes()[200:] == before[200:]
        path.write_bytes(before)


def test_a_file_of_zeros_alone_has_nothing_to_flip(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    path.write_bytes(bytes(4096))
    assert apply(FileKind.CATALOG, Damage.FLIP, path, (), random.Random(SEED)) is None


def test_a_file_of_an_unknown_kind_is_refused_by_its_name(tmp_path: Path) -> None:
    (folder(tmp_path) / "t-0" / "new.thing").touch()
    with pytest.raises(UnknownFileError, match=r"t-0/new\.thing"):
        files_by_kind(tmp_path)


def test_each_kind_is_either_of_a_partition_or_of_the_folder(tmp_path: Path) -> None:
    found = files_by_kind(folder(tmp_path))
    of_partitions = {FileKind.LOG, FileKind.TRANSACTION_INDEX, FileKind.PARTITION_METADATA}
    assert {kind for kind in found if is_of_a_partition(kind)} == of_partitions
    assert {kind for kind in found if not is_of_a_partition(kind)} == {FileKind.CATALOG}
