"""Interaction scripts: what a state machine is asked, and its whole answer below each line.

A script is a text file of cases. A case begins with `== ` and the rule that it holds. A line that is not
indented is a command: a method of the case's site, with words for it, which may be awaited. The answer is
indented below it. A line that begins with `#` says why. `pytest --rewrite PATH` writes the answers anew; read
the difference.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tidelog.protocol.errors import ApiError

_TITLE = "== "
_INDENT = "    "


class Case(NamedTuple):
    path: Path
    title: str
    lines: Sequence[str]

    async def play(self, site: object, rewrite: bool, before: Callable[[], None] = lambda: None) -> None:
        """Compare each answer of `site`, or write it. `before` comes before each command."""
        played = [each.rstrip() async for each in self._played(site, before)]
        if rewrite:
            ends = self.path.read_text().split(_TITLE)
            (at,) = (at for at, text in enumerate(ends) if text.split("\n", 1)[0] == self.title)
            ends[at] = "\n".join((self.title, *played)) + "\n"
            self.path.write_text(_TITLE.join(ends))
        else:
            assert "\n".join(played) == "\n".join(self.lines)

    async def _played(self, site: object, before: Callable[[], None]) -> AsyncIterator[str]:
        for line in self.lines:
            if line.startswith(_INDENT):
                continue
            yield line
            if line and not line.startswith("#"):
                before()
                for each in await _answer(site, line):
                    yield f"{_INDENT}{each}"


async def _answer(site: object, line: str) -> Sequence[str]:
    name, *words = line.split()
    try:
        answer: Any = getattr(site, name.replace("-", "_"))(*words)
        if inspect.isawaitable(answer):
            answer = await answer
    except ApiError as error:
        return [error.code.name]
    return [] if answer is None else str(answer).splitlines()


def cases(*paths: Path) -> pytest.MarkDecorator:
    """A test for each case of the scripts; it has the argument `case`."""
    texts = ((path, text.removesuffix("\n")) for path in paths for text in path.read_text().split(_TITLE)[1:])
    found = [Case(path, title, lines) for path, text in texts for title, *lines in [text.split("\n")]]
    return pytest.mark.parametrize("case", found, ids=[each.title for each in found])
