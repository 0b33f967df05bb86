"""Records: shown as text whatever they hold, found, followed and produced, in a real browser."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.console.site import Console, assert_accessible
from tidelog.client import Admin, NewTopic, Producer

if TYPE_CHECKING:
    from playwright.sync_api import Page

Row = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]
MARKUP = '<img src=x onerror="document.title=\'taken\'"><script>document.title="taken"</script>'
CLOSED_AND_A_KEY = """() => {
  document.getElementById("keys").close();
  document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "j", bubbles: true }));
}"""
"""Before the next frame, in which the focus leaves the closed dialog."""
HOSTILE: tuple[Row, ...] = (
    (MARKUP.encode(), MARKUP.encode(), ((MARKUP, MARKUP.encode()),)),
    ("a\u202egnp.exe".encode(), b"\x1b[31m\x00\x07", (("\u200bname", b"\r\n"),)),
    (b"\xff\xfe", b"\xc3\x28", (("h", b"\xff"),)),
    (b"{{ 7 * 7 }}", b'{"</script>": ["${7*7}", 1.50]}', ()),
    (b"k" * 500_000, b"v" * 500_000, (("n" * 10_000, b"w"),)),
    (None, None, ()),
    (b"", b"", (("", b""),)),
)


async def write(address: str, topic: str, rows: Sequence[Row]) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        if topic not in await admin.list_topics():
            await admin.create_topics([NewTopic(topic, 1, 1, {})])
    async with Producer(bootstrap_servers=address, max_request_size=2_000_000) as producer:
        for key, value, headers in rows:
            await producer.send(topic, value, key=key, headers=headers, partition=0)


def of_partition(console: Console, topic: str) -> str:
    return console.url(f"/topics/{topic}?partitions=0&time=0")


def of_record(console: Console, topic: str, offset: int) -> str:
    return console.url(f"/topics/{topic}/partitions/0/records/{offset}")


def test_a_hostile_record_is_text_and_does_nothing(console: Console, page: "Page") -> None:
    console.run(write(console.address, "hostile", HOSTILE))
    page.goto(of_partition(console, "hostile"))
    rows = page.locator("#rows tr")
    expect(rows).to_have_count(len(HOSTILE))
    assert rows.nth(0).locator("bdi").all_inner_texts() == [MARKUP, MARKUP]
    expect(rows.nth(0).locator("td").nth(4)).to_have_text(f"{MARKUP}={MARKUP}")
    expect(rows.nth(1)).to_contain_text(r"a\u202egnp.exe")
    expect(rows.nth(1)).to_contain_text(r"\x1b[31m\x00\x07")
    expect(rows.nth(1)).to_contain_text(r"\u200bname=\r")
    expect(rows.nth(2)).to_contain_text("ff fe")
    expect(rows.nth(3)).to_contain_text("{{ 7 * 7 }}")
    expect(rows.nth(4)).to_contain_text("… of 488.3 KiB")
    assert len(rows.nth(4).inner_text()) < 5_000
    assert rows.nth(5).locator("td").all_inner_texts()[2:5] == ["none", "none", ""]
    assert_accessible(page)
    for offset in range(len(HOSTILE)):
        page.goto(of_record(console, "hostile", offset))
        assert_accessible(page)
    page.goto(of_record(console, "hostile", 3))
    expect(page.locator("pre").last).to_have_text('{\n  "</script>": [\n    "${7*7}",\n    1.50\n  ]\n}')
    assert page.title().startswith("Record")
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0


def test_what_a_script_adds_is_text_too(console: Console, page: "Page") -> None:
    console.run(write(console.address, "added", HOSTILE))
    page.goto(of_partition(console, "added"))
    page.get_by_role("textbox", name="Text").fill(MARKUP)
    page.get_by_role("button", name="Search all").click()
    rows = page.locator("#rows tr")
    expect(page.locator("#progress")).to_contain_text("all searched: 1 found")
    expect(rows).to_have_count(1)
    assert rows.locator("bdi").all_inner_texts() == [MARKUP, MARKUP]
    expect(rows.locator("td").nth(4)).to_have_text(f"{MARKUP}={MARKUP}")
    page.get_by_role("textbox", name="Text").fill("gnp")
    page.get_by_role("button", name="Search all").click()
    expect(rows.nth(0)).to_contain_text(r"a\u202egnp.exe")
    expect(rows.nth(0)).to_contain_text(r"\x1b[31m\x00\x07")
    assert page.title().startswith("Messages")
    assert_accessible(page)


async def write_to_each(address: str, topic: str, partitions: int) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1, {})])
    async with Producer(bootstrap_servers=address) as producer:
        for partition in range(partitions):
            for key in (b"other", b"sought"):
                await producer.send_and_wait(topic, b"in %d" % partition, key=key, partition=partition)


def test_all_partitions_are_searched(console: Console, page: "Page") -> None:
    console.run(write_to_each(console.address, "spread", 3))
    page.goto(console.url("/topics"))
    page.get_by_role("link", name="spread").click()
    page.get_by_role("textbox", name="Key is").fill("sought")
    page.get_by_role("button", name="Search all").click()
    rows = page.locator("#rows tr")
    expect(page.locator("#progress")).to_contain_text("all searched: 3 found in 3 partitions")
    assert [row.locator("td").first.inner_text() for row in rows.all()] == ["0", "1", "2"]
    assert_accessible(page)
    rows.nth(2).get_by_role("link").first.click()
    expect(page.locator("pre").last).to_have_text("in 2")
    page.goto(console.url("/topics/spread"))
    page.get_by_role("button", name="Search all").click()
    expect(page.locator("#message")).to_contain_text("name a key, a header, a text or a JSON expression")
    expect(page.locator("#progress")).to_be_hidden()


def test_a_topic_opens_on_its_newest_records_of_all_partitions(console: Console, page: "Page") -> None:
    console.run(write_to_each(console.address, "newest", 3))
    page.goto(console.url("/topics"))
    page.get_by_role("link", name="newest").click()
    rows = page.locator("#rows tr")
    expect(rows).to_have_count(6)
    times = [row.locator("td").nth(1).inner_text() for row in rows.all()]
    assert times == sorted(times, reverse=True)
    page.get_by_label("JSON value").fill("@ == 'in 1'")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#none")).to_contain_text("None of the records that were looked at matches")
    assert_accessible(page)
    page.goto(console.url("/topics/newest"))
    rows.first.get_by_role("link", name="batch").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("batches")
    page.go_back()
    rows.first.get_by_role("link", name="producer").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Producer")


def test_it_is_read_from_an_offset_a_time_and_the_end(console: Console, page: "Page") -> None:
    rows: list[Row] = [(b"key %d" % number, b"%d" % number, ()) for number in range(120)]
    console.run(write(console.address, "many", rows))
    page.goto(console.url("/topics/many"))
    heads = page.locator("#rows th")
    expect(heads.first).to_have_text("119")
    expect(heads.last).to_have_text("70")
    page.get_by_role("link", name="Earlier").click()
    expect(heads.first).to_have_text("69")
    page.get_by_role("link", name="First").click()
    expect(heads.first).to_have_text("0")
    page.get_by_role("link", name="Later").click()
    expect(heads.first).to_have_text("50")
    page.get_by_label("From time (UTC)").fill("")
    page.get_by_label("Partition").fill("0")
    page.get_by_label("From offset").fill("117")
    page.get_by_role("button", name="Show").click()
    expect(heads).to_have_count(3)
    page.get_by_label("From offset").fill("")
    page.get_by_label("From time (UTC)").fill("2020-01-01")
    page.get_by_text("More", exact=True).click()
    page.get_by_label("Records", exact=True).fill("5")
    page.get_by_label("Value as").select_option("bytes")
    page.get_by_role("button", name="Show").click()
    expect(heads).to_have_count(5)
    expect(page.locator("#rows tr").nth(3)).to_contain_text("33 bytes")
    page.get_by_label("From time (UTC)").fill("soon")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".problem")).to_contain_text("time: expected 2026-11-26T18:00:00Z")


def test_new_records_come_live_until_it_is_paused(console: Console, page: "Page") -> None:
    console.run(write(console.address, "tail", [(b"old", b"old", ())]))
    page.goto(console.url("/topics/tail"))
    rows = page.locator("#rows tr")
    expect(page.locator("#progress")).to_contain_text("live: 0 new")
    expect(rows).to_have_count(1)
    console.run(write(console.address, "tail", [(b"new", MARKUP.encode(), [(MARKUP, MARKUP.encode())])]))
    expect(rows.first).to_contain_text("new")
    assert rows.first.locator("bdi").last.inner_text() == MARKUP
    expect(rows.first.locator("td").nth(4)).to_have_text(f"{MARKUP}={MARKUP}")
    console.run(write(console.address, "tail", [(b"newer", b"", ())]))
    expect(rows.first).to_contain_text("newer")
    expect(page.locator("#progress")).to_contain_text("live: 2 new")
    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Live")).to_be_visible()
    expect(page.locator("#progress")).to_contain_text("paused")
    console.run(write(console.address, "tail", [(b"meanwhile", b"", ())]))
    assert_accessible(page)
    expect(rows).to_have_count(3)
    page.reload()
    expect(rows.first).to_contain_text("meanwhile")


def test_a_record_is_reached_copied_and_resent_by_keyboard(console: Console, page: "Page") -> None:
    console.run(write(console.address, "keys", [(b"a", b"first", ()), (b"b", b'{"second": 2}', ())]))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(console.url("/topics/keys?partitions=0"))
    page.keyboard.press("/")
    expect(page.get_by_role("textbox", name="Search everything")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("textbox", name="Search everything")).not_to_be_focused()
    page.keyboard.press("?")
    dialog, links = page.locator("dialog"), page.get_by_role("rowheader").get_by_role("link")
    expect(dialog).to_contain_text("next row")
    assert_accessible(page)
    page.evaluate(CLOSED_AND_A_KEY)
    expect(links.nth(0)).to_be_focused()
    page.keyboard.press("?")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    for key, row in (("j", 1), ("k", 0)):
        page.keyboard.press(key)
        expect(links.nth(row)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("offset 1")
    page.wait_for_load_state()
    page.keyboard.press("c")
    expect(page.locator("#message")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == '{\n  "second": 2\n}'
    page.get_by_text("Resend this record").click()
    page.get_by_role("button", name="Resend").click()
    expect(page.locator("#message")).to_have_text("A copy is stored durably.")
    page.goto(console.url("/topics/keys"))
    expect(page.locator("#rows tr")).to_have_count(3)
    expect(page.locator("#rows tr").first).to_contain_text('{"second": 2}')


def test_what_is_produced_here_is_read_here(console: Console, page: "Page", tmp_path: Path) -> None:
    console.run(write(console.address, "produced", []))
    page.goto(console.url("/topics/produced/produce"))
    assert_accessible(page)
    page.get_by_label("Key, empty for none").fill("42")
    page.get_by_label("Value", exact=True).fill("line 1\nline 2 ü")
    page.get_by_label("Headers, one per line").fill("trace=a=b\nempty=")
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(page.locator("#produced")).to_have_text("Stored durably: partition 0, offset 0")
    page.get_by_label("No value: a tombstone").check()
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(page.locator("#produced")).to_contain_text("offset 1")
    page.get_by_label("No value: a tombstone").uncheck()
    page.get_by_label("The value is").select_option("hex")
    page.get_by_label("Value", exact=True).fill("zz")
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(page.locator("#message")).to_contain_text("value: expected hex")
    page.locator("#produced a").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("offset 1")
    page.goto(of_partition(console, "produced"))
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert download.value.suggested_filename == "produced.csv"
    with page.expect_download() as download:
        page.get_by_role("link", name="JSON lines").click()
    assert download.value.suggested_filename == "produced.jsonl"
    path = tmp_path / "lines"
    download.value.save_as(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["key"], line["value"], line["headers"]) for line in lines] == [
        ("42", "line 1\nline 2 ü", [["trace", "a=b"], ["empty", ""]]),
        ("42", None, [["trace", "a=b"], ["empty", ""]]),
    ]


def test_batches_have_their_producers(console: Console, page: "Page") -> None:
    console.run(write(console.address, "batches", [(b"k", b"v", ())]))
    console.run(write(console.address, "batches", [(b"k", b"v", ())]))
    page.goto(console.url("/topics/batches/partitions/0/batches"))
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    entries = console.broker.services.replicas["batches", 0].log.producers.latest()
    for index, entry in enumerate(reversed(list(entries))):
        expect(rows.nth(index)).to_contain_text(f"{entry.producer_id} epoch 0")
        expect(rows.nth(index)).to_contain_text("0 to 0")
    assert_accessible(page)
