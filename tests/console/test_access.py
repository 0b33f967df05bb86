"""Users and ACLs: the page makes a user, and says why she is refused until an ACL allows what she does."""

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.conformance.secured import AUTHORIZER, PASSWORD, add_user
from tests.console.site import Console, assert_accessible, console_with, sign_in
from tidelog.client import AuthenticationError, AuthorizationError, Producer

if TYPE_CHECKING:
    from playwright.sync_api import Page

HER_PASSWORD = "correct horse: ü"
secured = console_with(
    listeners="SASL_PLAINTEXT://127.0.0.1:0",
    authorizer_class_name=AUTHORIZER,
    super_users="User:admin",
)


@pytest.fixture(scope="module")
def console(secured: Console) -> Console:
    secured.run(add_user(secured.broker, "admin"))
    secured.run(secured.broker.services.topics.create("orders"))
    return secured


def client(console: Console, user: str, password: str) -> dict[str, str]:
    return {
        "bootstrap_servers": console.address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


async def write(settings: dict[str, str]) -> None:
    async with Producer(**settings) as producer:
        await producer.send("orders", b"x")


def ask_why(page: "Page", console: Console, principal: str, operation: str, topic: str) -> None:
    page.goto(console.url("/access"))
    expect(page.get_by_label("From the address")).to_have_value("127.0.0.1")
    page.get_by_label("Principal").fill(principal)
    page.get_by_label("Operation").select_option(operation)
    page.get_by_label("Its name").fill(topic)
    page.get_by_role("button", name="Ask").click()


def test_a_user_is_made_refused_explained_allowed_and_deleted(console: Console, page: "Page") -> None:
    sign_in(page, console, "admin", PASSWORD)
    page.goto(console.url("/access"))
    page.get_by_label("Name", exact=True).fill("alice")
    page.get_by_label("Password").fill(HER_PASSWORD)
    page.get_by_role("button", name="Store").click()
    expect(page.get_by_role("cell", name="alice")).to_be_visible()
    alice = client(console, "alice", HER_PASSWORD)
    with pytest.raises(AuthorizationError):
        console.run(write(alice))

    ask_why(page, console, "User:alice", "WRITE", "orders")
    answer = page.locator("#why")
    expect(answer).to_contain_text("Refused: User:alice from 127.0.0.1, WRITE on TOPIC orders")
    expect(answer).to_contain_text("No ACL is about topic orders")
    expect(answer.get_by_role("code")).to_have_text(
        "tidelog acl add User:alice --operation Write --topic orders"
    )
    assert_accessible(page)

    page.goto(console.url("/access/acls"))
    form = page.locator("form", has=page.get_by_role("button", name="Make"))
    form.get_by_label("Principal").fill("User:alice")
    form.get_by_label("Operation").select_option("WRITE")
    form.get_by_label("Name").fill("ord")
    form.get_by_label("Pattern").select_option("PREFIXED")
    form.get_by_role("button", name="Make").click()
    row = page.get_by_role("row", name="User:alice")
    expect(row).to_contain_text("ALLOW WRITE TOPIC ord PREFIXED *".replace(" ", ""))
    assert_accessible(page)
    console.run(write(alice))
    ask_why(page, console, "User:alice", "WRITE", "orders")
    expect(answer).to_contain_text("Allowed: User:alice")
    expect(answer).to_contain_text(
        "ALLOW WRITE to User:alice from * on TOPIC ord and all names that begin like this"
    )

    page.goto(console.url("/access/acls"))
    row.get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)
    page.goto(console.url("/access"))
    page.get_by_label("Name of the user to delete").fill("alice")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("cell", name="alice")).to_have_count(0)
    with pytest.raises(AuthenticationError):
        console.run(write(alice))


def test_who_may_not_see_the_cluster_sees_no_page_of_it(console: Console, page: "Page") -> None:
    console.run(add_user(console.broker, "bob"))
    sign_in(page, console, "bob", PASSWORD)
    for path in ("/overview", "/clients", "/clients/quotas", "/access", "/access/acls"):
        page.goto(console.url(path))
        expect(page.get_by_text("CLUSTER_AUTHORIZATION_FAILED")).to_be_visible()
        expect(page.get_by_role("table")).to_have_count(0)
