"""The Chromium of this machine, and which tests are left out where there is none.

Invariant: nothing is downloaded. Debian has it as `chromium`; `.ci/run` installs that.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOLDER = Path(__file__).parent
DEADLINE_MS = DEADLINE_SECONDS * 1000
_COMMANDS = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--font-render-hinting=none")
"""Root has no sandbox; the browser sees the pages of the tests only."""


def command() -> str | None:
    """The path of the browser; None where there is none."""
    return next(filter(None, map(shutil.which, _COMMANDS)), None)


def left_out() -> str:
    """What to say about tests that need a browser; empty where there is one."""
    if command() is not None:
        return ""
    names = ", ".join(sorted(path.name for path in FOLDER.glob("test_*.py")))
    return f"left out: tests/console ({names}), because no Chromium was found; apt-get install chromium"


def wants_console(arguments: Sequence[str | Path]) -> bool:
    """Whether a run of pytest with these paths (and node ids) has tests of this folder."""
    paths = [Path(str(each).partition("::")[0]).resolve() for each in arguments]
    return any(FOLDER.is_relative_to(path) or path.is_relative_to(FOLDER) for path in paths)


@contextmanager
def opened() -> Iterator[Browser]:
    """A browser for as long as the block lasts. No test with a loop of its own can run within it."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=DEADLINE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=command(), args=_ARGUMENTS, timeout=DEADLINE_MS, handle_sigint=False
        )
        try:
            yield browser
        finally:
            browser.close()
