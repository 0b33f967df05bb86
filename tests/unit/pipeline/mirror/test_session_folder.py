"""A mirror's session says the same to every task, attempt and run, and refuses what would break it."""

import shutil
import uuid
from pathlib import Path
from uuid import UUID

import pytest

from tidelog.client import TopicPartition
from tidelog.pipeline.mirror.session_folder import (
    MAX_EPOCH,
    BatchFacts,
    MirrorCounts,
    MirrorError,
    MirrorSession,
    SourceFacts,
    StoredPlace,
    next_facts,
)
from tidelog.pipeline.offsets import OptionError, Place

SOURCE, OTHER = Place("orders", 0), Place("orders", 1)
LONGEST = Place("t" * 249, 12)
KEY = TopicPartition("copy", 0)
STORED = SourceFacts(7, 0, 99, {KEY: StoredPlace(0, 100, 100, 99)})


@pytest.fixture
def session(tmp_path: Path) -> MirrorSession:
    return MirrorSession.open(str(tmp_path / "session"), "plan")


def test_a_session_is_found_again_and_keeps_its_plan(session: MirrorSession) -> None:
    assert MirrorSession.open(session.path, "plan") == session
    with pytest.raises(OptionError, match="begun with another plan"):
        MirrorSession.open(session.path, "another")


def test_a_copied_session_is_refused_until_its_user_says_that_the_other_is_gone(
    session: MirrorSession, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(session.path, copy)
    with pytest.raises(OptionError, match=f"is a copy: it was begun in {session.path}"):
        MirrorSession.open(str(copy), "plan")
    assert MirrorSession.open(session.path, "plan") == session
    (copy / "place.json").unlink()
    for _ in range(2):
        assert MirrorSession.open(str(copy), "plan").session_id == session.session_id


def test_a_session_may_be_renamed_and_restored(session: MirrorSession, tmp_path: Path) -> None:
    renamed = Path(session.path).rename(tmp_path / "renamed")
    assert MirrorSession.open(str(renamed), "plan").session_id == session.session_id
    with pytest.raises(OptionError, match=f"is a copy: it was begun in {renamed}"):
        MirrorSession.open(str(shutil.copytree(renamed, session.path)), "plan")
    backup = shutil.copytree(renamed, tmp_path / "backup")
    renamed.rename(tmp_path / "gone")
    restored = shutil.copytree(backup, renamed)
    assert MirrorSession.open(str(restored), "plan").session_id == session.session_id


def test_a_session_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="cannot be saved in"):
        MirrorSession.open(str(tmp_path / "file" / "session"), "plan")
    with pytest.raises(OptionError, match="cannot be saved in"):
        MirrorSession(str(tmp_path / "file" / "session"), "").keep_topic("from", "t", uuid.uuid4())


def test_a_session_belongs_to_one_query_and_one_cluster(session: MirrorSession) -> None:
    session.check("query", "cluster")
    session.check("query", "cluster")
    with pytest.raises(MirrorError, match="belongs to query query, this one is other"):
        session.check("other", "cluster")
    with pytest.raises(MirrorError, match="writes to cluster cluster"):
        session.check("query", "other")


def test_a_topic_made_anew_is_not_the_one_that_the_session_knows(session: MirrorSession) -> None:
    one, another, longest = uuid.uuid4(), uuid.uuid4(), "t" * 249
    for topic_id in (UUID(int=0), one, UUID(int=0), one):
        session.keep_topic("to", longest, topic_id)
    session.keep_topic("from", longest, another)
    assert (session.topic_id("to", longest), session.topic_id("to", "t")) == (str(one), None)
    with pytest.raises(MirrorError, match="created again since this session wrote to it"):
        session.keep_topic("to", longest, another)
    with pytest.raises(MirrorError, match="created again since this session began to read it"):
        session.keep_topic("from", longest, one)


def test_a_task_that_does_not_see_the_drivers_folder_refuses(session: MirrorSession, tmp_path: Path) -> None:
    with pytest.raises(MirrorError, match="does not see the mirror's session"):
        MirrorSession(str(tmp_path / "elsewhere"), session.session_id).check("query", "cluster")
    MirrorSession.open(str(tmp_path / "elsewhere"), "plan")
    with pytest.raises(MirrorError, match="does not see the mirror's session"):
        MirrorSession(str(tmp_path / "elsewhere"), session.session_id).check("query", "cluster")


def test_the_first_producer_that_is_offered_stays(session: MirrorSession) -> None:
    for source in (SOURCE, LONGEST):
        assert session.producer(source) is None
        assert session.keep_producer(source, 7) == 7
        assert session.keep_producer(source, 8) == 7
        assert session.producer(source) == 7
    assert session.producer(OTHER) is None


def test_the_facts_of_a_batch_are_those_of_the_commit_before_it_and_never_change(
    session: MirrorSession,
) -> None:
    assert session.facts(0) == BatchFacts()
    first = BatchFacts("run", {SOURCE: STORED})
    session.close_batch(0, first)
    session.close_batch(0, BatchFacts("other run"))
    assert session.facts(0) == BatchFacts()
    assert session.facts(1) == session.facts(5) == first
    session.close_batch(1, BatchFacts("run"))
    assert session.facts(1) == first
    assert session.facts(2) == session.facts(None) == BatchFacts("run")


def test_facts_of_old_batches_go(session: MirrorSession) -> None:
    for number in range(20):
        session.close_batch(number, BatchFacts(f"run {number}"))
    assert len(list((session.folder / "batches").iterdir())) == 8
    assert session.facts(20) == BatchFacts("run 19")


def test_another_run_gets_epochs_of_its_own_and_the_same_run_keeps_them() -> None:
    first = next_facts(BatchFacts(), "a", {SOURCE: STORED})
    assert first.sources[SOURCE] == STORED
    assert next_facts(first, "a", {}).sources[SOURCE] == STORED
    second = next_facts(first, "b", {OTHER: SourceFacts(8, 3, 5)})
    assert second.run == "b"
    assert {source: each.producer_epoch for source, each in second.sources.items()} == {SOURCE: 1, OTHER: 4}
    assert second.sources[SOURCE].places == STORED.places
    last = next_facts(BatchFacts("a", {SOURCE: SourceFacts(7, MAX_EPOCH - 1)}), "b", {})
    assert last.sources[SOURCE].producer_epoch == MAX_EPOCH - 1


def test_what_a_run_did_adds_up(session: MirrorSession) -> None:
    assert session.counts("run") == MirrorCounts()
    session.count("run", MirrorCounts(10, 6, 4, 1))
    session.count("run", MirrorCounts(5, 5, 0, 1))
    assert session.counts("run") == MirrorCounts(15, 11, 4, 2)
    assert session.counts("other") == MirrorCounts()


@pytest.mark.parametrize("source", [SOURCE, LONGEST], ids=("short", "longest"))
def test_a_source_partition_belongs_to_one_task_of_a_write(session: MirrorSession, source: Place) -> None:
    session.claim("write", source, 0, 10)
    session.claim("write", source, 0, 10)
    session.claim("write", OTHER, 1, 10)
    session.claim("next write", source, 1, 10)
    with pytest.raises(MirrorError, match=f"two tasks have rows of {source}"):
        session.claim("write", source, 1, 60)
    with pytest.raises(MirrorError, match=f"two tasks have rows of {source}"):
        session.claim("write", source, 0, 10)


@pytest.mark.parametrize("source", [SOURCE, LONGEST], ids=("short", "longest"))
def test_a_refused_task_spoils_the_session_only_if_rows_behind_its_own_are_stored(
    session: MirrorSession, source: Place
) -> None:
    session.claim("write", source, 1, 60)
    with pytest.raises(MirrorError):
        session.claim("write", source, 0, 10)
    session.check_refused(source, 59)
    session.check_refused(OTHER, 1000)
    with pytest.raises(MirrorError, match=f"rows of {source} before offset 80 may be missing"):
        session.check_refused(source, 80)
    session.end_write("write", [source])
    session.check_refused(source, 80)
    session.claim("write", source, 0, 10)


def test_a_task_waits_for_the_one_before_it(session: MirrorSession) -> None:
    session.announce("write", 3)
    session.await_task("write", 3)
