"""What pages that are left open cost a broker: `python -m bench.console_open_pages [seconds] [pages]`.

Starts a broker in a process of its own, with topics, records and a group, and measures its processor time:
first without a visitor, then with pages open in Chromium, all of them seen.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

from faults.process import BrokerProcess
from tidelog.client import Consumer, Producer

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATHS = ("overview", "topics", "topics/orders", "producers?topic=orders", "groups", "transactions", "clients")


def path_of_browser() -> str:
    """Exits where there is none."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    return found or sys.exit("no Chromium was found; apt-get install chromium")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def share(pid: int, seconds: float) -> float:
    """How much of a core a process uses."""
    before, began = cpu_seconds(pid), time.monotonic()
    await asyncio.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.monotonic() - began)


async def measure(seconds: float, pages: int) -> None:
    from playwright.async_api import async_playwright

    with TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder))
        await broker.start()
        pid = broker.pid or sys.exit("the broker has ended")
        address = f"127.0.0.1:{broker.port}"
        async with Producer(bootstrap_servers=address) as producer:
            sent = [await producer.send("orders", b"%d" % number) for number in range(1_000)]
            await asyncio.gather(*sent)
        async with Consumer("orders", bootstrap_servers=address, group_id="readers"):
            idle = await share(pid, seconds)
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(
                    executable_path=path_of_browser(), args=["--no-sandbox"]
                )
                asked: list[str] = []
                for path in islice(cycle(PATHS), pages):
                    page = await (await browser.new_context()).new_page()
                    page.on("request", lambda request: asked.append(request.url))
                    await page.goto(f"http://127.0.0.1:{broker.http_port}/console/{path}")
                await share(pid, 5)
                asked.clear()
                open_ = await share(pid, seconds)
                await browser.close()
        await broker.terminate()
    print(f"a broker without visitors: {idle:.2%} of a core; with {pages} pages open: {open_:.2%}")
    print(f"the pages cost {open_ - idle:.2%} of a core; they made {len(asked)} requests")
    print(f"{seconds:g} s each, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    given = [float(each) for each in sys.argv[1:]]
    asyncio.run(measure(given[0] if given else 60.0, int(given[1]) if len(given) > 1 else 10))
