"""The overview: numbers of the protocol, charts that follow, and problems in words."""

import socket
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.console.site import DESKTOP, Console, assert_accessible, console_with
from tidelog.client import Admin, NewTopic, Producer, UnknownTopicError

if TYPE_CHECKING:
    from playwright.sync_api import Page

PARTITIONS = 3
MOST_CONNECTIONS = 8
console = console_with(max_connections=MOST_CONNECTIONS, auto_create_topics_enable=False)


async def write(address: str, records: int) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic("orders", PARTITIONS, 1, {})])
    async with Producer(bootstrap_servers=address) as producer:
        for number in range(records):
            await producer.send("orders", b"%d" % number)


async def ask_for_an_unknown_topic(address: str) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        with pytest.raises(UnknownTopicError):
            await admin.describe_topics(["unknown"])


def value_of(page: "Page", term: str) -> str:
    return page.locator(f"dt:text-is('{term}') + dd").inner_text()


def test_it_shows_what_the_broker_holds_and_is_accessible(console: Console, page: "Page") -> None:
    console.run(write(console.address, 10))
    page.goto(console.url("/overview"))
    assert value_of(page, "Topics") == "1"
    assert value_of(page, "Partitions") == str(PARTITIONS)
    assert value_of(page, "Producers") == str(console.broker.services.partitions.logs.producer_id_count)
    assert value_of(page, "Disk").endswith("iB")
    expect(page.locator("figure canvas").first).to_be_visible()
    assert_accessible(page)


def test_a_chart_follows_what_happens(console: Console, page: "Page") -> None:
    page.goto(console.url("/overview"))
    errors = page.locator("figure", has_text="Errors by code")
    expect(page.locator("figure", has_text="Records and requests").locator(".now")).to_contain_text(
        "records in:"
    )
    expect(errors).not_to_contain_text("UNKNOWN_TOPIC_OR_PARTITION")
    console.run(ask_for_an_unknown_topic(console.address))
    expect(errors).to_contain_text("UNKNOWN_TOPIC_OR_PARTITION")
    expect(errors.locator("canvas")).to_be_visible()


def test_charts_go_on_without_the_points_before(console: Console, page: "Page") -> None:
    page.route("**/overview/series*", lambda route: route.abort())
    page.goto(console.url("/overview"))
    chart = page.locator("figure", has_text="Records and requests")
    expect(chart.locator("canvas")).to_be_visible()


def test_a_limit_that_is_met_is_a_problem_with_its_remedy(console: Console, page: "Page") -> None:
    host, _, port = console.address.partition(":")
    held = [socket.create_connection((host, int(port))) for _ in range(MOST_CONNECTIONS + 1)]
    try:
        page.goto(console.url("/overview"))
        problem = page.locator("[data-problem=connections_refused]")
        expect(problem).to_contain_text("Warning: Connections were refused")
        expect(problem).to_contain_text("max.connections")
        assert value_of(page, "Connections above a limit") != "0"
        assert page.evaluate("document.documentElement.scrollWidth") <= DESKTOP["width"]
    finally:
        for each in held:
            each.close()
