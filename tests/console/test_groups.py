"""The pages of groups in a browser: who lags, by how much over time, and a reset that moves a real group."""

import re
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from playwright.sync_api import expect

from tests.conformance.crew import RECORDS, filled
from tests.console.site import Console, assert_accessible
from tidelog.client import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    Producer,
    ShareConsumer,
    TopicPartition,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

OF_PARTITION = RECORDS // 4


@pytest.fixture
def lagging(console: Console) -> tuple[str, str]:
    """A topic, and a group that committed 10 and 20 of its first two partitions."""

    async def run() -> tuple[str, str]:
        topic, group = await filled(console.address), f"<b>group</b> & {uuid4().hex}"
        await commit(console, group, topic, 10, 20)
        return topic, group

    return console.run(run())


async def commit(console: Console, group: str, topic: str, *offsets: int) -> None:
    async with Admin(bootstrap_servers=console.address) as admin:
        committed = {TopicPartition(topic, index): offset for index, offset in enumerate(offsets)}
        await admin.groups.commit(group, committed)


def committed(console: Console, group: str) -> list[int]:
    async def run() -> list[int]:
        async with Admin(bootstrap_servers=console.address) as admin:
            found = await admin.groups.offsets(group)
            return [found[where].offset for where in sorted(found)]

    return console.run(run())


def open_group(console: Console, page: "Page", group: str) -> None:
    page.goto(console.url("/groups"))
    page.get_by_label("Group contains").fill(group)
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**search=**")
    page.get_by_role("link", name=group, exact=True).click()


def test_a_group_shows_its_lag_and_the_chart_follows_it(
    console: Console, page: "Page", lagging: tuple[str, str]
) -> None:
    topic, group = lagging
    page.goto(console.url("/groups?order=lag"))
    row: Any = page.locator("#groups tbody tr").filter(has_text=group)
    expect(row.locator("td").last).to_have_text(str(2 * OF_PARTITION - 30))
    assert_accessible(page)
    open_group(console, page, group)
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Group {group}")
    lag = page.locator("[data-series='all partitions']")
    expect(lag).to_have_text(str(2 * OF_PARTITION - 30))
    expect(page.locator("#chart .u-legend .u-series")).to_have_count(3)  # The sum, two partitions.
    assert_accessible(page)
    console.run(commit(console, group, topic, 40, 50))
    expect(lag).to_have_text(str(2 * OF_PARTITION - 90))


def test_a_reset_is_shown_before_it_moves_the_group(
    console: Console, page: "Page", lagging: tuple[str, str]
) -> None:
    topic, group = lagging
    open_group(console, page, group)
    page.locator("#reset [name=to]").select_option("shift")
    page.get_by_role("textbox", name="Number").fill("-15")
    page.get_by_role("button", name="Preview").click()
    plan: Any = page.locator("#plan tbody tr")
    expect(plan).to_have_count(2)
    assert [row.locator("td").all_inner_texts()[:4] for row in plan.all()] == [
        [f"{topic}-0", "10", "0", "-10"],
        [f"{topic}-1", "20", "5", "-15"],
    ]
    assert_accessible(page)
    assert committed(console, group) == [10, 20]
    reset = page.get_by_role("button", name="Reset", exact=True)
    expect(reset).to_be_disabled()
    page.get_by_label("Type the name of the group", exact=True).fill(group)
    reset.click()
    expect(page.locator("#message")).to_have_text("The offsets are reset.")
    assert committed(console, group) == [0, 5]


def test_a_reset_to_a_time_takes_it_as_utc(console: Console, page: "Page", lagging: tuple[str, str]) -> None:
    _, group = lagging
    open_group(console, page, group)
    page.locator("#reset [name=to]").select_option("timestamp")
    page.get_by_label("Time (UTC)").fill("2001-01-01T00:00:00")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#plan tbody tr")).to_have_count(2)
    assert [row.locator("td").nth(2).inner_text() for row in page.locator("#plan tbody tr").all()] == [
        "0",
        "0",
    ]
    assert page.locator("#reset [name=value]").input_value() == "978307200000"


def test_a_reset_of_one_partition_leaves_the_others(
    console: Console, page: "Page", lagging: tuple[str, str]
) -> None:
    topic, group = lagging
    open_group(console, page, group)
    page.get_by_label("Topics, one per line").fill(topic)
    page.get_by_label("Partitions, one per line").fill("1")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#plan tbody tr")).to_have_count(1)
    page.get_by_label("Type the name of the group", exact=True).fill(group)
    page.get_by_role("button", name="Reset", exact=True).click()
    expect(page.locator("#message")).to_have_text("The offsets are reset.")
    assert committed(console, group) == [10, 0]


def test_a_group_is_deleted_once_its_name_is_typed(
    console: Console, page: "Page", lagging: tuple[str, str]
) -> None:
    _, group = lagging
    open_group(console, page, group)
    page.get_by_text("Delete this group").click()
    page.get_by_label("Type the name of the group to delete").fill(group)
    page.get_by_role("button", name="Delete").click()
    expect(page).to_have_url(console.url("/groups"))
    expect(page.get_by_role("link", name=group)).to_have_count(0)
    assert committed(console, group) == []


def test_a_share_group_shows_what_its_members_hold_and_is_reset(console: Console, page: "Page") -> None:
    topic, group = f"t{uuid4().hex}", f"<i>share</i> {uuid4().hex}"
    stack = AsyncExitStack()
    console.run(hold(console, stack, topic, group))
    page.goto(console.url("/groups"))
    page.get_by_role("link", name=group, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Share group {group}")
    flight = page.get_by_role("table", name="In flight").locator("tbody tr")
    expect(flight.locator("td")).to_have_text([f"{topic}-0", "0", "3", "3", "3", "1", "3 × 1"])
    expect(page.locator("#group")).to_contain_text("3 records, 3 of them held by members")
    expect(page.get_by_role("link", name=f"dlq.{topic}", exact=True)).to_be_visible()
    expect(page.locator("#group")).to_contain_text(f"not written: topic dlq.{topic} takes no dead letters")
    age = re.compile(r"\d (ms|s|min)\b")  # A busy machine takes more than a second to show it.
    expect(page.get_by_role("table", name="Share partitions")).to_contain_text(age)
    assert_accessible(page)
    page.locator("#reset [name=to]").select_option("latest")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#refusal")).to_contain_text("the group has 1 member")
    console.run(stack.aclose())
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#refusal")).to_be_hidden()
    page.get_by_label("Type the name of the group", exact=True).fill(group)
    page.get_by_role("button", name="Reset", exact=True).click()
    expect(page.locator("#message")).to_have_text("The offsets are reset.")
    expect(page.get_by_role("table", name="Share partitions").locator("tbody td").nth(1)).to_have_text("3")


async def hold(console: Console, stack: AsyncExitStack, topic: str, group: str) -> None:
    """A member of a share group holds three records until `stack` closes."""
    async with Admin(bootstrap_servers=console.address) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1, {}), NewTopic(f"dlq.{topic}", 1, 1, {})])
        resource = ConfigResource(ConfigResourceType.GROUP, group)
        named = {"errors.deadletterqueue.topic.name": f"dlq.{topic}"}
        await admin.alter_configs({resource: {"share.auto.offset.reset": "earliest", **named}})
    async with Producer(bootstrap_servers=console.address) as producer:
        for number in range(3):
            await producer.send(topic, b"%d" % number)
    consumer = await stack.enter_async_context(
        ShareConsumer(topic, bootstrap_servers=console.address, group_id=group)
    )
    await consumer.getone()
