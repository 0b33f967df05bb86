"""Seeds go on where the last run on the same commit ended, and each commit has its own."""

from pathlib import Path

from tests.simulation.seeds import Memory, first_of

COMMIT, OTHER = "0" * 39 + "1", "abcdef" + "0" * 34


def test_a_commit_goes_on_where_its_last_run_ended(tmp_path: Path) -> None:
    path = tmp_path / "state" / "seeds.json"
    assert Memory(path).next_seed(COMMIT, "alone") == first_of(COMMIT)
    Memory(path).played(COMMIT, "alone", 700)
    assert Memory(path).next_seed(COMMIT, "alone") == 700
    assert Memory(path).next_seed(COMMIT, "three") == first_of(COMMIT)
    assert Memory(path).next_seed(OTHER, "alone") == first_of(OTHER) != first_of(COMMIT)


def test_a_changed_tree_and_a_damaged_file_are_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "seeds.json"
    Memory(path).played(f"{COMMIT}-dirty", "alone", 700)
    Memory(path).played("", "alone", 700)
    assert not path.exists()
    path.write_text("{")
    assert Memory(path).next_seed(COMMIT, "alone") == first_of(COMMIT)
