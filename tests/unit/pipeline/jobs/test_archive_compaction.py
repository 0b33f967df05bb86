"""Small files become large ones, and any reader sees each record once, wherever a run dies."""

from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.unit.pipeline.jobs.kills import Killed, die, release
from tidelog.pipeline.jobs import archive_compaction
from tidelog.pipeline.jobs.archive_compaction import exchange, plan
from tidelog.pipeline.jobs.archive_files import FILE_SCHEMA, ArchiveError, DraftFile, describe
from tidelog.pipeline.jobs.archive_log import Archive, missing_files
from tidelog.pipeline.offsets import Place

DAY_US = 86_400_000_000
PLACES = [Place("t", 0), Place("t", 1)]
COMMITS = 6
ROWS = 10


def records(partition: int, offsets: range, day: int) -> pa.Table:
    columns: dict[str, list[Any]] = {
        "key": [None] * len(offsets),
        "value": [b"%d" % offset for offset in offsets],
        "partition": [partition] * len(offsets),
        "offset": list(offsets),
        "timestamp": [day * DAY_US] * len(offsets),
        "headers": [[]] * len(offsets),
    }
    zeros = [0] * len(offsets)
    arrays = [pa.array(columns.get(field.name, zeros), field.type) for field in FILE_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=FILE_SCHEMA)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An archive of COMMITS commits, each with a file for each of two partitions and two dates."""
    root = tmp_path / "archive"
    with Archive(str(root)) as archive:
        for number in range(COMMITS):
            files = []
            for partition, day in product((0, 1), (0, 1)):
                folder = archive.drafts / f"{number}-{partition}" / "topic=t" / f"date=1970-01-0{1 + day}"
                folder.mkdir(parents=True)
                offsets = range(number * ROWS + day, (number + 1) * ROWS, 2)
                pq.write_table(records(partition, offsets, day), folder / "draft")
                files.append(describe(folder / "draft"))
            archive.commit(dict.fromkeys(PLACES, (number + 1) * ROWS), files)
    return root


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.glob("topic=*/**/*.parquet"))


def check(root: Path) -> None:
    """A reader of Parquet finds each record once, with its own value, in the folder of its date."""
    rows = ds.dataset(root, format="parquet", partitioning="hive").to_table().to_pylist()
    expected = [(partition, offset) for partition in (0, 1) for offset in range(COMMITS * ROWS)]
    assert sorted((row["partition"], row["offset"]) for row in rows) == expected
    assert all(int(row["value"]) == row["offset"] for row in rows)
    assert all(row["date"] == f"1970-01-0{1 + row['offset'] % 2}" for row in rows)


def compact(root: Path, rows_per_file: int = 1000) -> int:
    with Archive(str(root)) as archive:
        gone = archive_compaction.compact(archive.root, archive.drafts, rows_per_file, "zstd")
        assert missing_files(root) == []
        assert archive.ends == dict.fromkeys(PLACES, COMMITS * ROWS)
    return gone


def test_the_files_of_a_date_and_partition_become_one_and_a_second_time_nothing_is_done(root: Path) -> None:
    before = names(root)
    assert compact(root) == len(before) - 4 == 4 * (COMMITS - 1)
    assert names(root)[0] == (
        "topic=t/date=1970-01-01/00000-00000000000000000000-00000000000000000058.parquet"
    )
    check(root)
    assert pq.read_schema(root / names(root)[0]) == FILE_SCHEMA
    assert compact(root) == 0
    assert list((root / "_tidelog" / "drafts").iterdir()) == []


@pytest.mark.parametrize("step", ["join_files", "sync", "exchange", "exchange, done", "rmtree"])
def test_a_compaction_that_is_killed_anywhere_leaves_each_record_once(
    root: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def exchange_and_die(one: Path, other: Path) -> None:
        exchange(one, other)
        die()

    archive = Archive(str(root))
    archive.__enter__()
    with monkeypatch.context() as patch:
        if step == "rmtree":
            patch.setattr(archive_compaction.shutil, "rmtree", die)
        elif step == "exchange, done":
            patch.setattr(archive_compaction, "exchange", exchange_and_die)
        else:
            patch.setattr(archive_compaction, step, die)
        with pytest.raises(Killed):
            archive_compaction.compact(archive.root, archive.drafts, 1000, "zstd")
    release(archive)
    check(root)
    compact(root)
    assert len(names(root)) == 4
    check(root)


def test_a_folder_with_files_of_others_is_not_changed(root: Path) -> None:
    (root / "topic=t" / "date=1970-01-01" / "part-0.parquet").touch()
    before = names(root)
    assert compact(root) == 2 * (COMMITS - 1)
    assert [each for each in names(root) if "1970-01-01" in each] == [
        each for each in before if "1970-01-01" in each
    ]


def test_a_file_that_does_not_hold_what_its_name_says_is_an_error_and_nothing_is_replaced(root: Path) -> None:
    before = names(root)
    (root / before[0]).rename(root / before[0].replace("0.parquet", "8.parquet").replace("008-", "000-"))
    changed = names(root)
    (root / changed[0]).write_bytes((root / changed[1]).read_bytes())
    with pytest.raises(ArchiveError):
        compact(root)
    assert names(root) == changed


def test_without_an_exchange_in_one_step_nothing_is_replaced(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Path) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(archive_compaction, "exchange", refuse)
    with pytest.raises(ArchiveError, match="cannot exchange two folders in one step"):
        compact(root)
    check(root)


def sized(*rows: int, partition: int = 0) -> list[DraftFile]:
    return [
        DraftFile(
            Path(f"{number}"), f"{partition}-{number}", partition, 100 * number, 100 * number + 99, count
        )
        for number, count in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("rows", "joined"),
    [
        ([1, 1, 1], [["0", "1", "2"]]),
        ([40, 40, 40, 40], [["0", "1"], ["2", "3"]]),
        ([60, 30, 30, 60], []),
        ([70, 1, 1, 1], [["1", "2", "3"]]),
        ([1, 1, 70, 1, 1], [["0", "1"], ["3", "4"]]),
        ([100, 100], []),
        ([70, 20], []),
        ([5], []),
    ],
)
def test_files_are_joined_where_that_at_least_doubles_each_of_them(
    rows: list[int], joined: list[list[str]]
) -> None:
    assert [[str(each.draft) for each in group] for group in plan(sized(*rows), 100)] == joined


def test_files_of_two_partitions_are_never_joined() -> None:
    assert plan(sized(1) + sized(1, partition=1), 100) == []
