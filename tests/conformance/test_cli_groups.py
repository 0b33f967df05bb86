"""`tidelog group lag --watch`, and what a shell completes; `scripts/groups.txt` has the other commands."""

import signal
import subprocess
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from tests.conformance.commands import PATIENCE_S, Type, next_line, typed
from tests.conformance.conftest import RunningBroker
from tests.ports import free_address
from tests.waiting import DEADLINE_SECONDS
from tidelog.cli import completion
from tidelog.cli.app import app
from tidelog.client import ClusterConfig


@pytest.fixture
def group(tidelog: Type, tmp_path: Path) -> str:
    """A group that committed 4 of ten records."""
    (tmp_path / "lines").write_text("x\n" * 10)
    assert tidelog("produce", "t", "--create-topic", "-f", str(tmp_path / "lines"))[0] == 0
    assert tidelog("group", "reset-offsets", "behind", "--to-offset", "4", "--topic", "t")[0] == 0
    return "behind"


def test_the_lag_of_a_group_is_shown_again_and_again(broker: RunningBroker, group: str) -> None:
    again = ("group", "lag", group, "--watch", "0.1", "--json", "-b", broker.address)
    with typed(*again, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watching:
        assert len({next_line(watching) for _ in range(3)}) == 1
        watching.send_signal(signal.SIGINT)
        assert watching.communicate(timeout=PATIENCE_S)[1] == ""
        assert watching.returncode == 0


def test_a_shell_completes_the_names_of_topics_and_groups(
    broker: RunningBroker, group: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(completion, "_TIMEOUT_MS", DEADLINE_SECONDS * 1000)
    context = typer.Context(get_command(app).commands["group"])
    context.params["cluster"] = ClusterConfig(broker.address)
    capfd.readouterr()
    assert completion.topic_names(context, "t") == ["t"]
    assert completion.topic_names(context, "x") == []
    assert group in completion.group_names(context, "be")
    context.params["cluster"] = ClusterConfig(free_address(), request_timeout_ms=100)
    assert completion.topic_names(context, "") == []
    assert capfd.readouterr() == ("", "")
