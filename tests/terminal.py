"""A person at a terminal: commands as they are typed, and below each all that is shown (tests/scripts.py).

Standard error is marked with `!`, an exit code that is not 0 is the last line. What differs from run to run
is shown as `<…>`; columns are two spaces apart.
"""

import asyncio
import io
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

_SAME = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<id>"),
    # An id in base64, of which librdkafka also writes `+` and `/`.
    (re.compile(r"(?<![\w+/-])(?=\S{,21}[A-Z])(?=\S{,21}[a-z])[\w+/-]{22}(?![\w+/-])"), "<id>"),
    (re.compile(r"20(2[4-9]|[3-9]\d)-\d\d-\d\dT[\d:.]+Z"), "<now>"),
    (re.compile(r"\b1(7[1-9]|[89]\d)\d{10}\b"), "<now>"),
    (re.compile(r"<now>\.\.<now>"), "<now>"),
    (re.compile(r"\(\d[^()]* (ms|s)\b[^()]*\)"), "(<duration>)"),
    (re.compile(" {2,}"), "  "),
    (re.compile(r"(Ongoing  \d+  \d+)  \d+"), r"\1  <duration>"),
    (re.compile(r"\d+ s ago"), "<duration> ago"),
    (re.compile(r"(time=<now>.*crc=)[0-9a-f]{8}"), r"\1<crc>"),
    (re.compile(r"(Empty|Complete(Abort|Commit)): it has"), "<ended>: it has"),
)
_LONGEST = 300
_USAGE = re.compile("Usage: |Try '|$")
"""What stands above each error of usage."""


class Terminal:
    """Its working folder is `folder`, in which scripts write files."""

    def __init__(
        self,
        type_command: Callable[..., tuple[int, str, str]],
        monkeypatch: pytest.MonkeyPatch,
        folder: Path,
        **names: str,
    ) -> None:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "160")
        self._type = type_command
        self._monkeypatch = monkeypatch
        self.names = {value: f"<{name}>" for name, value in names.items()}
        """Values that differ from run to run -> what scripts call them."""

    async def tidelog(self, *words: str) -> str:
        """The command in this process: in a thread, because it has a loop of its own."""
        code, shown, said = await self._run(words)
        lines = [*shown.splitlines(), *(f"! {line}" for line in said.splitlines() if not _USAGE.match(line))]
        return self.same("\n".join(line or "(empty line)" for line in lines) + f"\nexit {code}" * (code != 0))

    async def grep(self, *words: str) -> str:
        """`grep TEXT tidelog …`: the lines with this text."""
        text, _, *command = shlex.split(" ".join(words))
        return "\n".join(
            line for line in (await self.tidelog(shlex.join(command))).splitlines() if text in line
        )

    async def save(self, name: str, command: str, *words: str) -> None:
        """`save FILE tidelog …`: standard output goes to the file."""
        assert command == "tidelog"
        _, shown, said = await self._run(words)
        assert not said
        _write(name, shown)

    async def _run(self, words: tuple[str, ...]) -> tuple[int, str, str]:
        line = " ".join(words)
        for value, name in self.names.items():
            line = line.replace(name, value)
        return await asyncio.to_thread(self._type, *shlex.split(line))

    def same(self, text: str) -> str:
        for value, name in self.names.items():
            text = text.replace(value, name)
        for pattern, name in _SAME:
            text = pattern.sub(name, text)
        return "\n".join(line if len(line) < _LONGEST else f"{line[:_LONGEST]}…" for line in text.split("\n"))

    def write(self, name: str, *words: str) -> None:
        r"""A file with this text, in which `\n` is a line feed."""
        _write(name, _unescaped(words))

    def stdin(self, *words: str) -> None:
        """What the next command reads."""
        self._monkeypatch.setattr("sys.stdin", io.StringIO(_unescaped(words)))


def _write(name: str, text: str) -> None:
    Path(name).write_text(text)


def _unescaped(words: tuple[str, ...]) -> str:
    text = " ".join(words).replace('"', '\\"')
    return str(json.loads(f'"{text}"'))
