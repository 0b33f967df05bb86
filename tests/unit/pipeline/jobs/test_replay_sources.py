"""What of an archive a replay reads: whole rounds, files by their names, and nothing of what is under way."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.pipeline.jobs.kills import Killed, die, release
from tests.unit.pipeline.jobs.test_archive_log import PLACE, draft
from tidelog.client import ClusterConfig
from tidelog.pipeline.jobs import archive_log
from tidelog.pipeline.jobs.archive_files import ArchiveError
from tidelog.pipeline.jobs.archive_log import Archive, publish
from tidelog.pipeline.jobs.replay_settings import ReplaySettings
from tidelog.pipeline.jobs.replay_sources import ArchivedRecords, Times
from tidelog.pipeline.offsets import OffsetRange, OptionError, Place

NO_TIMES: Times = (None, None)
SPARK: Any = None
DAY_MS = 86_400_000


def records(folder: Path, topics: Iterable[str] = (), times: Times = NO_TIMES) -> ArchivedRecords:
    return ArchivedRecords(SPARK, folder, topics, times, allow_gaps=False)


def test_files_of_a_round_that_is_under_way_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive(str(tmp_path))
    archive.__enter__()
    archive.commit({PLACE: 20}, [draft(archive, 0, 9), draft(archive, 10, 19, None)])
    assert records(tmp_path).bounds() == {PLACE: (0, 20)}

    def publish_one(root: Path, moves: Iterable[Sequence[str]]) -> None:
        publish(root, list(moves)[:1])
        die()

    monkeypatch.setattr(archive_log, "publish", publish_one)
    with pytest.raises(Killed):
        archive.commit({PLACE: 30}, [draft(archive, 20, 28), draft(archive, 21, 29, "2026-11-22")])
    release(archive)
    assert records(tmp_path).bounds() == {PLACE: (0, 20)}


def test_files_without_a_log_count_as_they_are(tmp_path: Path) -> None:
    with Archive(str(tmp_path)) as archive:
        archive.commit({PLACE: 10}, [draft(archive, 5, 9)])
    (tmp_path / "_tidelog").rename(tmp_path / "_elsewhere")
    assert records(tmp_path).bounds() == {PLACE: (5, 10)}
    with pytest.raises(OptionError, match="holds no records of absent"):
        records(tmp_path, ["absent"])
    with pytest.raises(OptionError, match="no archive in"):
        records(tmp_path / "elsewhere")


def test_an_archive_without_records_is_one_unless_it_had_some(tmp_path: Path) -> None:
    with Archive(str(tmp_path)) as archive:
        assert records(tmp_path).bounds() == {}
        archive.commit({PLACE: 10}, [draft(archive, 0, 9)])
    shutil.rmtree(tmp_path / "topic=t")
    with pytest.raises(OptionError, match="no file is left of the archive"):
        records(tmp_path)


def test_readers_of_the_offsets_of_a_missing_file_get_an_error(tmp_path: Path) -> None:
    with Archive(str(tmp_path)) as archive:
        files = [draft(archive, first, first + 9) for first in (0, 10, 20)]
        archive.commit({PLACE: 30}, files)
    (tmp_path / files[2].name).unlink()
    found = records(tmp_path)
    assert found.bounds() == {PLACE: (0, 30)}
    with pytest.raises(ArchiveError, match=f"{files[2].name} is gone from the archive: bring it back"):
        found.read([OffsetRange(*PLACE, 15, 25)])
    for offsets, allow_gaps in (((0, 20), False), ((15, 25), True)):
        found = ArchivedRecords(SPARK, tmp_path, (), NO_TIMES, allow_gaps=allow_gaps)
        wanted = found._files_of([OffsetRange(*PLACE, *offsets)])
        assert [each.offsets for each in found._present(wanted)][-1] == (3, 10, 19)


@pytest.mark.parametrize(
    ("asked", "days", "expected"),
    [
        ((0, 30), NO_TIMES, [0, 10, 20]),
        ((9, 11), NO_TIMES, [0, 10]),
        ((10, 20), NO_TIMES, [10]),
        ((0, 30), (1, None), [10, 20]),
        ((0, 30), (None, 1), [0, 10, 20]),
        ((0, 30), (2, 3), [20]),
    ],
)
def test_files_are_chosen_by_offsets_and_dates(
    tmp_path: Path, asked: tuple[int, int], days: Times, expected: list[int]
) -> None:
    """The third file is of no date."""
    with Archive(str(tmp_path)) as archive:
        dates = ("1970-01-01", "1970-01-02", None)
        files = [draft(archive, 10 * n, 10 * n + 9, each) for n, each in enumerate(dates)]
        archive.commit({PLACE: 30}, files)
    start, end = (day and day * DAY_MS for day in days)
    found = records(tmp_path, (), (start, end))._files_of([OffsetRange(*PLACE, *asked)])
    assert sorted(each.offsets[1] for each in found if each.offsets) == expected
    assert records(tmp_path)._files_of([OffsetRange(*Place("t", 0), 0, 30)]) == []


def test_times_are_utc_unless_they_say_otherwise() -> None:
    settings = ReplaySettings(
        ClusterConfig("x:1"), "a", start_time="1970-01-02", end_time="1970-01-02T01:00:00.5+01:00"
    )
    assert settings.times == (DAY_MS, DAY_MS + 500)
    with pytest.raises(OptionError, match="is not before end_time"):
        ReplaySettings(
            ClusterConfig("x:1"), "a", start_time="1970-01-02", end_time="1970-01-02T00:00:00Z"
        ).check()
