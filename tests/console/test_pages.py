"""What holds for every page, and that the tests notice when it does not."""

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.console.site import Complaints, Console, assert_accessible, new_page
from tidelog.broker.console.routes import PAGES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MOST_BYTES = 150_000
BROKEN_PAGE = """<!doctype html><html lang="en"><title>Broken</title>
<meta http-equiv="Content-Security-Policy" content="script-src 'self'">
<main><h1>Broken</h1><input><div style="width: 900px">wide</div>
<script>inline()</script><script src="http://127.0.0.2/elsewhere.js"></script></main>"""


def test_a_broken_page_is_noticed(browser: "Browser", console: Console) -> None:
    page: Page = new_page(browser)
    complaints = Complaints(page, console)
    page.route("**/broken", lambda route: route.fulfill(body=BROKEN_PAGE, content_type="text/html"))
    page.route("**/elsewhere.js", lambda route: route.abort())
    with page.expect_event("console"), page.expect_request("**/elsewhere.js"):
        page.goto(console.url("/broken"))
    assert any(each.startswith("Executing inline script") for each in complaints.found)
    assert "asked http://127.0.0.2/elsewhere.js" in complaints.found
    with pytest.raises(AssertionError, match=r"label: Form elements must have labels"):
        assert_accessible(page)
    page.locator("input").evaluate("field => field.remove()")
    with pytest.raises(AssertionError, match=r"9\d\d pixels wide"):
        assert_accessible(page)
    page.context.close()


def test_a_page_is_used_by_keyboard_alone(console: Console, page: "Page") -> None:
    page.goto(console.url("/clients"))
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Quotas")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Quotas")
    page.get_by_label("Client id").focus()
    page.keyboard.type("app")
    for key in ("Tab", "Tab", "Tab"):
        page.keyboard.press(key)
    page.keyboard.type("1024")
    page.keyboard.press("Enter")
    expect(page.get_by_role("row", name="app")).to_contain_text("producer_byte_rate=1024")


def test_a_setting_of_the_running_broker_is_changed_and_removed(console: Console, page: "Page") -> None:
    page.goto(console.url("/broker"))
    page.get_by_role("link", name="Settings").click()
    expect(page.locator("tr", has_text="data.dir")).to_contain_text("a start")
    page.get_by_label("Settings, one per line").fill("log.retention.ms=5000")
    page.get_by_role("button", name="Change").click()
    own = page.get_by_role("region", name="Table of own settings").locator("tr", has_text="log.retention.ms")
    expect(own).to_contain_text("this broker")
    assert console.broker.services.config.log_retention_ms == 5000
    assert_accessible(page)
    own.get_by_role("button", name="Remove log.retention.ms").click()
    expect(own).to_have_count(0)
    assert console.broker.services.config.log_retention_ms != 5000


def test_everything_is_searched_from_any_page(console: Console, page: "Page") -> None:
    console.run(console.broker.services.topics.create("sought.orders"))
    page.goto(console.url("/clients"))
    page.keyboard.press("/")
    page.keyboard.type("ought")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Search: ought")
    assert_accessible(page)
    page.get_by_role("link", name="sought.orders").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("sought.orders")


def test_a_page_weighs_little(console: Console, page: "Page") -> None:
    weights: dict[str, int] = {}
    page.on("response", lambda answer: weights.__setitem__(answer.url, len(answer.body())))
    for path in ("/overview", "/topics", "/broker/settings"):
        weights.clear()
        page.goto(console.url(path), wait_until="load")
        assert sum(weights.values()) < MOST_BYTES, weights


@pytest.mark.parametrize("width", [360, 768, 1280, 2560])
def test_no_page_is_wider_than_the_screen(console: Console, page: "Page", width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    for each in PAGES:
        if each.is_in_navigation:
            page.goto(console.url(each.path.removeprefix("/console")))
            assert page.evaluate("document.documentElement.scrollWidth") <= width, each.path
