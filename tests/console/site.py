"""A broker with its console, a page in the browser, and what every page must satisfy.

Invariant: a test fails if its page logged an error, broke the Content-Security-Policy, or asked another
server for something.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from tests.conformance.conftest import RunningBroker
from tests.console.browser import DEADLINE_MS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

PHONE = {"width": 360, "height": 740}
DESKTOP = {"width": 1280, "height": 800}
_COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
"""All else is the same in light and dark."""
_ANSWERED_WITH_AN_ERROR = "Failed to load resource"
"""What Chromium logs for each answer of 400 or more. Refusals are answers too."""


class Console(RunningBroker):
    """A broker that serves in a thread. `run` awaits a coroutine there: the browser holds the test's own."""

    def url(self, path: str = "") -> str:
        """The address of a page: `url("/topics")`."""
        return f"http://127.0.0.1:{self.http_port}/console{path}"


def console_with(**settings: object) -> Callable[..., Iterator[Console]]:
    """A fixture: one broker for all tests of a module. Names of settings have `_` for each dot."""

    @pytest.fixture(scope="module")
    def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        running = Console(tmp_path_factory.mktemp("broker"), **settings)
        yield running
        running.stop()
        structlog.reset_defaults()

    return console


class Complaints:
    """What went wrong in a page: errors of scripts and of the policy, and requests to other servers."""

    def __init__(self, page: Page, console: Console) -> None:
        self.found: list[str] = []
        self._own = f"http://127.0.0.1:{console.http_port}/"
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self.found.append(str(error)))
        page.on("request", self._requested)

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(_ANSWERED_WITH_AN_ERROR):
            self.found.append(message.text)

    def _requested(self, request: Request) -> None:
        if not request.url.startswith((self._own, "data:", "blob:")):
            self.found.append(f"asked {request.url}")


def new_page(browser: Browser, **options: Any) -> Page:
    """A page of a visitor who has not been here before."""
    page = browser.new_context(**{"viewport": DESKTOP, "reduced_motion": "reduce", **options}).new_page()
    page.set_default_timeout(DEADLINE_MS)
    page.set_default_navigation_timeout(DEADLINE_MS)
    return page


def sign_in(page: Page, console: Console, user: str, password: str) -> None:
    """As a visitor whom the console asks."""
    page.goto(console.url("/sign-in"))
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Sign out").wait_for()


def assert_accessible(page: Page) -> None:
    """axe finds nothing in light and in dark, and on a phone nothing is wider than the screen."""
    for scheme, options in (("light", {}), ("dark", _COLOURS)):
        page.emulate_media(color_scheme=scheme)
        found = _violations(page, options)
        assert not found, "\n".join([f"with {scheme} colours:", *found])
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(PHONE)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["width"], f"on a phone the page is {width} pixels wide"
    page.set_viewport_size(DESKTOP)


def _violations(page: Page, options: dict[str, Any]) -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    return [
        f"{each['id']}: {each['help']}: {node['html']}"
        for each in Axe().run(page, options=options).response["violations"]
        for node in each["nodes"]
    ]
