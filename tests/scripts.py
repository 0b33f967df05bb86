"""Interaction scripts: what a state machine is asked, and its whole answer below each line.

A script is a text file of cases. A case begins with `== ` and the rule that it holds. A line that is not
indented is a command: a method of the case's site, with words for it. The answer is indented below it. A line
that begins with `#` says why. `pytest --rewrite PATH` writes the answers anew; read the difference.
"""

from collections.abc import Callable, Iterator, Sequence
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

    def play(self, site: object, rewrite: bool, before: Callable[[], None] = lambda: None) -> None:
        """Compare each answer of `site`, or write it. `before` comes before each command."""
        played = [each.rstrip() for each in self._played(site, before)]
        if rewrite:
            ends = self.path.read_text().split(_TITLE)
            (at,) = (at for at, text in enumerate(ends) if text.split("\n", 1)[0] == self.title)
            ends[at] = "\n".join((self.title, *played)) + "\n"
            self.path.write_text(_TITLE.join(ends))
        else:
            assert "\n".join(played) == "\n".join(self.lines)

    def _played(self, site: object, before: Callable[[], None]) -> Iterator[str]:
        for line in self.lines:
            if line.startswith(_INDENT):
                continue
            yield line
            if line and not line.startswith("#"):
                before()
                yield from (f"{_INDENT}{each}" for each in _answer(site, line))


def _answer(site: object, line: str) -> Sequence[str]:
    name, *words = line.split()
    try:
        answer: Any = getattr(site, name.replace("-", "_"))(*words)
    except ApiError as error:
        return [error.code.name]
    return [] if answer is None else str(answer).splitlines()


def cases(path: Path) -> pytest.MarkDecorator:
    """A test for each case of a script; it has the argument `case`."""
    _, *texts = path.read_text().split(_TITLE)
    found = [
        Case(path, title, lines) for title, *lines in (text.removesuffix("\n").split("\n") for text in texts)
    ]
    return pytest.mark.parametrize("case", found, ids=[each.title for each in found])
