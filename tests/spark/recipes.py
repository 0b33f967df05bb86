"""The recipes of docs/recipes.md do what they say, and store nothing twice when Spark repeats batches."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.blocks import Reader, blocks
from tests.tidy.house import ROOT


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.chdir(tmp_path)
    reader = Reader(tmp_path)
    yield reader
    reader.close()


@pytest.mark.usefixtures("spark")
def test_recipes_give_the_same_rows_when_their_batches_are_repeated(reader: Reader, tmp_path: Path) -> None:
    read = list(blocks(ROOT / "docs" / "recipes.md"))
    for block in read:
        reader.follow(block)
    # As if each driver had been killed between its last write and Spark's note of it.
    noted = [path for folder in tmp_path.glob("checkpoint-*") for path in (folder / "commits").glob("*0*")]
    assert len(noted) >= 3, noted
    for path in noted:
        path.unlink()
    program = next(block for block in read if block.language == "python")
    reader.follow(program)
