"""The clients and the quotas: who is connected, and a quota that the page sets holds for the protocol."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.console.site import Console, assert_accessible
from tidelog.client import Admin
from tidelog.protocol.quotas import CLIENT_ID, PRODUCER_BYTE_RATE

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = "<img src=x onerror=alert(1)>\u202e"
SHOWN = "<img src=x onerror=alert(1)>\\u202e"


async def connected(stack: AsyncExitStack, address: str, *client_ids: str) -> None:
    """Clients that stay connected until `stack` closes."""
    for client_id in client_ids:
        admin = await stack.enter_async_context(Admin(bootstrap_servers=address, client_id=client_id))
        await admin.describe_cluster()


async def quotas(address: str) -> object:
    async with Admin(bootstrap_servers=address) as admin:
        return await admin.quotas.list()


def test_each_client_is_shown_with_its_software_and_found_by_a_part_of_its_name(
    console: Console, page: "Page"
) -> None:
    stack = AsyncExitStack()
    console.run(connected(stack, console.address, "billing-1", "billing-2", HOSTILE))
    page.goto(console.url("/clients"))
    row = page.get_by_role("row", name="billing-1")
    expect(row).to_contain_text("tidelog")
    expect(row).to_contain_text("ANONYMOUS")
    expect(row).to_contain_text("127.0.0.1")
    expect(page.get_by_role("cell", name=SHOWN)).to_be_visible()
    assert_accessible(page)
    field = page.get_by_label("Address, user, client id or software")
    field.fill("billing-2")
    field.press("Enter")
    expect(page.get_by_role("row", name="billing-1")).to_have_count(0)
    expect(page.get_by_role("row", name="billing-2")).to_be_visible()
    console.run(stack.aclose())


def test_a_quota_is_set_and_removed(console: Console, page: "Page") -> None:
    page.goto(console.url("/clients/quotas"))
    page.get_by_label("Client id").fill("app")
    page.get_by_label("Value").fill("1048576")
    page.get_by_role("button", name="Set").click()
    expect(page.get_by_role("row", name="app")).to_contain_text("producer_byte_rate=1048576")
    assert console.run(quotas(console.address)) == {((CLIENT_ID, "app"),): {PRODUCER_BYTE_RATE: 1048576.0}}
    page.get_by_label("Value").fill("-1")
    page.get_by_role("button", name="Set").click()
    expect(page.get_by_role("status")).to_contain_text("expected more than 0")
    assert_accessible(page)
    page.get_by_label("Value").fill("")
    page.get_by_role("button", name="Set").click()
    expect(page.get_by_role("row", name="app")).to_have_count(0)
    assert console.run(quotas(console.address)) == {}
