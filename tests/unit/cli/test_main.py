"""The way in: serve loads a broker and nothing else."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def test_serve_does_without_the_other_commands() -> None:
    script = (
        "import sys\n"
        "from tidelog.cli.main import main\n"
        "code = main(['serve', '--set', 'bogus=1'])\n"
        "print(code, sorted({'typer', 'rich', 'client'} & set(sys.modules)))\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "1 []"


@pytest.mark.parametrize(
    "arguments", [["--version"], ["serve", "--set", "bogus=1"], ["topic", "list", "--bogus"]]
)
def test_every_way_in_does_what_the_command_does(arguments: list[str]) -> None:
    def run(*command: str) -> tuple[int, str, str]:
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, re.sub(r'"timestamp": "[^"]*"', "", done.stderr)

    wanted = run(str(Path(sys.executable).with_name("tidelog")))
    assert "".join(wanted[1:])
    for module in ("tidelog", "tidelog.cli", "tidelog.cli.main"):
        assert run(sys.executable, "-m", module) == wanted


def test_process_1_of_a_container_obeys_sigterm_while_it_loads() -> None:
    script = (
        "import os, signal\n"
        "from importlib.abc import MetaPathFinder\n"
        "import sys\n"
        "class Stop(MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name.startswith('tidelog.broker'):\n"
        "            signal.raise_signal(signal.SIGTERM)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.getpid = lambda: 1\n"
        "sys.meta_path.insert(0, Stop())\n"
        "from tidelog.cli.main import main\n"
        "main(['serve', '--set', 'bogus=1'])\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 128 + signal.SIGTERM
