"""The cluster and the faults: who leads what, and a fault that the page orders meets a real producer."""

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.console.site import Console, assert_accessible, console_with
from tidelog.client import Admin, NewTopic, Producer

if TYPE_CHECKING:
    from playwright.sync_api import Page

PARTITIONS, LIMIT = 3, 2
console = console_with(faults_enable=True)


async def make_topics(address: str) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic("orders", PARTITIONS, 1, {})])


async def write(address: str) -> int:
    """The offset of a record after which the answer was lost once."""
    async with Producer(bootstrap_servers=address, retry_backoff_ms=20, request_timeout_ms=1_000) as producer:
        return (await producer.send_and_wait("orders", b"x", partition=1)).offset


def test_brokers_and_their_partitions_are_shown_by_pages(console: Console, page: "Page") -> None:
    console.run(make_topics(console.address))
    page.goto(console.url(f"/cluster?limit={LIMIT}"))
    broker = page.get_by_role("table", name="Brokers").get_by_role("row").nth(1)
    expect(broker).to_contain_text("(this one)")
    expect(broker).to_contain_text(f"PLAINTEXT://{console.address}")
    expect(broker.get_by_role("cell").nth(3)).to_have_text(str(PARTITIONS))
    partitions = page.locator("#partitions tbody tr")
    expect(partitions).to_have_count(LIMIT)
    expect(partitions.first).to_contain_text("served")
    assert_accessible(page)
    page.get_by_role("link", name="Next").click()
    expect(partitions).to_have_count(PARTITIONS - LIMIT)
    page.get_by_role("checkbox").check()
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("none of 0")).to_be_visible()


def test_a_fault_is_ordered_carried_out_and_cleared(console: Console, page: "Page") -> None:
    page.goto(console.url("/overview"))
    expect(page.locator("[data-problem=faults_enabled]")).to_contain_text("Notice")
    page.get_by_role("link", name="Faults").click()
    page.get_by_role("combobox", name="Fault").select_option("drop")
    page.get_by_role("textbox", name="Topic").fill("orders")
    page.get_by_role("button", name="Order").click()
    active = page.get_by_role("table", name="Active faults").locator("tbody tr")
    done = page.get_by_role("table", name="The last faults that are done").locator("tbody tr")
    expect(active).to_contain_text("produce of orders")
    assert_accessible(page)
    assert console.run(write(console.address)) == 0
    expect(active).to_have_count(0)
    expect(done).to_contain_text("drop")

    page.get_by_role("combobox", name="Fault").select_option("delay")
    page.get_by_role("button", name="Order").click()
    expect(page.get_by_role("status")).to_contain_text("delay needs delay_ms")
    page.get_by_label("Delay in milliseconds").fill("60000")
    page.get_by_label("How many").fill("0")
    page.get_by_role("button", name="Order").click()
    expect(active).to_contain_text("until cleared")
    active.get_by_role("button", name="Clear").click()
    expect(active).to_have_count(0)
    assert console.run(write(console.address)) == 1
