"""The pages of producers in a browser: the window, what was refused, and the history."""

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from playwright.sync_api import expect

from tests.conformance.raw import batch, connected
from tests.console.site import Console, assert_accessible
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def resent(console: Console) -> tuple[str, int]:
    """A topic, and a producer that sent three batches, the last one twice, left a gap, and began a new
    epoch."""

    async def run() -> tuple[str, int]:
        topic = f"t{uuid4().hex}"
        async with connected(console.broker.port) as client:
            await client.create(topic)
            producer_id = await client.producer_id()
            for sequence, epoch in ((0, 0), (2, 0), (4, 0), (4, 0), (9, 0), (0, 1)):
                await client.produce(batch("v", producer_id, sequence, epoch=epoch, count=2), topic=topic)
            return topic, producer_id

    return console.run(run())


def cells(page: "Page", table: str) -> list[list[str]]:
    rows: Any = page.locator(f"{table} tbody tr")
    return [[cell.strip() for cell in row.locator("td").all_inner_texts()] for row in rows.all()]


def test_a_producer_is_found_with_its_window_duplicates_and_refusals(
    console: Console, page: "Page", resent: tuple[str, int]
) -> None:
    topic, producer_id = resent
    page.goto(console.url("/producers"))
    page.get_by_label("Topic").fill(topic)
    page.get_by_label("Only with duplicates or refusals").check()
    page.get_by_role("button", name="Show").click()
    page.wait_for_url(f"**topic={topic}**")
    ((partition, found, epoch, window, _, duplicates, refused),) = cells(page, "#producers")
    assert (partition, found, epoch, duplicates) == (f"{topic}-0", str(producer_id), "1", "1")
    assert window.split() == ["0–1", "@6", *["–"] * 4]
    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused == f"1 × {code.name} ({int(code)})"
    assert_accessible(page)


def test_the_page_of_a_producer_shows_its_history_in_the_log(
    console: Console, page: "Page", resent: tuple[str, int]
) -> None:
    topic, producer_id = resent
    page.goto(console.url("/producers"))
    page.get_by_label("Topic").fill(topic)
    page.get_by_role("button", name="Show").click()
    page.wait_for_url(f"**topic={topic}**")
    page.get_by_role("link", name=str(producer_id), exact=True).click()
    expect(page.locator("#read")).to_have_text("complete up to offset 8 of 8: 3 rows")
    rows = [row[:6] for row in cells(page, "#history")]
    assert rows == [
        ["batches", "0", "0–5", "0–5", "3", "6"],
        ["new epoch", "1", "", "6", "", ""],
        ["batches", "1", "0–1", "6–7", "1", "2"],
    ]
    expect(page.locator("#producer")).to_contain_text("the next is 6")
    assert_accessible(page)
    page.get_by_role("link", name="batch at offset 6").click()
    page.wait_for_url("**/batches?offset=6")
    expect(page.get_by_role("link", name=str(producer_id), exact=True)).to_have_count(1)


def test_a_producer_that_nobody_knows_says_so(
    console: Console, page: "Page", resent: tuple[str, int]
) -> None:
    topic, producer_id = resent
    page.goto(console.url(f"/producers/{topic}/0/{producer_id + 1000}"))
    page.get_by_text("This partition does not know the producer").wait_for()
    assert_accessible(page)
