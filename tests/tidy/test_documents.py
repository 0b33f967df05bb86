"""What the documents tell people to type, works; what they point to, is there."""

import html
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.house import ROOT
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.storage.log_config import LogConfig
from tidelog.cli.main import main
from tidelog.client.cluster_config import ClusterConfig
from tidelog.client.consumer_config import ConsumerConfig
from tidelog.client.producer_config import ProducerConfig
from tidelog.pipeline.jobs.settings import JOBS, CommonSettings, cluster_prefix, table_of
from tidelog.pipeline.sink.options import FOREIGN as FOREIGN_TO_SINK
from tidelog.pipeline.sink.options import OPTIONS as SINK_OPTIONS
from tidelog.pipeline.source.options import FOREIGN as FOREIGN_TO_SOURCE
from tidelog.pipeline.source.options import OPTIONS as SOURCE_OPTIONS
from tidelog.protocol.settings import settings_of

_DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
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
    missing = [link for link in _LINK.findall(document.read_text()) if not (document.parent / link).exists()]
    assert missing == []


def test_every_make_target_is_explained_or_a_part_of_one_that_is() -> None:
    makefile = (ROOT / "Makefile").read_text()
    explained = set(re.findall(r"^([a-z]+):.*##", makefile, re.MULTILINE))
    parts = set(re.findall(r"\S+", " ".join(re.findall(r"^[a-z]+:([^#\n]*)", makefile, re.MULTILINE))))
    assert make_targets() <= explained | parts


def test_the_ci_runs_what_people_run() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def faults_of_site(source: Path, target: Path) -> str:
    """What the build of the site says when it fails, or nothing."""
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", str(source), str(target)]
    built = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    return built.stderr if built.returncode else ""


def test_the_site_is_built_and_has_every_setting(tmp_path: Path) -> None:
    assert not faults_of_site(ROOT / "docs", tmp_path)
    page = (tmp_path / "configuration.html").read_text()
    shown = {
        html.unescape(re.sub("<[^>]*>", "", cell)) for cell in re.findall(r"<td>(.*?)</td>", page, re.DOTALL)
    }
    shown = {cell.strip() for cell in shown}
    declared = {each.name for table in (BrokerConfig, LogConfig) for each in settings_of(table)}
    tables = (ClusterConfig, ProducerConfig, ConsumerConfig, CommonSettings, *map(table_of, JOBS))
    of_code = (each for table in tables for each in settings_of(table) if cluster_prefix(each) is None)
    declared |= {each.attribute for each in of_code} | SOURCE_OPTIONS.keys() | SINK_OPTIONS.keys()
    for foreign in (FOREIGN_TO_SOURCE, FOREIGN_TO_SINK):
        declared |= foreign.without_effect | foreign.refused.keys()
    assert sorted(declared - shown) == []


def test_a_broken_link_fails_the_site(tmp_path: Path) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    shutil.copy(ROOT / "docs" / "conf.py", source)
    (source / "index.md").write_text("# A site\n\n[nothing](nowhere.md)\n")
    assert "nowhere.md" in faults_of_site(source, tmp_path / "site")


def test_the_readme_fits_on_three_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
