"""`python -m tests.console.screenshots`: pictures of the console for `docs/images`, of the demo's flights.

Owns which pages are shown and their sizes. A broker is sent the flights through the demo's faulty network
while a group reads them; a Chromium looks at the pages meanwhile.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Page, expect

from demo.flights import load_flights
from demo.plan import Kind, make_plan
from demo.shipment import TOPIC, Shipment, Site, open_site
from tests.console.browser import opened
from tests.console.site import new_page
from tidelog.client import Consumer

FOLDER = Path(__file__).parents[2] / "docs" / "images"
MOST_BYTES = 150_000
_WIDTH, _HEIGHT = 1200, 700
_GROUP = "departures"
_PARTITIONS = 4
_POINTS = 10
_COLOURS = 64
"""A third of the bytes; text looks the same."""


def main() -> None:
    """Take all pictures."""
    folder = Path(tempfile.mkdtemp(prefix="tidelog-screenshots-"))
    try:
        asyncio.run(_take_all(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _take_all(folder: Path) -> None:
    events = load_flights()
    # Without the kill: the charts of a broker begin with its start.
    plan = [step for step in make_plan(2013, 12) if step.kind is not Kind.KILL]
    async with open_site(folder / "data") as site:
        shipment = Shipment(site, plan, idempotent=True, on_change=lambda _: None, on_event=print)
        await shipment.create_topic(_PARTITIONS)
        looking = asyncio.create_task(asyncio.to_thread(_take, site.console))
        reading = asyncio.create_task(_read(site))
        await shipment.ship(events)
        await looking
        reading.cancel()


async def _read(site: Site) -> None:
    """A group that reads slower than the producer writes."""
    async with Consumer(
        TOPIC,
        bootstrap_servers=site.bootstrap_servers,
        group_id=_GROUP,
        client_id="departure-board",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=500,
        max_poll_records=2_000,
    ) as consumer:
        while True:
            await consumer.getmany(timeout_ms=1_000)
            await asyncio.sleep(0.1)


def _take(console: str) -> None:
    with opened() as browser:
        overview = new_page(browser, viewport={"width": _WIDTH, "height": 1000})
        overview.goto(f"{console}/overview")
        for name, path in (
            ("records", f"/topics/{TOPIC}"),
            ("producers", f"/producers?{urlencode({'topic': TOPIC})}"),
            ("group", f"/groups/group?{urlencode({'group_id': _GROUP})}"),
        ):
            page = new_page(browser, viewport={"width": _WIDTH, "height": _HEIGHT})
            page.goto(console + path)
            page.wait_for_timeout(6_000)
            _save(page, name)
        overview.wait_for_function(
            "async count => (await (await fetch('/api/v1/overview/series')).json()).times.length >= count",
            arg=_POINTS,
        )
        _save(overview, "overview")


def _save(page: Page, name: str) -> None:
    path = FOLDER / f"console-{name}.png"
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.screenshot(path=path)
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(_COLOURS).save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.name}: {size:,} bytes")
    if size > MOST_BYTES:
        raise SystemExit(f"{path.name} has {size:,} bytes; at most {MOST_BYTES:,} belong into the repository")


if __name__ == "__main__":
    main()
