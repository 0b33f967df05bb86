"""The page of transactions in a browser: what they hold back, and an abort by hand."""

from typing import TYPE_CHECKING
from uuid import uuid4

from playwright.sync_api import expect

from tests.conformance.raw import connected
from tests.console.site import Console, assert_accessible, console_with

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

console = console_with(
    transaction_two_phase_commit_enable=True, transaction_two_phase_commit_allowed_ids=("prepared*",)
)


async def opened(console: Console, name: str, topic: str, *, is_prepared: bool = False) -> int:
    """The id of its producer, which is gone."""
    async with connected(console.broker.port) as client:
        given = await client.begin(name, topic, is_prepared=is_prepared)
    return int(given.producer_id)


def test_an_open_transaction_is_aborted_by_hand_once_its_name_is_typed(
    console: Console, page: "Page"
) -> None:
    topic = f"open{uuid4().hex}"
    name = f"{topic}\u202e<script>document.title='hostile'</script>"
    producer_id = console.run(opened(console, name, topic))
    page.goto(console.url("/transactions"))
    row = page.locator("#transactions tbody tr").filter(has_text=topic)
    expect(row.locator("td").first).to_have_text(name.replace("\u202e", "\\u202e"))
    expect(page).to_have_title("Transactions – Tidelog")
    expect(row).to_contain_text("Ongoing")
    expect(row).to_contain_text("cannot be committed by hand")
    held_back = page.locator("#held-back tbody tr").filter(has_text=f"{topic}-0")
    expect(held_back).to_contain_text(f"producer {producer_id} epoch")
    row.get_by_text("Abort", exact=True).first.click()
    assert_accessible(page)
    abort = row.get_by_role("button", name="Abort")
    expect(abort).to_be_disabled()
    row.get_by_label("Type the transactional id").fill(name)
    abort.click()
    expect(page.locator("#message")).to_have_text("The transaction is aborted.")
    expect(held_back).to_have_count(0)


def test_a_prepared_transaction_is_committed_by_hand(console: Console, page: "Page") -> None:
    name = f"prepared{uuid4().hex}"
    console.run(opened(console, name, name, is_prepared=True))
    page.goto(console.url("/transactions"))
    row = page.locator("#transactions tbody tr").filter(has_text=name)
    expect(row).to_contain_text("no time aborts it")
    row.get_by_text("Abort or commit").click()
    row.get_by_label("Type the transactional id").last.fill(name)
    row.get_by_role("button", name="Commit").click()
    expect(page.locator("#message")).to_have_text("The transaction is committed.")
    expect(page.locator("#held-back tbody tr").filter(has_text=f"{name}-0")).to_have_count(0)
    page.get_by_label("Also ids without a transaction now").check()
    page.get_by_label("Transactional id contains").fill(name)
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#transactions tbody tr")).to_contain_text("CompleteCommit")
    page.get_by_label("Transactional id contains").fill("another")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#transactions tbody tr")).to_have_count(0)


def test_a_part_that_somebody_begins_to_use_is_not_replaced_under_their_hands(
    console: Console, page: "Page"
) -> None:
    first, second = (f"used{uuid4().hex}" for _ in range(2))
    console.run(opened(console, first, first))
    page.goto(console.url("/transactions"))
    held: list[Route] = []
    page.route("**/console/transactions", lambda route: held.append(route))
    with page.expect_request("**/console/transactions"):
        pass  # The page refreshes itself; its answer is held.
    page.locator("#transactions tbody tr").filter(has_text=first).locator("summary").last.click()
    page.evaluate("addEventListener('htmx:afterOnLoad', () => { document.body.id = 'answered'; })")
    console.run(opened(console, second, second))
    for route in held:
        route.continue_()
    page.wait_for_selector("#answered")
    expect(page.locator("#transactions details[open]")).to_have_count(1)
    expect(page.locator("#transactions")).not_to_contain_text(second)
    page.unroute("**/console/transactions")
    page.locator("#transactions details[open] summary").click()
    page.get_by_role("heading", level=1).click()
    expect(page.locator("#transactions")).to_contain_text(second)
