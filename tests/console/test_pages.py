"""What holds for every page, and that the tests notice when it does not."""

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.console.site import Complaints, Console, assert_accessible, new_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

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
