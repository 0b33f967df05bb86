"""What the documents tell people to type, works; what they point to, is there."""

import ast
import html
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from docs.tables import renewed
from tests.tidy.house import ROOT, modules, name, show, tree
from tidelog import client, serializers
from tidelog.broker.command import make_parser
from tidelog.broker.configuration.broker_config import BrokerConfig
from tidelog.broker.storage.log_config import LogConfig
from tidelog.cli.app import app
from tidelog.cli.main import main
from tidelog.client import ClusterConfig
from tidelog.client.consumer.config import ConsumerConfig
from tidelog.client.producer.config import ProducerConfig
from tidelog.client.share.config import ShareConsumerConfig
from tidelog.pipeline.jobs.settings import JOBS, CommonSettings, cluster_prefix, table_of
from tidelog.pipeline.options.tables import (
    FOREIGN_TO_SINK,
    FOREIGN_TO_SOURCE,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
)
from tidelog.protocol.settings import settings_of
from tidelog.version import VERSION

_DOCUMENTS = [each for folder in (".", "docs", ".github") for each in sorted((ROOT / folder).glob("*.md"))]
_WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
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


def test_every_make_target_that_is_named_exists() -> None:
    for document in _DOCUMENTS:
        assert set(_MAKE.findall(code_of(document))) <= make_targets(), document


def test_every_command_that_is_named_exists(capsys: pytest.CaptureFixture[str]) -> None:
    for command in sorted({command for each in _DOCUMENTS for command in _TIDELOG.findall(code_of(each))}):
        assert main([*command.split(), "--help"]) == 0, f"tidelog {command}"
    capsys.readouterr()


def test_every_link_leads_to_a_file() -> None:
    links = [(document, link) for document in _DOCUMENTS for link in _LINK.findall(document.read_text())]
    assert [(document, link) for document, link in links if not (document.parent / link).exists()] == []


def test_a_page_has_one_name_in_all_links_that_begin_with_a_capital_letter() -> None:
    titles = {
        page.name: re.findall(r"^# (.*)", page.read_text(), re.MULTILINE)[0]
        for page in _DOCUMENTS
        if page.parent.name == "docs" and page.name != "index.md"
    }
    named = re.compile(r"\[([A-Z][^\]]+)\]\((?:docs/)?([a-z-]+\.md)\)")
    links = [
        (document.name, *each) for document in _DOCUMENTS for each in named.findall(document.read_text())
    ]
    assert [link for link in links if link[1] != titles.get(link[2], link[1])] == []


def test_every_make_target_is_explained_or_a_part_of_one_that_is() -> None:
    makefile = (ROOT / "Makefile").read_text()
    explained = set(re.findall(r"^([a-z]+):.*##", makefile, re.MULTILINE))
    parts = set(re.findall(r"\S+", " ".join(re.findall(r"^[a-z]+:([^#\n]*)", makefile, re.MULTILINE))))
    assert make_targets() <= explained | parts


def test_the_ci_runs_what_people_run() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    called = "".join(path.read_text() for path in (*_WORKFLOWS, ROOT / ".pre-commit-config.yaml"))
    assert {"lint", "container", "release"} <= set(_MAKE.findall(called)) <= make_targets()


def test_the_ci_tests_every_declared_python_with_actions_that_nobody_can_replace() -> None:
    declared = re.findall(r'Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    [tested] = re.findall(r"python: \[(.+)\]", (ROOT / ".github" / "workflows" / "test.yml").read_text())
    assert set(declared) <= set(re.findall(r"[\d.]+", tested))
    actions = re.findall(r"uses: ([^.\s]\S+)", "".join(path.read_text() for path in _WORKFLOWS))
    assert [each for each in actions if not re.search(r"@[0-9a-f]{40}$", each)] == []


def test_the_change_log_begins_with_the_version_of_the_project() -> None:
    newest, *_ = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest == VERSION


def test_the_tables_of_the_documents_are_what_the_code_says_now() -> None:
    paths = sorted((ROOT / "docs").glob("*.md"))
    old = [path for path in paths if renewed(path.read_text()) != path.read_text()]
    assert not old, show([f"{name(path)} differs from the code: run `make docs`" for path in old])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site. The one fault that its build finds is in a page that was added: a broken link."""
    source, target = tmp_path_factory.mktemp("source") / "docs", tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", source)
    for shown in ("deploy", "examples"):
        (source.parent / shown).symlink_to(ROOT / shown)
    (source / "added.md").write_text("---\norphan: true\n---\n\n# A page\n\n[nothing](nowhere.md)\n")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", str(source), str(target)]
    built = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    (fault,) = built.stderr.strip().splitlines()
    assert built.returncode
    assert "added.md" in fault
    assert "nowhere.md" in fault
    return target


def shown_on(page: Path, tag: str) -> set[str]:
    """The texts of all elements of this kind."""
    found = re.findall(rf"<{tag}>(.*?)(?:<a class=\"headerlink|</{tag}>)", page.read_text(), re.DOTALL)
    return {html.unescape(re.sub("<[^>]*>", "", each)).strip() for each in found}


def test_the_site_has_every_setting(site: Path) -> None:
    shown = shown_on(site / "configuration.html", "td")
    declared = {each.name for table in (BrokerConfig, LogConfig) for each in settings_of(table)}
    tables = (ClusterConfig, ProducerConfig, ConsumerConfig, ShareConsumerConfig, CommonSettings)
    of_code = (
        each
        for table in (*tables, *map(table_of, JOBS))
        for each in settings_of(table)
        if cluster_prefix(each) is None
    )
    declared |= {each.attribute for each in of_code} | SOURCE_OPTIONS.keys() | SINK_OPTIONS.keys()
    for foreign in (FOREIGN_TO_SOURCE, FOREIGN_TO_SINK):
        declared |= foreign.ignored.keys() | foreign.refused.keys()
    assert sorted(declared - shown) == []


def commands_below(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "list_commands"):
        yield " ".join(path), command
        return
    context = command.context_class(command)
    for word in command.list_commands(context):
        yield from commands_below(command.get_command(context, word), (*path, word))


def test_the_site_has_every_public_name_of_the_client(site: Path) -> None:
    described = set(re.findall(r'<dt [^>]*id="tidelog\.([\w.]+)"', (site / "api.html").read_text()))
    assert described >= {*client.__all__, *(f"serializers.{each}" for each in serializers.__all__)}


def test_the_site_has_every_command_and_option(site: Path) -> None:
    page = site / "commands.html"
    headings = shown_on(page, "h2") | shown_on(page, "h3")
    options = {word for cell in shown_on(page, "td") for word in re.findall(r"(?<!\S)--?[\w-]+", cell)}
    found = dict(commands_below(get_command(app), ("tidelog",)))
    assert len(found) > 40
    assert sorted(found.keys() - headings) == []
    declared = {name for command in found.values() for each in command.params for name in each.opts}
    declared |= {name for each in make_parser("serve")._actions for name in each.option_strings}
    assert sorted({name for name in declared if name.startswith("-")} - options) == []


def texts_of_the_product() -> set[str]:
    """All texts in the code, with … for what is put into them."""
    found = set()
    for path in modules("tidelog"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
                found.add("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def test_each_symptom_of_the_page_on_troubleshooting_is_a_text_of_the_product() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    symptoms = re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)
    assert len(symptoms) > 30
    texts = texts_of_the_product()
    assert [each for each in symptoms if not any(each in text for text in texts)] == []


def test_the_readme_begins_with_a_broker_that_runs() -> None:
    _, first, second, demo, *_ = (ROOT / "README.md").read_text().split("```console\n")
    assert first.startswith("$ pip install .\n$ tidelog serve\n")
    assert "tidelog produce" in second
    assert "tidelog consume" in second
    assert demo.startswith("$ make demo\n")


def test_the_readme_fits_on_three_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 160
