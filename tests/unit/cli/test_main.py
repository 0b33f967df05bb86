"""The way in: serve loads a broker and nothing else."""

import re
import signal
import subprocess
import sys
from pathlib import Path


def test_serve_does_without_the_other_commands() -> None:
    script = (
        "import sys\n"
        "from tidelog.cli.main import main\n"
        "code = main(['serve', '--set', 'bogus=1'])\n"
        "print(code, sorted({'typer', 'rich', 'client'} & set(sys.modules)))\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "1 []"


def test_every_way_in_does_what_the_command_does() -> None:
    def run(*command: str) -> tuple[int, str, str]:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, re.sub(r'"timestamp": "[^"]*"', "", done.stderr)

    tidelog = str(Path(sys.executable).with_name("tidelog"))
    ways = {
        "tidelog": ["--version"],
        "tidelog.cli": ["topic", "list", "--bogus"],
        "tidelog.cli.main": ["serve", "--set", "bogus=1"],
    }
    for module, arguments in ways.items():
        wanted = run(tidelog, *arguments)
        assert "".join(wanted[1:])
        assert run(sys.executable, "-m", module, *arguments) == wanted


def test_ctrl_c_while_modules_are_imported_ends_without_a_traceback() -> None:
    script = (
        "import os, signal, sys\n"
        "from tidelog.cli.main import main\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "sys.argv = ['tidelog', 'topic', 'list']\n"
        "main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_no_file_takes_the_number_of_a_standard_stream_that_is_closed() -> None:
    script = (
        "import os, sys\n"
        "from tidelog.cli.main import main\n"
        "sys.argv = ['tidelog', 'serve', '--nope']\n"
        "os._exit(main() != 2 or (os.open('/', os.O_RDONLY) <= 2))\n"
    )
    closed = 'exec "$0" -c "$1" <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", closed, sys.executable, script], check=False).returncode == 0


def test_a_full_disk_under_the_output_is_one_line() -> None:
    command = [sys.executable, "-m", "tidelog", "--version"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (
        1,
        "error: cannot write the output: No space left on device\n",
    )


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
