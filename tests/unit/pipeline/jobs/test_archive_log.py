"""The archive's log: a commit holds as a whole or not at all, wherever the run that makes it dies."""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.unit.pipeline.jobs.kills import Killed, die, release
from tidelog.pipeline.jobs import archive_log
from tidelog.pipeline.jobs.archive_files import ArchiveError, DraftFile, offsets_in_name
from tidelog.pipeline.jobs.archive_log import Archive, missing_files, publish
from tidelog.pipeline.offsets import OptionError, Place

PLACE = Place("t", 3)
OTHER = Place("u", 0)


def draft(archive: Archive, first: int, last: int, date: str | None = "2026-11-21") -> DraftFile:
    path = archive.drafts / f"draft-{first}-{date}"
    path.write_text(f"{first} to {last}")
    name = f"topic=t/date={date or '__HIVE_DEFAULT_PARTITION__'}/00003-{first:020}-{last:020}.parquet"
    return DraftFile(path, name, 3, first, last, last - first + 1)


def visible(folder: Path) -> list[str]:
    """Files that a reader of Parquet looks into."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(str(path) for path in paths if not any(part[0] in "._" for part in path.parts))


def test_a_name_tells_the_offsets() -> None:
    assert offsets_in_name("00003-00000000000000000100-00000000000000000199.parquet") == (3, 100, 199)
    assert offsets_in_name("part-0.parquet") is None


def test_a_commit_shows_its_files_and_moves_the_ends(tmp_path: Path) -> None:
    with Archive(str(tmp_path)) as archive:
        assert archive.ends == {}
        archive.commit({PLACE: 10}, [draft(archive, 0, 9)])
        assert visible(tmp_path) == [draft(archive, 0, 9).name]
        archive.commit({OTHER: 7}, [])
    with Archive(str(tmp_path)) as archive:
        assert archive.ends == {PLACE: 10, OTHER: 7}
        assert list(archive.drafts.parent.rglob("draft-*")) == []


def test_drafts_of_a_run_that_died_before_its_commit_are_swept_out(tmp_path: Path) -> None:
    archive = Archive(str(tmp_path))
    archive.__enter__()
    left = draft(archive, 0, 9)
    release(archive)
    assert left.draft.exists()
    with Archive(str(tmp_path)) as archive:
        assert not left.draft.exists()
        assert archive.ends == {}
        assert visible(tmp_path) == []


@pytest.mark.parametrize("renamed", [0, 1, 2])
def test_a_commit_is_finished_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renamed: int
) -> None:
    def publish_some(root: Path, moves: Iterable[Sequence[str]]) -> None:
        publish(root, list(moves)[:renamed])
        die()

    archive = Archive(str(tmp_path))
    archive.__enter__()
    files = [draft(archive, 0, 9), draft(archive, 1, 8, "2026-11-22")]
    with monkeypatch.context() as patch:
        patch.setattr(archive_log, "publish", publish_some)
        with pytest.raises(Killed):
            archive.commit({PLACE: 10}, files)
    release(archive)
    assert len(visible(tmp_path)) == renamed
    with Archive(str(tmp_path)) as archive:
        assert archive.ends == {PLACE: 10}
        assert visible(tmp_path) == sorted(each.name for each in files)
        archive.commit({PLACE: 20}, [draft(archive, 10, 19)])
    assert len(visible(tmp_path)) == 3


def test_a_file_whose_draft_is_gone_before_it_was_renamed_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive(str(tmp_path))
    archive.__enter__()
    archive.commit({PLACE: 10}, [draft(archive, 0, 9)])
    file = draft(archive, 10, 19, "2026-11-22")
    with monkeypatch.context() as patch:
        patch.setattr(archive_log, "publish", die)
        with pytest.raises(Killed):
            archive.commit({PLACE: 20}, [file])
    release(archive)
    file.draft.unlink()
    with Archive(str(tmp_path)) as archive:
        assert archive.ends == {PLACE: 20}
        assert missing_files(tmp_path) == [file.name]


def test_a_file_that_was_deleted_is_missed_and_the_archive_goes_on(tmp_path: Path) -> None:
    """The last file of a partition however long ago it came, others while their commit is kept."""
    with Archive(str(tmp_path)) as archive:
        files = [draft(archive, 0, 9), draft(archive, 10, 19, "2026-11-20")]
        archive.commit({PLACE: 20}, files)
        for file in files:
            (tmp_path / file.name).rename(tmp_path / f".{file.first_offset}")
        assert missing_files(tmp_path) == sorted(each.name for each in files)
        for end in range(20):
            archive.commit({OTHER: end}, [])
    with Archive(str(tmp_path)) as archive:
        assert missing_files(tmp_path) == [files[1].name]
        assert archive.ends[PLACE] == 20
        (tmp_path / ".10").rename(tmp_path / files[1].name)
        assert missing_files(tmp_path) == []


def test_what_was_taken_away_as_a_whole_is_not_missed(tmp_path: Path) -> None:
    with Archive(str(tmp_path)) as archive:
        dates = ("2026-11-20", "2026-11-21", "2026-11-22")
        files = [draft(archive, 10 * number, 10 * number + 9, date) for number, date in enumerate(dates)]
        archive.commit({PLACE: 30}, files)
        folders = [(tmp_path / file.name).parent for file in files]
        shutil.rmtree(folders[0])
        assert missing_files(tmp_path) == [], "the oldest date was cut off"
        (tmp_path / files[1].name).rename(folders[1] / "part-0.parquet")
        assert missing_files(tmp_path) == [], "somebody compacted it"
        shutil.rmtree(folders[2])
        assert missing_files(tmp_path) == [files[2].name]


def test_a_commit_that_an_error_interrupts_keeps_the_drafts_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    archive = Archive(str(tmp_path)).__enter__()
    file = draft(archive, 0, 9)
    with monkeypatch.context() as patch:
        patch.setattr(archive_log, "publish", refuse)
        with pytest.raises(OSError, match="No space") as caught:
            archive.commit({PLACE: 10}, [file])
    archive.__exit__(caught.type)
    with Archive(str(tmp_path)):
        assert visible(tmp_path) == [file.name]


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    with (
        Archive(str(tmp_path)),
        pytest.raises(ArchiveError, match="another run writes"),
        Archive(str(tmp_path)),
    ):
        pass


def test_a_commit_that_another_writer_made_is_not_overwritten(tmp_path: Path) -> None:
    with Archive(str(tmp_path)) as archive:
        (tmp_path / "_tidelog" / "commits" / f"{1:020}.json").write_text("{}")
        with pytest.raises(ArchiveError, match="made by another run"):
            archive.commit({PLACE: 10}, [draft(archive, 0, 9)])
        assert visible(tmp_path) == []


def test_old_commits_are_forgotten_but_not_what_they_say(tmp_path: Path) -> None:
    with Archive(str(tmp_path)) as archive:
        archive.commit({OTHER: 7}, [])
        for end in range(1, 30):
            archive.commit({PLACE: end}, [])
    assert len(list((tmp_path / "_tidelog" / "commits").iterdir())) == 16
    with Archive(str(tmp_path)) as archive:
        assert archive.ends == {PLACE: 29, OTHER: 7}


def test_files_without_a_log_are_not_written_to(tmp_path: Path) -> None:
    with Archive(str(tmp_path)) as archive:
        archive.commit({PLACE: 10}, [draft(archive, 0, 9)])
    (tmp_path / "_tidelog").rename(tmp_path / "elsewhere")
    with (
        pytest.raises(OptionError, match="but not the archive's log"),
        Archive(str(tmp_path)),
    ):
        pass


def test_records_of_another_cluster_or_of_a_topic_made_anew_are_not_mixed_in(tmp_path: Path) -> None:
    with Archive(str(tmp_path)) as archive:
        archive.belong_to("", {"t": ""})
        archive.belong_to("one", {"t": "a"})
        archive.belong_to("one", {"t": "a", "u": "b"})
        archive.belong_to("", {"u": ""})
    with Archive(str(tmp_path)) as archive:
        with pytest.raises(ArchiveError, match="holds records of cluster one, this one is two"):
            archive.belong_to("two", {"t": "a"})
        with pytest.raises(ArchiveError, match="topic 'u' was deleted and created again"):
            archive.belong_to("one", {"t": "a", "u": "c"})
