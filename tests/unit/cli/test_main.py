"""The way in: serve loads a broker and nothing else."""

import signal
import subprocess
import sys


def test_serve_does_without_the_other_commands() -> None:
    script = (
        "import sys\n"
        "from tidelog.cli.main import main\n"
        "code = main(['serve', '--set', 'bogus=1'])\n"
        "print(code, sorted({'typer', 'rich', 'client'} & set(sys.modules)))\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "1 []"


def test_python_m_cli_is_the_command() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "tidelog.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.startswith("tidelog ")


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
