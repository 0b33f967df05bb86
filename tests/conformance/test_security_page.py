"""The page on a secure broker does what it says, from nothing to a record that a user wrote."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.blocks import commands, fits
from tests.conformance.commands import typist
from tests.frameworks.secure_broker import BLOCKS
from tests.ports import free_port
from tests.tidy.house import ROOT
from tests.waiting import DEADLINE_SECONDS, wait_for
from tidelog.cli.command_config import read_command_config
from tidelog.client import ClusterConfig

PAGE = ROOT / "docs" / "security.md"
_PORT = "9093"
_BLOCK = re.compile(r"^```(console|toml|properties|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_steps_of_the_page_lead_to_a_secure_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDELOG_HTTP_PORT", "-1")
    tidelog = typist(capfd)
    steps, _, _ = PAGE.read_text().partition("## Signed tokens")
    steps = steps.replace(_PORT, str(free_port()))
    log = tmp_path / "broker.log"
    serving = None
    try:
        for language, text in _BLOCK.findall(steps):
            if language in ("toml", "properties"):
                name = text.partition("\n")[0].removeprefix("# ")
                (tmp_path / name).write_text(text)
                continue
            if language == "python":
                exec(compile(text, "block", "exec"), {"__name__": "block"})
                # A client that no program configured logs to standard output.
                assert capfd.readouterr().out.endswith("b'the first'\n")
                continue
            for command, expected in commands(text):
                if command.startswith("tidelog serve"):
                    with log.open("wb") as output:
                        serving = subprocess.Popen(
                            [sys.executable, "-m", "tidelog", *shlex.split(command)[1:]], stdout=output
                        )
                    wait_for(lambda: b"broker_started" in log.read_bytes(), "the broker", DEADLINE_SECONDS)
                elif command.startswith("tidelog "):
                    code, shown, problem = tidelog(*shlex.split(command)[1:])
                    assert (code, problem) == (0, ""), command
                    assert fits(shown, expected), (command, shown)
                else:
                    subprocess.run(["bash", "-c", command], check=True)
        code, _, problem = tidelog(
            "topic",
            "list",
            "-b",
            re.search(r"localhost:\d+", steps)[0],  # type: ignore[index]
        )
        assert code != 0, "a client without a password gets in"
    finally:
        if serving is not None:
            serving.terminate()
            serving.wait(DEADLINE_SECONDS)
    assert "secret" not in log.read_text()


@pytest.mark.parametrize("kind", ["certificate", "password", "token"])
def test_our_commands_take_the_properties_that_the_page_gives_to_clients_in_java(
    kind: str, tmp_path: Path
) -> None:
    file = tmp_path / "java.properties"
    protocol = "" if kind == "certificate" else "security.protocol=SASL_SSL\n"
    file.write_text(f"{BLOCKS['TLS']}{BLOCKS[kind]}{protocol}")
    assert ClusterConfig(**read_command_config(file)).ssl_cafile == "authority.pem"
