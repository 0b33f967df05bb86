"""Programs of frameworks, run as their users run them: their own Python environment, their own commands.

Owns the environment (made once from `requirements.lock`, below the virtual environment of the tests) and the
processes. What a process prints is in `Worker.output`.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from faults.process_tree import kill_tree
from tests.tidy.house import ROOT
from tests.waiting import DEADLINE_SECONDS

_HERE = Path(__file__).parent
_LOCK = _HERE / "requirements.lock"
PROGRAMS = ROOT / "examples"


def environment() -> Path:
    """The folder of the frameworks' commands, made anew whenever the lock file has changed."""
    folder = Path(sys.prefix) / "frameworks"
    installed, wanted = folder / "installed.lock", _LOCK.read_bytes()
    if not installed.exists() or installed.read_bytes() != wanted:
        uv = str(Path(sys.executable).parent / "uv")
        python = str(folder / "bin" / "python")
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=True)
        sync = [uv, "pip", "sync", "--quiet", "--python", python, "--require-hashes"]
        subprocess.run([*sync, _LOCK], check=True)
        installed.write_bytes(wanted)
    return folder / "bin"


class Worker:
    """One process of a framework, which works in `folder`."""

    def __init__(self, folder: Path, bootstrap_servers: str) -> None:
        self._folder = folder
        self._log = folder / "output"
        self._servers = bootstrap_servers
        self._process: asyncio.subprocess.Process | None = None

    @property
    def output(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    async def start(self, command: Sequence[str]) -> None:
        """Start a command of the environment, or of a path. $KAFKA in it is the broker's address."""
        commands = environment()
        self._folder.mkdir(parents=True)
        with self._log.open("wb") as output:
            self._process = await asyncio.create_subprocess_exec(
                commands / command[0],  # A path stays as it is.
                *(argument.replace("$KAFKA", self._servers) for argument in command[1:]),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                env={
                    **os.environ,
                    "KAFKA": self._servers,
                    "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
                    "PYTHONPATH": str(PROGRAMS),
                    "PYTHONUNBUFFERED": "1",
                },
            )

    async def write(self, line: str) -> None:
        """Give it a line of standard input."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()

    async def stop(self, exit_code: int) -> None:
        """SIGTERM, as a user or a container stops it. It must end with this exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(self._process.wait(), DEADLINE_SECONDS)
        assert code == exit_code, f"it ended with {code}:\n{self.output[-4000:]}"

    async def kill(self) -> None:
        """End it and all that it has started; nothing if it has ended."""
        if self._process is not None and self._process.returncode is None:
            kill_tree(self._process.pid)
            await self._process.wait()
