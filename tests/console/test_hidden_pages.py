"""A page that nobody sees asks the broker for nothing, and goes on once it is seen again."""

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.console.site import Console

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request

STREAM = "**/api/v1/events/overview"
_SEEN = """(isSeen) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => !isSeen });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
"""What Chromium does when its window is covered, which has none here."""
_TICKS = 12
"""More than the seconds between two refreshes of any part."""


def test_a_hidden_page_ends_its_stream_and_refreshes_nothing(console: Console, page: "Page") -> None:
    page.clock.install()
    with page.expect_request(STREAM):
        page.goto(console.url("/overview"))
    expect(page.locator("#state")).to_be_visible()
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/events/overview")):
        page.evaluate(_SEEN, False)
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request))
    page.clock.run_for(_TICKS * 1000)
    assert asked == []
    with page.expect_request(STREAM):
        page.evaluate(_SEEN, True)
    with page.expect_response(console.url("/overview")):
        page.clock.run_for(_TICKS * 1000)
