"""The browser, one for the folder, and a page of it for each test."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.console import browser as browsers
from tests.console.site import Complaints, Console, console_with, new_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

console = console_with()


@pytest.fixture(scope="package")
def browser() -> "Iterator[Browser]":
    with browsers.opened() as opened:
        yield opened


@pytest.fixture
def page(browser: "Browser", console: Console) -> "Iterator[Page]":
    """Fails the test if the page complained."""
    page = new_page(browser)
    complaints = Complaints(page, console)
    yield page
    page.context.close()
    assert complaints.found == []
