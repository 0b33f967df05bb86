"""The Chromium of this machine. Without one its tests are left out (`tests.left_out`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.left_out import CHROMIUM
from tests.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DEADLINE_MS = DEADLINE_SECONDS * 1000
_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--font-render-hinting=none")
"""Root has no sandbox; the browser sees the pages of the tests only."""


@contextmanager
def opened() -> Iterator[Browser]:
    """A browser for as long as the block lasts. No test with a loop of its own can run within it."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=DEADLINE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM.command, args=_ARGUMENTS, timeout=DEADLINE_MS, handle_sigint=False
        )
        try:
            yield browser
        finally:
            browser.close()
