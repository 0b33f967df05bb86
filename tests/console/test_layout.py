"""The layout of ten pages, wide and light, narrow and dark: where boxes begin, and how wide they are.

Heights and texts are left out, because they depend on the fonts of a machine. `pytest --rewrite` writes
`layouts.json` anew: look at the pages before.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.console.site import Console, console_with
from tidelog.client import Admin, NewTopic, Producer, TopicPartition

if TYPE_CHECKING:
    from playwright.sync_api import Page

console = console_with(faults_enable=True)
RECORDED = Path(__file__).with_name("layouts.json")
PAGES = (
    "/overview",
    "/topics",
    "/topics/orders",
    "/topics/orders/partitions",
    "/topics/orders/settings",
    "/groups",
    "/groups/group?group_id=readers",
    "/producers",
    "/clients",
    "/cluster",
)
SIZES = {"light": (1280, 800), "dark": (390, 844)}
TOLERANCE = 6
"""Pixels."""
BOXES = """() => {
  const parts = ["body > *", "main > *", "main > section > *", ".tiles > *", ".charts > *"];
  if (innerWidth >= 960) parts.push("body > header > *", "header nav a");
  const boxes = [], overlaps = [];
  const box = (each) => each.getBoundingClientRect();
  const style = (each) => getComputedStyle(each);
  const shown = (each) => box(each).width > 1 && box(each).height > 1 && style(each).position !== "absolute";
  for (const part of parts)
    for (const each of document.querySelectorAll(part))
      if (shown(each) && ["block", "grid", "flex"].includes(style(each).display)) {
        const { left, width } = box(each);
        boxes.push([`${part} ${each.tagName.toLowerCase()}`, Math.round(left), Math.round(width)]);
      }
  const shared = (a, b, low, high) => Math.min(a[high], b[high]) - Math.max(a[low], b[low]);
  const parents = "body, main, section, .tiles, .charts, header, form.row, tbody tr";
  for (const parent of document.querySelectorAll(parents)) {
    const within = [...parent.children].filter(shown);
    within.forEach((one, at) => within.slice(at + 1).forEach((other) => {
      const [a, b] = [box(one), box(other)];
      if (shared(a, b, "left", "right") > 2 && shared(a, b, "top", "bottom") > 2)
        overlaps.push(`${one.outerHTML.slice(0, 60)} and ${other.outerHTML.slice(0, 60)}`);
    }));
  }
  return { boxes, overlaps, width: document.documentElement.scrollWidth };
}"""


async def fill(address: str) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic("orders", 2, 1, {})])
        async with Producer(bootstrap_servers=address) as producer:
            for number in range(5):
                await producer.send("orders", b'{"id": %d}' % number, key=b"k", partition=0)
        await admin.groups.commit("readers", {TopicPartition("orders", 0): 2})


def measured(page: Page, console: Console) -> dict[str, Any]:
    """The boxes of each page, by its path and width."""
    found = {}
    for scheme, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        for path in PAGES:
            page.goto(console.url(path))
            page.wait_for_load_state("load")
            shown = page.evaluate(BOXES)
            assert shown["overlaps"] == [], f"{path} at {width} pixels"
            assert shown["width"] <= width, path
            found[f"{path} {width}"] = shown["boxes"]
    return found


def differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    wrong = []
    for place, boxes in expected.items():
        names = [name for name, _, _ in boxes]
        if names != [name for name, _, _ in found[place]]:
            wrong.append(f"{place}: expected {names}, got {[name for name, _, _ in found[place]]}")
            continue
        for (name, *was), (_, *now) in zip(boxes, found[place], strict=True):
            if any(abs(one - other) > TOLERANCE for one, other in zip(was, now, strict=True)):
                wrong.append(f"{place}: {name}: expected left and width {was}, got {now}")
    return wrong


@pytest.fixture(scope="module")
def filled(console: Console) -> Console:
    console.run(fill(console.address))
    return console


def test_each_box_is_where_it_was(filled: Console, page: Page, rewrite: bool) -> None:
    found = measured(page, filled)
    if rewrite:
        lines = (f"{json.dumps(place)}: {json.dumps(boxes)}" for place, boxes in found.items())
        RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    wrong = differences(json.loads(RECORDED.read_text()), found)
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.parametrize(
    "broken",
    [
        "body { display: block }",
        "main { padding: 0 }",
        ".tiles, .charts { display: block }",
        "@media (max-width: 40rem) { main > * { margin-left: 40px } }",
    ],
)
def test_a_broken_layout_is_noticed(filled: Console, page: Page, broken: str) -> None:
    css = (Path("tidelog/broker/console/static") / "console.css").read_text()
    page.route("**/console.css", lambda route: route.fulfill(body=css + broken, content_type="text/css"))
    with pytest.raises(AssertionError):
        assert not differences(json.loads(RECORDED.read_text()), measured(page, filled))


@pytest.mark.parametrize("font", ["monospace", "serif", "system-ui"])
def test_another_font_changes_nothing(filled: Console, page: Page, font: str) -> None:
    css = (Path("tidelog/broker/console/static") / "console.css").read_text()
    css += f"body, .mono, code {{ font-family: {font} !important }}"
    page.route("**/console.css", lambda route: route.fulfill(body=css, content_type="text/css"))
    assert differences(json.loads(RECORDED.read_text()), measured(page, filled)) == []


def test_a_page_does_not_jump_while_it_loads(filled: Console, page: Page) -> None:
    page.add_init_script(
        "window.shift = 0; new PerformanceObserver((list) => { for (const each of list.getEntries()) "
        "window.shift += each.value; }).observe({ type: 'layout-shift', buffered: true });"
    )
    page.goto(filled.url("/overview"))
    page.locator("figure canvas").first.wait_for()
    assert page.evaluate("window.shift") < 0.1
