"""Topics: the page has the protocol's numbers, and its forms change real topics."""

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.console.site import Console, assert_accessible
from tidelog.client import Admin, NewTopic, Producer, TopicPartition

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


async def write(address: str, topic: str, partitions: int, records: int) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1, {"retention.ms": "60000"})])
    async with Producer(bootstrap_servers=address) as producer:
        for number in range(records):
            await producer.send(topic, b"%d" % number, partition=number % partitions)


async def commit(address: str, group: str, topic: str) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        await admin.groups.commit(group, {TopicPartition(topic, 0): 1})


def cells(row: "Locator") -> list[str]:
    return row.locator("th, td").all_inner_texts()


def test_a_topic_is_created_found_and_shown(console: Console, page: "Page") -> None:
    page.goto(console.url("/topics"))
    page.get_by_text("Create a topic").click()
    page.get_by_label("Name", exact=True).fill("made.here")
    page.get_by_label("Partitions", exact=True).fill("3")
    page.get_by_label("Settings, one per line").fill("retention.ms=60000\ncleanup.policy=delete")
    page.get_by_role("button", name="Create").click()
    row = page.get_by_role("row", name="made.here")
    expect(row).to_contain_text("delete, after 1 min 0 s")
    made = console.broker.services.catalog.topic("made.here")
    assert made is not None
    assert len(made.partitions) == 3
    assert made.configs == {"retention.ms": "60000", "cleanup.policy": "delete"}
    page.get_by_label("Part of the name").fill("nothing has this")
    page.get_by_role("button", name="Find").click()
    expect(page.get_by_text("No topic has this in its name.")).to_be_visible()
    page.goto(console.url("/topics"))
    assert_accessible(page)


def test_a_narrow_page_shows_all_of_a_row(console: Console, page: "Page") -> None:
    console.run(write(console.address, "narrow", 2, 0))
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(console.url("/topics"))
    # All at once: the part refreshes itself.
    cells = (
        page.locator("tr", has_text="narrow")
        .locator("th, td")
        .evaluate_all(
            "cells => cells.map((each) => [each.dataset.label, each.getBoundingClientRect().left, "
            "each.getBoundingClientRect().right])"
        )
    )
    assert [label for label, _, _ in cells[:4]] == ["Topic", "Partitions", "Offsets", "Size"]
    assert all(left >= 0 and right <= 390 for _, left, right in cells)
    assert_accessible(page)


def test_a_refusal_is_shown_and_changes_nothing(console: Console, page: "Page") -> None:
    page.goto(console.url("/topics"))
    page.get_by_text("Create a topic").click()
    page.get_by_label("Name", exact=True).fill("refused")
    page.get_by_label("Settings, one per line").fill("retention.ms=soon")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#message")).to_contain_text("INVALID_CONFIG: Invalid value soon")
    assert console.broker.services.catalog.topic("refused") is None


def test_partitions_have_the_numbers_of_the_protocol(console: Console, page: "Page") -> None:
    console.run(write(console.address, "numbers", 2, 7))
    page.goto(console.url("/topics"))
    page.get_by_role("link", name="numbers").click()
    page.get_by_role("link", name="Partitions").click()
    rows = page.locator("#partitions tbody tr")
    expect(rows).to_have_count(2)
    for index, records in enumerate((4, 3)):
        partition, leader, *_, start, last_stable, end, size, segments, producers = cells(rows.nth(index))
        replica = console.broker.services.replicas["numbers", index]
        assert partition.startswith(str(index))
        assert leader == f"broker 1 epoch {replica.leader_epoch}"
        assert (start, last_stable, end) == ("0", str(records), str(records))
        assert (size, segments, producers) == (f"{replica.log.size_bytes} B", "1", "1")
    assert_accessible(page)
    page.get_by_text("Add partitions").click()
    assert_accessible(page)
    page.get_by_label("Partitions in all").fill("5")
    page.get_by_role("button", name="Add").click()
    expect(rows).to_have_count(5)


def test_topics_are_ordered_by_a_column(console: Console, page: "Page") -> None:
    console.run(write(console.address, "order.small", 1, 1))
    console.run(write(console.address, "order.large", 2, 9))
    page.goto(console.url("/topics?search=order."))
    names = page.locator("#topics tbody th a")
    assert names.all_inner_texts() == ["order.large", "order.small"]
    page.get_by_role("link", name="Size").click()
    expect(page.get_by_role("columnheader", name="Size")).to_have_attribute("aria-sort", "descending")
    assert names.all_inner_texts() == ["order.large", "order.small"]
    page.get_by_role("link", name="Topic", exact=True).click()
    expect(page.get_by_role("columnheader", name="Topic")).to_have_attribute("aria-sort", "ascending")


def test_a_topic_is_purged_once_its_name_is_typed(console: Console, page: "Page") -> None:
    console.run(write(console.address, "purged", 2, 6))
    page.goto(console.url("/topics/purged/partitions"))
    page.get_by_text("Delete its records").click()
    page.get_by_label("Partition", exact=True).fill("1")
    page.get_by_label("Before offset").fill("2")
    name = page.get_by_label("Type the name of the topic to purge")
    name.fill("purged")
    page.get_by_role("button", name="Purge").click()
    expect(name).to_be_hidden()  # The page is loaded again.
    start = page.locator("#partitions tbody tr").nth(1).locator("td").nth(3)
    expect(start).to_have_text("2")
    logs = [console.broker.services.replicas["purged", index].log for index in range(2)]
    assert [log.log_start_offset for log in logs] == [0, 2]
    page.get_by_text("Delete its records").click()
    name.fill("purged")
    page.get_by_role("button", name="Purge").click()
    expect(start).to_have_text("3")
    assert [log.log_start_offset for log in logs] == [3, 3]


def test_a_topic_has_its_groups_producers_and_charts(console: Console, page: "Page") -> None:
    console.run(write(console.address, "used", 1, 3))
    console.run(commit(console.address, "readers", "used"))
    page.goto(console.url("/topics?search=used"))
    page.locator("#topics").get_by_role("link", name="1 groups of used").click()
    expect(page.get_by_role("row", name="readers")).to_contain_text("2")
    assert_accessible(page)
    page.get_by_role("navigation", name="Topic").get_by_role("link", name="Producers").click()
    expect(page.locator("#producers tbody tr")).to_have_count(1)
    page.get_by_role("navigation", name="Topic").get_by_role("link", name="Partitions").click()
    expect(page.locator("figure canvas").first).to_be_visible()


def test_settings_are_changed_and_removed(console: Console, page: "Page") -> None:
    console.run(write(console.address, "settings", 1, 0))
    page.goto(console.url("/topics/settings/settings"))
    row = page.locator("tr", has=page.get_by_role("rowheader", name="retention.ms", exact=True))
    expect(row).to_contain_text("this topic instead of 604800000")
    assert_accessible(page)
    page.get_by_label("Settings, one per line").fill("segment.ms=7000\nmax.message.bytes=2000000")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_role("region", name="Table of own settings")).to_contain_text("7000")
    page.get_by_role("button", name="Remove retention.ms (604800000 then holds)").click()
    expect(row).to_contain_text("default")
    assert console.broker.services.replicas["settings", 0].log.config.segment_ms == 7000
    made = console.broker.services.catalog.topic("settings")
    assert made is not None
    assert made.configs == {"segment.ms": "7000", "max.message.bytes": "2000000"}


def test_a_topic_is_deleted_once_its_name_is_typed(console: Console, page: "Page") -> None:
    console.run(write(console.address, "doomed", 1, 1))
    page.goto(console.url("/topics/doomed/partitions"))
    page.get_by_text("Delete this topic").click()
    button = page.get_by_role("button", name="Delete")
    expect(button).to_be_disabled()
    page.get_by_label("Type the topic's name").fill("doome")
    expect(button).to_be_disabled()
    page.get_by_label("Type the topic's name").fill("doomed")
    button.click()
    expect(page).to_have_url(console.url("/topics"))
    expect(page.get_by_role("link", name="doomed")).to_have_count(0)
    assert console.broker.services.catalog.topic("doomed") is None


def test_a_topic_is_recreated_with_its_partitions_and_settings(console: Console, page: "Page") -> None:
    console.run(write(console.address, "again", 3, 9))
    before = console.broker.services.catalog.topic("again")
    page.goto(console.url("/topics/again/partitions"))
    page.get_by_text("Recreate this topic").click()
    button = page.get_by_role("button", name="Recreate", exact=True)
    expect(button).to_be_disabled()
    page.get_by_label("Type the name of the topic to recreate").fill("again")
    with page.expect_navigation():
        button.click()
    after = console.broker.services.catalog.topic("again")
    assert before is not None
    assert after is not None
    assert after.topic_id != before.topic_id
    assert (len(after.partitions), after.configs) == (3, before.configs)
    assert console.broker.services.replica("again", 0).high_watermark == 0


def test_favourites_are_kept_in_the_browser(console: Console, page: "Page") -> None:
    console.run(write(console.address, "liked", 1, 0))
    page.goto(console.url("/topics"))
    star = page.get_by_role("button", name="Favourite: liked")
    expect(star).to_have_attribute("aria-pressed", "false")
    star.click()
    expect(star).to_have_attribute("aria-pressed", "true")
    page.goto(console.url("/overview"))
    link = page.get_by_role("navigation", name="Favourites").get_by_role("link", name="liked")
    link.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("liked")
    page.goto(console.url("/topics"))
    assert_accessible(page)
    star.click()
    expect(page.get_by_role("navigation", name="Favourites")).to_be_hidden()


def test_a_topic_with_traffic_has_a_small_chart(console: Console, page: "Page") -> None:
    console.run(write(console.address, "busy", 1, 50))
    page.goto(console.url("/topics"))
    expect(page.get_by_role("row", name="busy").locator("svg.spark polyline")).to_have_count(
        1, timeout=60_000
    )
