"""Every console and Python block of the documents does what the document says."""

from pathlib import Path

import pytest

from tests.blocks import Reader, blocks
from tests.tidy.house import ROOT

_TESTED_ELSEWHERE = ("authentication.md", "recipes.md", "security.md")
"""`test_cli_users`, `recipes` and `test_security_page` follow these."""
_DOCUMENTS = [
    document
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if any(blocks(document)) and document.name not in _TESTED_ELSEWHERE
]


@pytest.mark.usefixtures("shared_spark")
@pytest.mark.parametrize("document", _DOCUMENTS, ids=lambda path: path.name)
def test_every_block_does_what_the_document_says(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reader = Reader(tmp_path)
    try:
        for block in blocks(document):
            reader.follow(block)
    finally:
        reader.close()
