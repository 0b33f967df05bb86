"""The type checker refuses an answer that waits for nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
_SNIPPET = """\
from tidelog.broker.replicas.partitions import Partitions
from tidelog.broker.replicas.progress import CommitWaiter, Mark
from tidelog.broker.replicas.replica import Replica


async def answer(replica: Replica, partitions: Partitions, mark: Mark, waiter: CommitWaiter) -> int:
    {line}
"""
_REFUSED = {
    "an-append": ("return replica.append_as_leader(b'', 0).base_offset", "attr-defined"),
    "a-coordinator": ("return replica.append_as_coordinator(b'', 0).base_offset", "attr-defined"),
    "a-dropped-future": ("replica.append_as_coordinator(b'', 0); return 0", "unused-awaitable"),
    "a-deletion": ("return replica.delete_records_before(0)", "return-value"),
}
_ACCEPTED = {
    "a-waiter": "return replica.when(mark, replica.append_as_leader(b'', 0), waiter, 0).base_offset",
    "no-promise": "return replica.soon_durable(replica.append_as_leader(b'', 0)).base_offset",
    "a-coordinator-waits": "return (await replica.append_as_coordinator(b'', 0)).base_offset",
    "a-deletion-saved": "return (await partitions.save_start_offsets([replica.delete_records_before(0)]))[0]",
}


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the checker says of all snippets, each in a file of its own."""
    folder = tmp_path_factory.mktemp("snippets")
    lines = {name: line for name, (line, _) in _REFUSED.items()} | _ACCEPTED
    for name, line in lines.items():
        (folder / f"{name.replace('-', '_')}.py").write_text(_SNIPPET.format(line=line))
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), *folder.iterdir()]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("name", _REFUSED)
def test_an_answer_that_waits_for_nothing_is_refused(errors: str, name: str) -> None:
    code = _REFUSED[name][1]
    file = f"{name.replace('-', '_')}.py"
    assert [line for line in errors.splitlines() if f"{file}:" in line and f"[{code}]" in line], errors


@pytest.mark.parametrize("name", _ACCEPTED)
def test_an_answer_that_says_what_it_waits_for_is_accepted(errors: str, name: str) -> None:
    assert f"{name.replace('-', '_')}.py" not in errors, errors
