"""A visitor signs in by the form, and a page of another site can do nothing with the session."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.conformance.secured import PASSWORD, add_user
from tests.console.site import Console, assert_accessible, console_with, new_page, sign_in
from tests.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

secured = console_with(listeners="SASL_PLAINTEXT://127.0.0.1:0")
FOREIGN_PAGE = """<!doctype html><html lang="en"><title>Elsewhere</title>
<a href="{console}/console/broker?from=elsewhere">to the console</a>
<form action="{console}/api/v1/topics" method="post" enctype="text/plain">
<input name='{{"name": "stolen", "x' value='": 1}}'><button>Win</button></form>
<script>
const ask = (path, options) => fetch("{console}" + path, {{ credentials: "include", ...options }});
const body = JSON.stringify({{ name: "stolen" }});
window.outcomes = Promise.allSettled([
  ask("/api/v1/topics", {{ method: "POST", body, headers: {{ "Content-Type": "application/json" }} }}),
  ask("/api/v1/topics", {{ method: "POST", body, mode: "no-cors" }}),
  ask("/api/v1/topics/orders", {{ method: "DELETE" }}),
  ask("/api/v1/topics"),
]).then((all) => all.map((one) => one.status + (one.value ? " " + one.value.type : "")));
</script></html>"""


@pytest.fixture(scope="module")
def console(secured: Console) -> Console:
    secured.run(add_user(secured.broker, "alice"))
    secured.run(secured.broker.services.topics.create("orders"))
    return secured


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def foreign_page(console: Console, tmp_path: Path) -> Iterator[str]:
    """The address of a page on another site: for a browser, localhost is not 127.0.0.1."""
    own = f"http://127.0.0.1:{console.http_port}"
    (tmp_path / "index.html").write_text(FOREIGN_PAGE.format(console=own))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://localhost:{server.server_address[1]}/index.html"
    server.shutdown()
    thread.join(DEADLINE_SECONDS)
    server.server_close()


def test_the_form_asks_for_a_password_and_leads_to_the_wanted_page(console: Console, page: "Page") -> None:
    page.goto(console.url("/topics?search=ord"))
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert_accessible(page)
    page.get_by_label("User").fill("alice")
    page.get_by_label("Password").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Sign-in failed")
    page.get_by_label("User").fill("alice")
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    assert page.url == console.url("/topics?search=ord")
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_a_page_that_refreshes_itself_leads_to_the_form_once_the_session_has_ended(
    console: Console, page: "Page", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.broker.console.live._ALIVE_SECONDS", 0.1)
    console.run(add_user(console.broker, "bob"))
    sign_in(page, console, "bob", PASSWORD)
    page.goto(console.url("/broker"))
    expect(page.get_by_text("Uptime")).to_be_visible()
    console.run(add_user(console.broker, "bob", "another one"))
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_a_page_of_another_site_neither_changes_nor_reads_but_may_link(
    console: Console, browser: "Browser", foreign_page: str
) -> None:
    page = new_page(browser)
    sign_in(page, console, "alice", PASSWORD)
    page.goto(foreign_page)
    outcomes = page.evaluate("window.outcomes")
    assert set(outcomes) <= {"rejected", "fulfilled opaque"}, "the page may read no answer"
    page.get_by_role("button", name="Win").click()
    expect(page.get_by_text("SASL_AUTHENTICATION_FAILED")).to_be_visible()
    assert [topic.name for topic in console.broker.services.catalog.topics()] == ["orders"]
    page.goto(foreign_page)
    page.get_by_role("link", name="to the console").click()
    expect(page.get_by_role("heading", name="Broker")).to_be_visible()
    assert page.url == console.url("/broker?from=elsewhere")
    page.context.close()
