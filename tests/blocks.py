"""Runs the console and Python blocks of a document, in order, as a reader would type them, and those of
`examples/` in it that need nothing but Tidelog.

A console line that begins with `$ ` is a command; the lines below it are what it prints, where `…` stands for
anything. `tidelog serve` starts a real broker on a free port, and later commands reach it at that port.
Python blocks that follow each other are one program; a block with a test function is a test file.
"""

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from tests.tidy.house import ROOT
from tests.waiting import wait_for
from tidelog.cli.main import main

_BLOCK = re.compile(
    r"^```(console|python|\{literalinclude\} \.\./examples/\S+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL
)
_IMPORTED = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)
# What a test cannot do: install into an environment of its own, run containers or Kafka's tools.
_ELSEWHERE = ("docker", "helm", "kafka-", "pip")
_OF_A_SHELL = frozenset("|&;<>$")
_SECONDS = 240


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str


def blocks(document: Path) -> Iterator[Block]:
    """Console blocks one by one, Python programs joined. Empty for a document without any."""
    program = ""
    for language, text in _BLOCK.findall(document.read_text()):
        if language not in ("console", "python"):
            language, text = "python", (document.parent / language.split()[-1]).read_text()
            if not sys.stdlib_module_names.union(("tidelog",)).issuperset(_IMPORTED.findall(text)):
                continue  # `tests/frameworks` and `tests/container` run those that need other packages.
        if language == "python" and "def test_" not in text:
            program += text + "\n"
            continue
        if program:
            yield Block("python", program)
            program = ""
        yield Block(language, text)
    if program:
        yield Block("python", program)


def commands(console: str) -> Iterator[tuple[str, list[str]]]:
    """Each command with the lines that it should print."""
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        command, *lines = part.strip("\n").split("\n")
        yield command, lines


def fits(shown: str, expected: list[str]) -> bool:
    """Whether output is what a document shows; a document that shows nothing says nothing. `…` at the very
    beginning stands for whole lines too."""
    if not expected:
        return True
    pattern = "\n".join(re.escape(line).replace("…", ".*") for line in expected)
    if expected[0].startswith("…"):
        pattern = f"(?s:.*){pattern}"
    return re.fullmatch(pattern, "\n".join(line.rstrip() for line in shown.strip().splitlines())) is not None


def _check(command: str, code: int, shown: str, expected: list[str]) -> None:
    assert code == 0, f"{command}\n{shown}"
    wanted = "\n".join(expected)
    assert fits(shown, expected), f"{command}\nprinted:\n{shown}\nexpected:\n{wanted}"


class Reader:
    """Somebody who types the blocks of a document into a terminal in `folder`. Leave it by `close`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._broker: subprocess.Popen[bytes] | None = None
        self._started: dict[str, Any] = {}

    def close(self) -> None:
        if self._broker is not None:
            self._broker.terminate()
            self._broker.wait()

    def follow(self, block: Block) -> None:
        """Raises AssertionError where a block does not do what the document says."""
        if block.language == "python":
            self._run_python(block.text)
            return
        for command, expected in commands(block.text):
            if command.startswith("tidelog serve"):
                self._serve(command.split()[2:])
            elif command.startswith("make "):
                self._run(f"make --dry-run -C {ROOT} {command.removeprefix('make ')}", [])
            elif command.startswith("tidelog pipeline "):
                self._run_job(shlex.split(self._with_addresses(command))[1:])
            elif command.startswith("tidelog ") and not _OF_A_SHELL.intersection(command):
                self._run_here(command, expected)
            elif not command.startswith(_ELSEWHERE):
                self._run(command, expected)

    def _serve(self, flags: list[str]) -> None:
        self.close()
        log = self._folder / "broker.log"
        command = [sys.executable, "-m", "tidelog", "serve", *flags, "--port", "0", "--http-port", "0"]
        with log.open("wb") as output:
            self._broker = subprocess.Popen(command, cwd=self._folder, stdout=output, env=self._environment())
        wait_for(lambda: b"broker_started" in log.read_bytes(), "the broker's first event", _SECONDS)
        events = (json.loads(line) for line in log.read_text().splitlines())
        self._started = next(event for event in events if event["event"] == "broker_started")

    def _run_python(self, text: str) -> None:
        text = self._with_addresses(text)
        if "start_session(" in text:
            # In this process, which has a Spark session: a new one takes ten seconds.
            exec(compile(text, "block", "exec"), {"__name__": "block"})
            return
        is_test = "def test_" in text
        program = self._folder / ("test_block.py" if is_test else "block.py")
        program.write_text(text)
        auto = "-m pytest -q -p no:cacheprovider -o asyncio_mode=auto" if is_test else ""
        self._run(f"python {auto} {program}", [])

    def _run_job(self, arguments: list[str]) -> None:
        # The JVM of the tests' Spark keeps the working folder in which it was started.
        folders = {at + 1 for at, each in enumerate(arguments) if each in ("--checkpoint", "--path")}
        here = [str(self._folder / each) if at in folders else each for at, each in enumerate(arguments)]
        assert main(here) == 0, here

    def _run_here(self, command: str, expected: list[str]) -> None:
        """In this process: a new one imports for half a second."""
        with (
            io.TextIOWrapper(io.BytesIO(), write_through=True) as output,
            redirect_stdout(output),
            redirect_stderr(output),
            mock.patch.dict(os.environ, self._environment()),
        ):
            code = main(shlex.split(self._with_addresses(command))[1:])
            output.seek(0)
            _check(command, code, output.read(), expected)

    def _run(self, command: str, expected: list[str]) -> None:
        done = subprocess.run(
            ["bash", "-c", self._with_addresses(command)],
            cwd=self._folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
        _check(command, done.returncode, done.stdout, expected)

    def _with_addresses(self, text: str) -> str:
        """The document's ports are a broker's defaults; this one has others."""
        if self._broker is None:
            return text
        return re.sub(r"(127\.0\.0\.1|localhost):9092", self._address(), text)

    def _address(self) -> str:
        return f"127.0.0.1:{self._started['port']}"

    def _environment(self) -> Mapping[str, str]:
        environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        if self._started:
            environment["TIDELOG_BOOTSTRAP_SERVERS"] = self._address()
        return environment
