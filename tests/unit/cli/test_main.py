"""The way in: serve loads a broker and nothing else."""

import subprocess
import sys


def test_serve_does_without_the_other_commands() -> None:
    script = (
        "import sys\n"
        "from cli.main import main\n"
        "code = main(['serve', '--set', 'bogus=1'])\n"
        "print(code, sorted({'typer', 'rich', 'client'} & set(sys.modules)))\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "1 []"


def test_python_m_cli_is_the_command() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "cli", "--version"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.startswith("tidelog ")
