"""What the documents tell people to type, works; what they point to, is there."""

import re
from pathlib import Path

import pytest

from tests.tidy.house import ROOT
from tidelog.cli.main import main

_DOCUMENTS = sorted(ROOT.glob("*.md"))
_MAKE = re.compile(r"\bmake ([a-z][a-z-]*)\b")
_TIDELOG = re.compile(r"(?:^|[$`|] ?)tidelog ((?:topic|log|fault) [a-z]+|[a-z]+)", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def code_of(document: Path) -> str:
    """What stands in code blocks and between backticks."""
    text = document.read_text()
    blocks = re.findall(r"^```.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return "\n".join(blocks + inline)


@pytest.mark.parametrize("document", _DOCUMENTS, ids=lambda path: path.name)
def test_every_make_target_that_is_named_exists(document: Path) -> None:
    assert set(_MAKE.findall(code_of(document))) <= make_targets()


@pytest.mark.parametrize("document", _DOCUMENTS, ids=lambda path: path.name)
def test_every_command_that_is_named_exists(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in sorted(set(_TIDELOG.findall(code_of(document)))):
        assert main([*command.split(), "--help"]) == 0, f"tidelog {command}"
    capsys.readouterr()


@pytest.mark.parametrize("document", _DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_to_a_file(document: Path) -> None:
    missing = [link for link in _LINK.findall(document.read_text()) if not (ROOT / link).exists()]
    assert missing == []


def test_every_make_target_is_explained_or_a_part_of_one_that_is() -> None:
    makefile = (ROOT / "Makefile").read_text()
    explained = set(re.findall(r"^([a-z]+):.*##", makefile, re.MULTILINE))
    parts = set(re.findall(r"\S+", " ".join(re.findall(r"^[a-z]+:([^#\n]*)", makefile, re.MULTILINE))))
    assert make_targets() <= explained | parts


def test_the_ci_runs_what_people_run() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()
